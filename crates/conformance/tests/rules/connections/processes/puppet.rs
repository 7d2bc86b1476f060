//! Processes that do as they are told.

use std::ffi::CString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use transom_abi::IBV_QPT_UD;
use transom_conformance::connections::*;
use transom_conformance::harness::{bring_up, usual_attr};
use transom_conformance::path_of;
use transom_conformance::processes::*;
use transom_conformance::spaces::{Family, INTERFACE, Side, VethPair};

/// What a puppet is told to do.
pub(super) mod order {
    /// Listens with a backlog; answers the port.
    pub(in super::super) const LISTEN: u64 = 1;
    /// Binds an id to a port; answers the errno, or zero.
    pub(in super::super) const BIND: u64 = 2;
    /// Asks for a connection to a port.
    pub(in super::super) const CONNECT: u64 = 3;
    /// Waits for an event; answers it, its status and its id.
    pub(in super::super) const EVENT: u64 = 4;
    /// Accepts the last request.
    pub(in super::super) const ACCEPT: u64 = 5;
    /// Refuses it.
    pub(in super::super) const REJECT: u64 = 6;
    /// Goes on after a response.
    pub(in super::super) const ESTABLISH: u64 = 7;
    /// Ends the last connection, or confirms its end.
    pub(in super::super) const DISCONNECT: u64 = 8;
    /// Asks a datagram service for its queue pair.
    pub(in super::super) const RESOLVE: u64 = 9;
    /// Listens for those who do; answers the port.
    pub(in super::super) const SERVE: u64 = 10;
    /// Binds and connects to this address of IPv4 from now on.
    pub(in super::super) const HOST: u64 = 11;
    /// Binds an id to any port, and answers that; listens there at the next order.
    pub(in super::super) const TELL: u64 = 12;
    /// Ends the listener.
    pub(in super::super) const LEAVE: u64 = 13;
    /// Listens at this port.
    pub(in super::super) const RETURN: u64 = 14;
    /// Ends by this signal, or without one at once.
    pub(in super::super) const DIE: u64 = 15;
    /// Binds and connects to the link-local address from now on that ends in this.
    pub(in super::super) const LINK_LOCAL: u64 = 16;
    /// Answers the index of the interface that its last id's own address is of.
    pub(in super::super) const INTERFACE: u64 = 17;
}

/// What the children run; on its own it does nothing.
#[test]
fn role() {
    play(&[("puppet", puppet), ("stranger", stranger)]);
}

/// The role that receives datagrams, and has the port for that, until it is told to end.
pub(super) const STRANGER: &str = path_of!("stranger");

fn stranger(channel: &mut Channel) {
    let end = open();
    let qp = end.qp(IBV_QPT_UD);
    bring_up(qp, &usual_attr(qp));
    channel.tell(&[]);
    let _ = channel.hear_all();
}

/// Does as it is told until it is killed or has no master any more.
fn puppet(channel: &mut Channel) {
    let file = File::open();
    let port = |id| file.addresses(id)[0].map_or(0, |address| u64::from(address.port()));
    let (mut last, mut listener) = (Id(0), Id(0));
    let mut host = Ipv4Addr::LOCALHOST.to_string();
    loop {
        let order = channel.hear_all();
        let any = format!("{host}:0");
        let to = order.get(1).map(|port| format!("{host}:{port}"));
        let to = to.as_deref().unwrap_or(&any);
        match order.first() {
            None => return,
            Some(&order::LISTEN) => {
                listener = file.id();
                file.bind(listener, &any).expect("bound");
                file.listen(listener, order[1] as u32).expect("it listens");
                channel.tell(&[port(listener)]);
            }
            Some(&order::LEAVE) => {
                file.destroy(listener).expect("destroyed");
                channel.tell(&[0]);
            }
            Some(&order::RETURN) => {
                listener = file.listener(to);
                channel.tell(&[0]);
            }
            Some(&order::TELL) => {
                let id = file.id();
                file.bind(id, &any).expect("bound");
                channel.tell(&[port(id)]);
                let _ = channel.hear_all();
                file.listen(id, 0).expect("it listens");
                channel.tell(&[0]);
            }
            Some(&order::SERVE) => {
                let id = file.datagram_id();
                file.bind(id, &any).expect("bound");
                file.listen(id, 0).expect("it listens");
                channel.tell(&[port(id)]);
            }
            Some(&order::BIND) => {
                let bound = file.bind(file.id(), to);
                channel.tell(&[bound.err().unwrap_or(0) as u64]);
            }
            Some(&order @ (order::CONNECT | order::RESOLVE)) => {
                last = if order == order::CONNECT { file.id() } else { file.datagram_id() };
                file.resolve(last, to);
                file.connect(last, qpns()[0], b"asks").expect("asked");
            }
            Some(&order::EVENT) => {
                let event = file.event();
                last = Id(event.id);
                channel.tell(&[event.event.into(), event.status.into(), event.id.into()]);
            }
            Some(&order::ACCEPT) => {
                file.accept(last, 2, qpns()[0], b"accepts").expect("accepted");
            }
            Some(&order::REJECT) => file.reject(last, b"no").expect("refused"),
            Some(&order::ESTABLISH) => file.establish(last).expect("established"),
            Some(&order::DISCONNECT) => file.disconnect(last).expect("disconnected"),
            // SAFETY: ends this process, in either way.
            Some(&order::DIE) => unsafe {
                match order[1] as i32 {
                    0 => libc::_exit(0),
                    signal => libc::raise(signal),
                };
            },
            Some(&order::HOST) => host = Ipv4Addr::from_bits(order[1] as u32).to_string(),
            Some(&order::LINK_LOCAL) => host = format!("[fe80::{:x}%{}]", order[1], interface()),
            Some(&order::INTERFACE) => {
                let Some(SocketAddr::V6(own)) = file.addresses(last)[0] else { panic!("of IPv6") };
                assert!(own.ip().is_unicast_link_local());
                channel.tell(&[u64::from(own.scope_id() == interface())]);
            }
            Some(order) => panic!("what is {order}?"),
        }
    }
}

/// The index of the interface that leads to the other end.
fn interface() -> u32 {
    let name = CString::new(INTERFACE).expect("a name");
    // SAFETY: a text that ends in zero.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}

/// A process that does as it is told.
pub(super) struct Puppet(pub(super) Child);

impl Puppet {
    pub(super) fn start(environment: &[&str]) -> Self {
        Self(Child::start_under(path_of!("puppet"), &[&["env"], environment].concat()))
    }

    pub(super) fn two(environment: &[&str]) -> [Self; 2] {
        [(); 2].map(|()| Self::start(environment))
    }

    /// One of the user nobody.
    pub(super) fn start_as_nobody() -> Self {
        Self(Child::start_under(path_of!("puppet"), AS_NOBODY))
    }

    /// One in a namespace of its own, which meets others at an address there.
    pub(super) fn start_in(pair: &VethPair, side: Side) -> Self {
        Self::start_under_in(pair, side, &[])
    }

    /// The same, started by a command.
    pub(super) fn start_under_in(pair: &VethPair, side: Side, command: &[&str]) -> Self {
        let net = format!("--net={}", pair.space(side).path());
        let wrapper = [&["nsenter", &net], command].concat();
        let mut puppet = Self(Child::start_under(path_of!("puppet"), &wrapper));
        let IpAddr::V4(far) = pair.address(Side::Far, Family::V4) else { panic!("of IPv4") };
        puppet.order(&[order::HOST, far.to_bits().into()]);
        puppet
    }

    pub(super) fn order(&mut self, order: &[u64]) {
        self.0.tell(order);
    }

    pub(super) fn ask(&mut self, order: &[u64]) -> u64 {
        self.order(order);
        let [answer] = self.0.hear();
        answer
    }

    /// Waits for an event: its status and id.
    pub(super) fn expect(&mut self, event: u32) -> (i32, u32) {
        self.order(&[order::EVENT]);
        let [came, status, id] = self.0.hear();
        assert_eq!(came, u64::from(event), "status {}", status as i32);
        (status as i32, id as u32)
    }

    /// Asks for a connection, which the other accepts.
    pub(super) fn connect(&mut self, other: &mut Self, port: u64) {
        self.order(&[order::CONNECT, port]);
        self.is_accepted_by(other);
    }

    /// Its request is accepted.
    pub(super) fn is_accepted_by(&mut self, other: &mut Self) {
        other.expect(event::CONNECT_REQUEST);
        other.order(&[order::ACCEPT]);
        self.expect(event::CONNECT_RESPONSE);
        self.order(&[order::ESTABLISH]);
        other.expect(event::ESTABLISHED);
    }

    /// Its request is refused.
    pub(super) fn is_refused_by(&mut self, other: &mut Self) {
        other.expect(event::CONNECT_REQUEST);
        other.order(&[order::REJECT]);
        assert_eq!(self.expect(event::REJECTED).0, 28);
    }

    /// Ends the connection, and the other confirms that.
    pub(super) fn part(&mut self, other: &mut Self) {
        self.order(&[order::DISCONNECT]);
        other.expect(event::DISCONNECTED);
        other.order(&[order::DISCONNECT]);
        self.expect(event::DISCONNECTED);
    }

    pub(super) fn finish(mut self) {
        self.order(&[]);
        self.0.finish();
    }
}

/// Has two processes do something until it took less than `time`: on a machine that had others run meanwhile, it may
/// have taken so long that what they met is over. They say when it began.
pub(super) fn in_time(
    time: Duration,
    mut attempt: impl FnMut() -> (Instant, [Puppet; 2]),
) -> [Puppet; 2] {
    let begun = Instant::now();
    loop {
        let (asked, puppets) = attempt();
        if asked.elapsed() < time {
            return puppets;
        }
        assert!(begun.elapsed() < LIMIT, "this machine is too slow");
        puppets.into_iter().for_each(|puppet| puppet.0.kill());
    }
}

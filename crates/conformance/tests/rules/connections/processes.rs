//! Connections between processes of one host: through their pipes, and over the wire.

use std::ffi::CString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use transom_abi::IBV_QPT_UD;
use transom_conformance::connections::*;
use transom_conformance::harness::{bring_up, until, usual_attr};
use transom_conformance::path_of;
use transom_conformance::processes::*;
use transom_conformance::programs::command;
use transom_conformance::spaces::{Family, INTERFACE, Side, VethPair};
use transom_system::registry::Registry;
use transom_system::registry::connections::Connections;

/// What a puppet is told to do.
mod order {
    /// Listens with a backlog; answers the port.
    pub(super) const LISTEN: u64 = 1;
    /// Binds an id to a port; answers the errno, or zero.
    pub(super) const BIND: u64 = 2;
    /// Asks for a connection to a port.
    pub(super) const CONNECT: u64 = 3;
    /// Waits for an event; answers it, its status and its id.
    pub(super) const EVENT: u64 = 4;
    /// Accepts the last request.
    pub(super) const ACCEPT: u64 = 5;
    /// Refuses it.
    pub(super) const REJECT: u64 = 6;
    /// Goes on after a response.
    pub(super) const ESTABLISH: u64 = 7;
    /// Ends the last connection, or confirms its end.
    pub(super) const DISCONNECT: u64 = 8;
    /// Asks a datagram service for its queue pair.
    pub(super) const RESOLVE: u64 = 9;
    /// Listens for those who do; answers the port.
    pub(super) const SERVE: u64 = 10;
    /// Binds and connects to this address of IPv4 from now on.
    pub(super) const HOST: u64 = 11;
    /// Binds an id to any port, and answers that; listens there at the next order.
    pub(super) const TELL: u64 = 12;
    /// Ends the listener.
    pub(super) const LEAVE: u64 = 13;
    /// Listens at this port.
    pub(super) const RETURN: u64 = 14;
    /// Ends by this signal, or without one at once.
    pub(super) const DIE: u64 = 15;
    /// Binds and connects to the link-local address from now on that ends in this.
    pub(super) const LINK_LOCAL: u64 = 16;
    /// Answers the index of the interface that its last id's own address is of.
    pub(super) const INTERFACE: u64 = 17;
}

/// What the children run; on its own it does nothing.
#[test]
fn role() {
    play(&[("puppet", puppet), ("stranger", stranger)]);
}

/// Receives datagrams, and has the port for that, until it is told to end.
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
struct Puppet(Child);

impl Puppet {
    fn start(environment: &[&str]) -> Self {
        Self(Child::start_under(path_of!("puppet"), &[&["env"], environment].concat()))
    }

    /// One in a namespace of its own, which meets others at an address there.
    fn start_in(pair: &VethPair, side: Side) -> Self {
        Self::start_under_in(pair, side, &[])
    }

    /// The same, started by a command.
    fn start_under_in(pair: &VethPair, side: Side, command: &[&str]) -> Self {
        let net = format!("--net={}", pair.space(side).path());
        let wrapper = [&["nsenter", &net], command].concat();
        let mut puppet = Self(Child::start_under(path_of!("puppet"), &wrapper));
        let IpAddr::V4(far) = pair.address(Side::Far, Family::V4) else { panic!("of IPv4") };
        puppet.order(&[order::HOST, far.to_bits().into()]);
        puppet
    }

    fn order(&mut self, order: &[u64]) {
        self.0.tell(order);
    }

    fn ask(&mut self, order: &[u64]) -> u64 {
        self.order(order);
        let [answer] = self.0.hear();
        answer
    }

    /// Waits for an event: its status and id.
    fn expect(&mut self, event: u32) -> (i32, u32) {
        self.order(&[order::EVENT]);
        let [came, status, id] = self.0.hear();
        assert_eq!(came, u64::from(event), "status {}", status as i32);
        (status as i32, id as u32)
    }

    /// Asks for a connection, which the other accepts.
    fn connect(&mut self, other: &mut Self, port: u64) {
        self.order(&[order::CONNECT, port]);
        other.expect(event::CONNECT_REQUEST);
        other.order(&[order::ACCEPT]);
        self.expect(event::CONNECT_RESPONSE);
        self.order(&[order::ESTABLISH]);
        other.expect(event::ESTABLISHED);
    }

    fn finish(mut self) {
        self.order(&[]);
        self.0.finish();
    }
}

/// Runs each test with processes that reach each other through their pipes, and over the wire.
macro_rules! on_both_ways {
    ($($(#[$doc:meta])* fn $name:ident($environment:ident) $body:block)+) => {
        $($(#[$doc])* mod $name {
            use super::*;

            fn run($environment: &[&str]) $body

            #[test]
            fn local() {
                run(&[]);
            }

            #[test]
            fn wire() {
                alone(path_of!("wire"), Way::Network, || run(&["TRANSOM_LINK=wire"]));
            }
        })+
    };
}

on_both_ways! {
    /// Rules: CM-01, CM-03, CM-09, CM-20, CM-29, CM-41
    fn processes_connect_and_part(environment) {
        let [mut active, mut passive] = [(); 2].map(|()| Puppet::start(environment));
        let port = passive.ask(&[order::LISTEN, 0]);
        active.connect(&mut passive, port);
        active.order(&[order::DISCONNECT]);
        let (_, of_passive) = passive.expect(event::DISCONNECTED);
        passive.order(&[order::DISCONNECT]);
        let (_, of_active) = active.expect(event::DISCONNECTED);
        assert_ne!(of_active >> 24, of_passive >> 24, "the processes' slots");
        active.expect(event::TIMEWAIT_EXIT);
        passive.expect(event::TIMEWAIT_EXIT);
        active.finish();
        passive.finish();
    }

    /// Rules: CM-21, CM-33
    fn a_request_is_refused(environment) {
        let [mut active, mut passive] = [(); 2].map(|()| Puppet::start(environment));
        let port = passive.ask(&[order::LISTEN, 0]);
        active.order(&[order::CONNECT, port]);
        passive.expect(event::CONNECT_REQUEST);
        passive.order(&[order::REJECT]);
        assert_eq!(active.expect(event::REJECTED).0, 28);
        // Port 1 is nobody's.
        active.order(&[order::CONNECT, 1]);
        assert_eq!(active.expect(event::REJECTED).0, 8);
        active.finish();
        passive.finish();
    }

    /// The other end is told, though its process can say nothing any more.
    ///
    /// Rules: CM-50
    fn connections_of_a_killed_process_end(environment) {
        let [mut active, mut passive] = [(); 2].map(|()| Puppet::start(environment));
        let port = passive.ask(&[order::LISTEN, 0]);
        active.connect(&mut passive, port);
        passive.0.kill();
        active.expect(event::DISCONNECTED);
        let mut passive = Puppet::start(environment);
        let port = passive.ask(&[order::LISTEN, 0]);
        active.connect(&mut passive, port);
        active.0.kill();
        passive.expect(event::DISCONNECTED);
        passive.finish();
    }

    /// Rules: CM-30
    fn a_datagram_service_is_resolved(environment) {
        let [mut active, mut passive] = [(); 2].map(|()| Puppet::start(environment));
        let port = passive.ask(&[order::SERVE]);
        active.order(&[order::RESOLVE, port]);
        passive.expect(event::CONNECT_REQUEST);
        passive.order(&[order::ACCEPT]);
        active.expect(event::ESTABLISHED);
        active.order(&[order::RESOLVE, 1]);
        assert_eq!(active.expect(event::UNREACHABLE).0, 1);
        active.finish();
        passive.finish();
    }

    /// Whoever gets the request, it waits where the port is.
    ///
    /// Rules: CM-56
    fn a_server_tells_its_port_before_it_listens(environment) {
        let begun = Instant::now();
        loop {
            let [mut active, mut passive] = [(); 2].map(|()| Puppet::start(environment));
            let port = passive.ask(&[order::TELL]);
            let asked = Instant::now();
            active.order(&[order::CONNECT, port]);
            passive.ask(&[order::LISTEN]);
            // On a machine that had others run meanwhile the request may have waited long enough.
            if asked.elapsed() < Duration::from_millis(100) {
                passive.expect(event::CONNECT_REQUEST);
                passive.order(&[order::REJECT]);
                assert_eq!(active.expect(event::REJECTED).0, 28);
                active.finish();
                return passive.finish();
            }
            assert!(begun.elapsed() < LIMIT, "this machine is too slow");
            active.0.kill();
            passive.0.kill();
        }
    }

    /// Rules: CM-22, CM-43
    fn a_request_beyond_the_backlog_finds_room_later(environment) {
        let [mut first, mut second, mut passive] =
            [(); 3].map(|()| Puppet::start(&[environment, &["TRANSOM_CONNECT_TIMEOUT=16000"]].concat()));
        let port = passive.ask(&[order::LISTEN, 1]);
        first.order(&[order::CONNECT, port]);
        second.order(&[order::CONNECT, port]);
        // One of them has been dropped meanwhile, or has come just now; it is sent again in either case.
        for _ in 0..2 {
            passive.expect(event::CONNECT_REQUEST);
            passive.order(&[order::REJECT]);
        }
        for active in [&mut first, &mut second] {
            assert_eq!(active.expect(event::REJECTED).0, 28);
        }
        [first, second, passive].into_iter().for_each(Puppet::finish);
    }

    /// Rules: CM-08, CM-15
    fn messages_that_are_refused_lost_or_late(environment) {
        let start = |fault| {
            let more = [fault, "TRANSOM_CONNECT_TIMEOUT=16000"];
            Puppet::start(&[environment, &more].concat())
        };
        let mut active = start("TRANSOM_FAULT=delay=100ms,op=rep");
        let mut passive = start("TRANSOM_FAULT=reject=3,nth=1;drop,op=req,nth=2;drop,op=rtu,nth=1");
        let port = passive.ask(&[order::LISTEN, 0]);
        active.order(&[order::CONNECT, port]);
        assert_eq!(active.expect(event::REJECTED).0, 3);
        // The REQ is sent again, and so is the REP, for which the RTU is.
        active.connect(&mut passive, port);
        active.finish();
        passive.finish();
    }

    /// Whoever asks why a program stands still is told.
    ///
    /// Rules: CM-14
    fn a_request_that_is_not_answered_is_told_while_it_waits(environment) {
        let environment = [environment, &["TRANSOM_CONNECT_TIMEOUT=800"]].concat();
        let [mut active, mut passive] = [(); 2].map(|()| Puppet::start(&environment));
        let port = passive.ask(&[order::LISTEN, 0]);
        passive.0.stop();
        let registry = Registry::open().expect("the puppets have one");
        let seen = || {
            let table = Connections::look(registry).expect("it can be read")?;
            let all = table.lock().expect("it is locked").all_waiting();
            let mut of_it = all.into_iter().map(|(_, waiting)| waiting);
            of_it.find(|waiting| u64::from(waiting.destination.port()) == port)
        };
        active.order(&[order::CONNECT, port]);
        let waiting = until("it to be told", || seen().filter(|waiting| waiting.sent > 2));
        assert_eq!(waiting.in_vain, 0);
        let sentence = waiting.sentence(waiting.since + 9_000_000_000);
        assert!(sentence.contains(" is not answered for 9 s, sent "), "{sentence}");
        active.expect(event::UNREACHABLE);
        assert_eq!(seen(), None);
        passive.0.resume();
        active.finish();
        passive.finish();
    }

    /// Rules: CM-14, CM-43
    fn a_stopped_peer_is_given_up_after_the_time_set(environment) {
        let environment = [environment, &["TRANSOM_CONNECT_TIMEOUT=400"]].concat();
        let [mut active, mut passive] = [(); 2].map(|()| Puppet::start(&environment));
        let port = passive.ask(&[order::LISTEN, 0]);
        passive.0.stop();
        active.order(&[order::CONNECT, port]);
        assert_eq!(active.expect(event::UNREACHABLE).0, -libc::ETIMEDOUT);
        passive.0.resume();
        active.finish();
        passive.finish();
    }
}

/// Both ends are started at once, and the client is ready first.
///
/// Rules: CM-56
#[test]
fn a_client_that_is_started_with_its_server_finds_it() {
    let begun = Instant::now();
    loop {
        let mut passive = Puppet::start(&[]);
        let port = passive.ask(&[order::LISTEN, 0]);
        passive.ask(&[order::LEAVE]);
        let started = Instant::now();
        let mut active = Puppet::start(&[]);
        active.order(&[order::CONNECT, port]);
        // It has been asked for by then.
        active.ask(&[order::TELL]);
        passive.ask(&[order::RETURN, port]);
        // On a machine that had others run meanwhile the request may have waited long enough.
        if started.elapsed() < Duration::from_millis(100) {
            passive.expect(event::CONNECT_REQUEST);
            passive.order(&[order::REJECT]);
            active.ask(&[]);
            assert_eq!(active.expect(event::REJECTED).0, 28);
            active.finish();
            return passive.finish();
        }
        assert!(begun.elapsed() < LIMIT, "this machine is too slow");
        active.0.kill();
        passive.0.kill();
    }
}

/// A server that makes a listener for each connection, as `perftest -R` does: the request goes to it though nobody
/// has the port.
///
/// Rules: CM-56
#[test]
fn a_server_lets_its_listener_go_before_it_makes_the_next() {
    let begun = Instant::now();
    loop {
        let [mut active, mut passive] = [(); 2].map(|()| Puppet::start(&[]));
        let port = passive.ask(&[order::LISTEN, 0]);
        active.connect(&mut passive, port);
        passive.ask(&[order::LEAVE]);
        let asked = Instant::now();
        active.order(&[order::CONNECT, port]);
        passive.ask(&[order::RETURN, port]);
        // On a machine that had others run meanwhile the request may have waited long enough.
        if asked.elapsed() < Duration::from_millis(100) {
            passive.expect(event::CONNECT_REQUEST);
            passive.order(&[order::REJECT]);
            assert_eq!(active.expect(event::REJECTED).0, 28);
            active.finish();
            return passive.finish();
        }
        assert!(begun.elapsed() < LIMIT, "this machine is too slow");
        active.0.kill();
        passive.0.kill();
    }
}

/// As a server under `sudo` and a client as oneself: the server's user has the port, and hands on what is for the
/// client.
///
/// Rules: NET-18
#[test]
fn a_client_of_another_user_connects_and_parts() {
    if !is_root() {
        return eprintln!("skipped: only root can be another user too");
    }
    alone(path_of!("a_client_of_another_user_connects_and_parts"), Way::Network, || {
        let mut passive = Puppet::start(&[]);
        // At any address, so for other hosts too.
        passive.order(&[order::HOST, 0]);
        let port = passive.ask(&[order::LISTEN, 0]);
        let mut active = Puppet(Child::start_under(path_of!("puppet"), AS_NOBODY));
        active.connect(&mut passive, port);
        active.order(&[order::DISCONNECT]);
        passive.expect(event::DISCONNECTED);
        passive.order(&[order::DISCONNECT]);
        active.expect(event::DISCONNECTED);
        active.expect(event::TIMEWAIT_EXIT);
        // Port 1 is nobody's, of no user.
        active.order(&[order::CONNECT, 1]);
        assert_eq!(active.expect(event::REJECTED).0, 8);
        active.finish();
        passive.expect(event::TIMEWAIT_EXIT);
        passive.finish();
    });
}

/// A server that does not have the port is found by requests from whoever has it, and from its own user's.
///
/// Rules: NET-18
#[test]
fn a_server_of_another_user_is_found() {
    if !is_root() {
        return eprintln!("skipped: only root can be another user too");
    }
    alone(path_of!("a_server_of_another_user_is_found"), Way::Network, || {
        let mut stranger = Child::start(path_of!("stranger"));
        let [] = stranger.hear();
        let mut passive = Puppet(Child::start_under(path_of!("puppet"), AS_NOBODY));
        passive.order(&[order::HOST, 0]);
        let port = passive.ask(&[order::LISTEN, 0]);
        let as_nobody = Child::start_under(path_of!("puppet"), AS_NOBODY);
        for mut active in [Puppet::start(&[]), Puppet(as_nobody)] {
            active.connect(&mut passive, port);
            active.order(&[order::DISCONNECT]);
            passive.expect(event::DISCONNECTED);
            passive.order(&[order::DISCONNECT]);
            active.expect(event::DISCONNECTED);
            active.expect(event::TIMEWAIT_EXIT);
            passive.expect(event::TIMEWAIT_EXIT);
            active.order(&[order::CONNECT, 1]);
            assert_eq!(active.expect(event::REJECTED).0, 8, "nobody's, of no user");
            active.finish();
        }
        // Nobody is found who listens no more.
        passive.ask(&[order::LEAVE]);
        let mut late = Puppet::start(&[]);
        late.order(&[order::CONNECT, port]);
        assert_eq!(late.expect(event::REJECTED).0, 8);
        late.finish();
        passive.finish();
        stranger.tell(&[]);
        stranger.finish();
    });
}

/// What is about a connection goes to its process, and not by way of another that has the port: that may
/// have stopped.
///
/// Rules: CM-20
#[test]
fn stopped_processes_on_the_port_hold_up_no_connection_of_others() {
    alone(
        path_of!("stopped_processes_on_the_port_hold_up_no_connection_of_others"),
        Way::Network,
        || {
            let wire = || Puppet::start(&["TRANSOM_LINK=wire"]);
            let [mut active, mut passive] = [(); 2].map(|()| wire());
            let port = passive.ask(&[order::LISTEN, 0]);
            active.connect(&mut passive, port);
            // Each has the port when it has asked for something. Any of them might get a packet.
            let bystanders = [(); 6].map(|()| {
                let mut bystander = wire();
                bystander.order(&[order::CONNECT, 1]);
                bystander.expect(event::REJECTED);
                bystander
            });
            bystanders.iter().for_each(|it| it.0.stop());
            active.order(&[order::DISCONNECT]);
            passive.expect(event::DISCONNECTED);
            passive.order(&[order::DISCONNECT]);
            active.expect(event::DISCONNECTED);
            for bystander in bystanders {
                bystander.0.resume();
                bystander.finish();
            }
            active.finish();
            passive.finish();
        },
    );
}

/// Rules: CM-01, CM-21, CM-29, CM-50, CM-67
#[test]
fn hosts_connect_and_part() {
    let pair = match VethPair::new(1500) {
        Ok(pair) if is_root() => pair,
        Ok(_) => return eprintln!("skipped: only root enters the namespaces by nsenter"),
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let mut active = Puppet::start_in(&pair, Side::Near);
    let [mut passive, mut bystander] = [(); 2].map(|()| Puppet::start_in(&pair, Side::Far));
    let port = passive.ask(&[order::LISTEN, 0]);
    // That one may get the packets.
    let other = bystander.ask(&[order::LISTEN, 0]);
    active.connect(&mut passive, port);
    active.order(&[order::DISCONNECT]);
    passive.expect(event::DISCONNECTED);
    passive.order(&[order::DISCONNECT]);
    active.expect(event::DISCONNECTED);
    active.expect(event::TIMEWAIT_EXIT);
    active.order(&[order::CONNECT, 1]);
    assert_eq!(active.expect(event::REJECTED).0, 8);
    // Who listens at loopback is there for its own host alone.
    bystander.order(&[order::HOST, Ipv4Addr::LOCALHOST.to_bits().into()]);
    let near = bystander.ask(&[order::LISTEN, 0]);
    active.order(&[order::CONNECT, near]);
    assert_eq!(active.expect(event::REJECTED).0, 28);
    active.connect(&mut bystander, other);
    // The process beside it says so.
    bystander.0.kill();
    active.expect(event::DISCONNECTED);
    // So does one that has the port and uses no connections.
    let net = format!("--net={}", pair.space(Side::Far).path());
    let mut stranger = Child::start_under(path_of!("stranger"), &["nsenter", &net]);
    let [] = stranger.hear();
    passive.expect(event::TIMEWAIT_EXIT);
    active.connect(&mut passive, port);
    passive.0.kill();
    active.expect(event::DISCONNECTED);
    stranger.tell(&[]);
    stranger.finish();
    active.finish();
}

/// Nobody else is on its host, but for what `transom run` has left beside it.
///
/// Rules: CM-50
#[test]
fn a_program_of_transom_run_is_spoken_for_however_it_ends() {
    let pair = match VethPair::new(1500) {
        Ok(pair) if is_root() => pair,
        Ok(_) => return eprintln!("skipped: only root enters the namespaces by nsenter"),
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let [transom, ..] = command();
    let run = [transom.to_str().expect("text"), "run", "--"];
    // The first process of a container, with which all others there end.
    let contained = [&["unshare", "--pid", "--fork", "--mount-proc"], &run[..]].concat();
    let mut active = Puppet::start_in(&pair, Side::Near);
    let ways = [libc::SIGKILL, libc::SIGTERM, libc::SIGABRT, 0];
    let ways = ways.into_iter().flat_map(|how| [(how, &run[..]), (how, &contained)]);
    for (how, command) in ways {
        let mut passive = Puppet::start_under_in(&pair, Side::Far, command);
        let port = passive.ask(&[order::LISTEN, 0]);
        active.connect(&mut passive, port);
        passive.order(&[order::DIE, how as u64]);
        active.expect(event::DISCONNECTED);
        active.order(&[order::DISCONNECT]);
        active.expect(event::TIMEWAIT_EXIT);
    }
    active.finish();
}

/// Nobody could answer: the host says so. Whoever starts there in time gets the request.
///
/// Rules: CM-70
#[test]
fn a_host_where_no_process_is_says_so_unless_one_starts_in_time() {
    let pair = match VethPair::new(1500) {
        Ok(pair) if is_root() => pair,
        Ok(_) => return eprintln!("skipped: only root enters the namespaces by nsenter"),
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let mut active = Puppet::start_in(&pair, Side::Near);
    let asked = Instant::now();
    active.order(&[order::CONNECT, 7471]);
    assert_eq!(active.expect(event::REJECTED).0, 8);
    active.order(&[order::RESOLVE, 7471]);
    assert_eq!(active.expect(event::UNREACHABLE).0, 1);
    // Linux would wait for two minutes.
    assert!(asked.elapsed() < LIMIT, "{:?}", asked.elapsed());
    let begun = Instant::now();
    loop {
        let asked = Instant::now();
        active.order(&[order::CONNECT, 7471]);
        let mut passive = Puppet::start_in(&pair, Side::Far);
        passive.ask(&[order::RETURN, 7471]);
        // On a machine that had others run meanwhile the host may have said often enough that nobody is there.
        if asked.elapsed() < Duration::from_millis(1400) {
            passive.expect(event::CONNECT_REQUEST);
            passive.order(&[order::ACCEPT]);
            active.expect(event::CONNECT_RESPONSE);
            active.order(&[order::ESTABLISH]);
            passive.expect(event::ESTABLISHED);
            // Nobody is left to say that it is over; whoever says so himself learns that it is.
            passive.0.kill();
            active.order(&[order::DISCONNECT]);
            assert_eq!(active.expect(event::DISCONNECTED).0, 0);
            return active.finish();
        }
        assert!(begun.elapsed() < LIMIT, "this machine is too slow");
        passive.0.kill();
        active.0.kill();
        active = Puppet::start_in(&pair, Side::Near);
    }
}

/// Link-local addresses, of which each names its interface, and which lead nowhere without.
///
/// Rules: CM-36
#[test]
fn hosts_connect_by_link_local_addresses() {
    let pair = match VethPair::new(1500) {
        Ok(pair) if is_root() => pair,
        Ok(_) => return eprintln!("skipped: only root enters the namespaces by nsenter"),
        Err(why) => return eprintln!("skipped: {why}"),
    };
    for (side, last) in [(Side::Near, 1), (Side::Far, 2)] {
        let given = pair.space(side).ip(&format!("addr add fe80::{last}/64 dev {INTERFACE} nodad"));
        given.expect("an address");
    }
    let [mut active, mut passive] = [Side::Near, Side::Far].map(|side| {
        let mut puppet = Puppet::start_in(&pair, side);
        puppet.order(&[order::LINK_LOCAL, 2]);
        puppet
    });
    let port = passive.ask(&[order::LISTEN, 0]);
    active.connect(&mut passive, port);
    assert_eq!(active.ask(&[order::INTERFACE]), 1, "its own address has an interface too");
    active.order(&[order::DISCONNECT]);
    passive.expect(event::DISCONNECTED);
    passive.order(&[order::DISCONNECT]);
    active.expect(event::DISCONNECTED);
    active.finish();
    passive.finish();
}

/// Rules: CM-36, CM-50
#[test]
fn a_port_is_one_process_s_until_that_ends() {
    let [mut one, mut other] = [(); 2].map(|()| Puppet::start(&[]));
    let port = one.ask(&[order::LISTEN, 0]);
    assert_eq!(other.ask(&[order::BIND, port]), libc::EADDRNOTAVAIL as u64);
    one.0.kill();
    assert_eq!(other.ask(&[order::BIND, port]), 0);
    other.finish();
}

//! Receiving: from datagrams to the packets of queue pairs.

use std::mem::discriminant;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;

use arrayvec::ArrayVec;
use parking_lot::MutexGuard;
use transom_system::addresses::gid;
use transom_system::registry::{Counters, Dropped};
use transom_wire::grh::Route;
use transom_wire::icrc::{self, Verdict};
use transom_wire::packet::Packet;

use super::{BATCH, Path, REFUSALS, Wire};
use crate::udp::{Arrivals, Datagrams, Undelivered};

/// More bursts than a socket holds, so this ends even if more keep coming.
const ALL: usize = 16_384;
/// How many packets a queue pair gets at once: a whole burst.
const TOGETHER: usize = 64;
/// A partition key without the bit for full members (rule PK-14).
const PARTITION: u16 = 0x7fff;

/// Packets of one service for one queue pair, all requests or all responses, from one burst.
type Group<'a> = ArrayVec<Packet<'a>, TOGETHER>;

/// Whether a packet goes to the queue pair together with these.
fn belongs(packet: &Packet<'_>, group: &[Packet<'_>]) -> bool {
    let kind = |packet: &Packet<'_>| {
        (packet.to, discriminant(&packet.transport), packet.operation.is_for_requester())
    };
    group.len() < TOGETHER && group.first().is_none_or(|first| kind(first) == kind(packet))
}

/// Where arrivals go.
pub trait Receiver {
    /// A datagram has arrived. It goes further unless `dropped` says why not.
    fn hear(&self, came: &Path, identification: u16, datagram: &[u8], dropped: Option<&str>);

    /// Packets have arrived. They are of one service, for one queue pair number, all requests or all responses, and
    /// from one address. There is at least one. `interface` is the one that they came by if their source is a
    /// link-local address, and zero otherwise, or if another process has handed them on.
    fn deliver(&self, packets: &[Packet<'_>], route: &Route, interface: u32);

    /// A datagram has reached nobody, or so the report says. Anybody can send such a report.
    fn undelivered(&self, it: &Undelivered<'_>);
}

/// How to take the arrivals.
#[derive(Clone, Copy, Debug)]
pub struct Reception {
    /// Acknowledgements may wait for a packet to leave with.
    pub acks_may_wait: bool,
    /// The caller comes again at once. So it takes a single burst, unless there were more the last time.
    pub comes_again: bool,
}

/// The right to take arrivals from the wire. One thread at a time has it, because packets must keep their order.
pub struct Turn<'a> {
    wire: &'a Wire,
    arrivals: MutexGuard<'a, Arrivals>,
}

impl Wire {
    /// The right to take arrivals, unless another thread has it.
    pub fn try_turn(&self) -> Option<Turn<'_>> {
        let arrivals = self.inbound.arrivals.try_lock()?;
        Some(Turn { wire: self, arrivals })
    }

    /// The same. Waits for a thread that has it.
    pub fn turn(&self) -> Turn<'_> {
        Turn { wire: self, arrivals: self.inbound.arrivals.lock() }
    }

    /// Whether a poll looks for arrivals now: always, unless messages come without packets.
    #[inline]
    pub fn is_looked_at_by_this_poll(&self) -> bool {
        self.inbound.looks.is_due()
    }

    /// Hands on arrivals, up to a limit. If another thread is doing it, leaves them to that one.
    pub fn receive(&self, receiver: &impl Receiver, reception: Reception) {
        let Reception { acks_may_wait, comes_again } = reception;
        let Some(mut turn) = self.try_turn() else { return self.give_way() };
        self.inbound.refused.store(0, Relaxed);
        self.delayed_ack.begin(acks_may_wait);
        let limit = if comes_again && !turn.arrivals.expect_more() { 1 } else { BATCH };
        turn.receive(receiver, limit);
    }

    /// Another thread is taking arrivals. It may have lost its processor, even to the caller, who polls and would keep
    /// it for milliseconds.
    fn give_way(&self) {
        if self.inbound.refused.fetch_add(1, Relaxed) % REFUSALS == REFUSALS - 1 {
            std::thread::yield_now();
        }
    }
}

impl Turn<'_> {
    /// Hands on everything that has arrived until now. No acknowledgement waits.
    pub fn receive_all(&mut self, receiver: &impl Receiver) {
        self.wire.delayed_ack.begin(false);
        self.receive(receiver, ALL);
    }

    fn receive(&mut self, receiver: &impl Receiver, limit: usize) {
        let wire = self.wire;
        // After an error of the socket itself there is nothing to take. The next call asks again.
        let take = |burst: Datagrams<'_>| wire.sort(&burst, receiver);
        if wire.port.receive(&mut self.arrivals, limit, take).is_ok_and(|bursts| bursts > 0) {
            wire.inbound.looks.always();
        }
    }
}

impl Wire {
    /// Makes packets of datagrams that came together, and hands on those that belong together.
    fn sort(&self, burst: &Datagrams<'_>, receiver: &impl Receiver) {
        let counters = self.counters();
        Counters::add(&counters.bytes_received, burst.bytes.len());
        let Some(path) = icrc::Path::new(burst.from.ip(), burst.from.port(), burst.to) else {
            return counters.drop(Dropped::Malformed, burst.iter().len());
        };
        let route = Route {
            source: gid(burst.from.ip()),
            destination: gid(burst.to),
            traffic_class: burst.tos,
            hop_limit: burst.ttl,
            flow_label: 0,
        };
        if self.instruments.outages.is_down() {
            return;
        }
        let interface = match burst.from {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(from) => from.scope_id(),
        };
        let came = Path {
            source: burst.from.ip(),
            destination: burst.to,
            traffic_class: burst.tos,
            hop_limit: burst.ttl,
            port: burst.from.port(),
            mtu: 0,
            interface: 0,
        };
        let mut icrcs = icrc::Series::new(path);
        let mut group = Group::new();
        // The datagram of the last packet of the group.
        let mut before: &[u8] = &[];
        for (number, datagram) in burst.iter().enumerate() {
            let likely = (burst.first + number) as u16;
            let identification = match icrcs.check(likely, datagram) {
                Verdict::Right => likely,
                Verdict::Identified(identification) => identification,
                Verdict::Wrong => {
                    counters.drop(Dropped::WrongIcrc, 1);
                    receiver.hear(&came, likely, datagram, Some("dropped: wrong ICRC"));
                    continue;
                }
            };
            // A packet that only continues the message is accepted as the one before was.
            let last = group.last().copied().filter(|_| group.len() < TOGETHER);
            let goes_on = last.and_then(|last| Some((last, last.continued(before, datagram)?)));
            if let Some((last, payload)) = goes_on {
                receiver.hear(&came, identification, datagram, None);
                before = datagram;
                group.push(Packet { psn: last.psn.plus(1), payload, ..last });
                continue;
            }
            let Ok(packet) = Packet::parse(datagram) else {
                counters.drop(Dropped::Malformed, 1);
                receiver.hear(&came, identification, datagram, Some("dropped: malformed"));
                continue;
            };
            receiver.hear(&came, identification, datagram, None);
            if packet.pkey & PARTITION != PARTITION {
                counters.drop(Dropped::OtherPartition, 1);
                continue;
            }
            // One that came with requests was delivered before them, because the requests may bring the queue pair into
            // error.
            let behind_requests =
                group.first().is_some_and(|first| !first.operation.is_for_requester());
            if behind_requests && packet.is_acknowledgement() {
                receiver.deliver(&[packet], &route, interface);
                continue;
            }
            if !belongs(&packet, &group) {
                receiver.deliver(&group, &route, interface);
                group.clear();
            }
            before = datagram;
            group.push(packet);
        }
        if !group.is_empty() {
            receiver.deliver(&group, &route, interface);
        }
    }
}

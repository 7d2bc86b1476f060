//! Receiving: from datagrams to the packets of queue pairs.

use std::mem::discriminant;
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

/// More bursts than a socket holds, unless more keep coming.
const ALL: usize = 16_384;
/// Packets handed to a queue pair at once: a whole burst.
const TOGETHER: usize = 64;
/// Without the bit that says full member (rule PK-14).
const PARTITION: u16 = 0x7fff;

/// Packets of one service for one queue pair, requests or responses, from one burst.
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
    /// A datagram has arrived, and goes further unless `dropped` says why not.
    fn hear(&self, came: &Path, identification: u16, datagram: &[u8], dropped: Option<&str>);

    /// Packets have arrived: of one service, for one queue pair number, all requests or all responses,
    /// from one address. There is at least one.
    fn deliver(&self, packets: &[Packet<'_>], route: &Route);

    /// A datagram has come to nobody, or so says whoever has sent word of it.
    fn undelivered(&self, it: &Undelivered<'_>);
}

/// How what has arrived is taken.
#[derive(Clone, Copy, Debug)]
pub struct Reception {
    /// Acknowledgements may wait for something to go out with.
    pub acks_may_wait: bool,
    /// Whoever takes it comes again at once: it takes a single burst, unless more were there the last time.
    pub comes_again: bool,
}

/// The right to take what has arrived over the wire: one at a time has it, for packets must keep their
/// order.
pub struct Turn<'a> {
    wire: &'a Wire,
    arrivals: MutexGuard<'a, Arrivals>,
}

impl Wire {
    /// The right to take what has arrived, unless another thread is at it.
    pub fn try_turn(&self) -> Option<Turn<'_>> {
        let arrivals = self.inbound.arrivals.try_lock()?;
        Some(Turn { wire: self, arrivals })
    }

    /// The same, after any other thread that is at it.
    pub fn turn(&self) -> Turn<'_> {
        Turn { wire: self, arrivals: self.inbound.arrivals.lock() }
    }

    /// Whether a poll looks for what has arrived now: always, unless messages come without packets.
    #[inline]
    pub fn is_looked_at_by_this_poll(&self) -> bool {
        self.inbound.looks.is_due()
    }

    /// Hands on what has arrived, though not without end. If another thread is at it, it is left to that
    /// one.
    pub fn receive(&self, receiver: &impl Receiver, reception: Reception) {
        let Reception { acks_may_wait, comes_again } = reception;
        let Some(mut turn) = self.try_turn() else { return self.give_way() };
        self.inbound.refused.store(0, Relaxed);
        self.delayed_ack.begin(acks_may_wait);
        let limit = if comes_again && !turn.arrivals.expect_more() { 1 } else { BATCH };
        turn.receive(receiver, limit);
    }

    /// Another thread is taking what has arrived. It may have lost its processor over it, to the caller
    /// even, who polls and would keep it for milliseconds.
    fn give_way(&self) {
        if self.inbound.refused.fetch_add(1, Relaxed) % REFUSALS == REFUSALS - 1 {
            std::thread::yield_now();
        }
    }
}

impl Turn<'_> {
    /// Hands on all that has arrived until now. No acknowledgement waits.
    pub fn receive_all(&mut self, receiver: &impl Receiver) {
        self.wire.delayed_ack.begin(false);
        self.receive(receiver, ALL);
    }

    fn receive(&mut self, receiver: &impl Receiver, limit: usize) {
        let wire = self.wire;
        // An error of the socket itself leaves nothing to take; the next call asks again.
        let take = |burst: Datagrams<'_>| wire.sort(&burst, receiver);
        if wire.port.receive(&mut self.arrivals, limit, take).is_ok_and(|bursts| bursts > 0) {
            wire.inbound.looks.always();
        }
    }
}

impl Wire {
    /// Makes packets of datagrams that came together, and hands on those that go together.
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
            // One that came with requests was given before them: they may fail the queue pair.
            let behind_requests =
                group.first().is_some_and(|first| !first.operation.is_for_requester());
            if behind_requests && packet.is_acknowledgement() {
                receiver.deliver(&[packet], &route);
                continue;
            }
            if !belongs(&packet, &group) {
                receiver.deliver(&group, &route);
                group.clear();
            }
            group.push(packet);
        }
        if !group.is_empty() {
            receiver.deliver(&group, &route);
        }
    }
}

//! Receiving: from datagrams to the packets of queue pairs.

use std::mem::discriminant;
use std::sync::atomic::Ordering::Relaxed;

use arrayvec::ArrayVec;
use transom_device::qp::{QpNumber, Service};
use transom_system::addresses::gid;
use transom_system::registry::{Counters, Dropped};
use transom_wire::grh::Route;
use transom_wire::icrc::{self, Verdict};
use transom_wire::packet::{Operation, Packet};

use super::{BATCH, Path, Wire};
use crate::adapter::Adapter;
use crate::link::udp::{Arrivals, Datagrams};
use crate::objects::Recipient;

/// More trains than a socket holds, unless more keep coming.
const ALL: usize = 16_384;
/// Packets handed to a queue pair at once: a whole train.
const TOGETHER: usize = 64;
/// Without the bit that says full member (rule PK-14).
const PARTITION: u16 = 0x7fff;

/// Packets of one service for one queue pair, requests or responses, from one train.
type Group<'a> = ArrayVec<Packet<'a>, TOGETHER>;

/// Whether a packet goes to the queue pair together with these.
fn belongs(packet: &Packet<'_>, group: &[Packet<'_>]) -> bool {
    let kind = |packet: &Packet<'_>| {
        (packet.to, discriminant(&packet.transport), packet.operation.is_for_requester())
    };
    group.len() < TOGETHER && group.first().is_none_or(|first| kind(first) == kind(packet))
}

impl Adapter {
    /// Carries out what has arrived over the wire. If another thread is at it, it is left to that
    /// one, for packets must keep their order. Acknowledgements may wait for something to go out
    /// with if `may_wait` says so.
    pub(crate) fn take_packets(&self, wire: &Wire, may_wait: bool) {
        let Some(mut arrivals) = wire.arrivals.try_lock() else { return wire.give_way() };
        wire.refused.store(0, Relaxed);
        wire.owed.begin(may_wait);
        self.take_trains(wire, &mut arrivals, BATCH);
    }

    /// Carries out all that has arrived over the wire until now, or is being carried out by another
    /// thread.
    pub(crate) fn take_all_packets(&self) {
        let Some(wire) = self.wire() else { return };
        let mut arrivals = wire.arrivals.lock();
        wire.owed.begin(false);
        self.take_trains(wire, &mut arrivals, ALL);
    }

    /// The same, unless another thread is at it.
    pub(crate) fn try_take_all_packets(&self) -> bool {
        let Some(wire) = self.wire() else { return true };
        let Some(mut arrivals) = wire.arrivals.try_lock() else { return false };
        wire.owed.begin(false);
        self.take_trains(wire, &mut arrivals, ALL);
        true
    }

    fn take_trains(&self, wire: &Wire, arrivals: &mut Arrivals, limit: usize) {
        // An error of the socket itself leaves nothing to take; the next call asks again.
        let take = |train: Datagrams<'_>| self.take_train(wire, &train);
        let _ = wire.port.receive(arrivals, limit, take);
    }

    fn take_train(&self, wire: &Wire, train: &Datagrams<'_>) {
        let counters = wire.counters();
        Counters::add(&counters.bytes_received, train.bytes.len());
        let Some(path) = icrc::Path::new(train.from.ip(), train.from.port(), train.to) else {
            return counters.drop(Dropped::Malformed, train.iter().len());
        };
        let route = Route {
            source: gid(train.from.ip()),
            destination: gid(train.to),
            traffic_class: train.tos,
            hop_limit: train.ttl,
            flow_label: 0,
        };
        if self.has_outage() {
            return;
        }
        let came = Path {
            source: train.from.ip(),
            destination: train.to,
            traffic_class: train.tos,
            hop_limit: train.ttl,
            port: train.from.port(),
            mtu: 0,
            interface: 0,
        };
        let mut icrcs = icrc::Series::new(path);
        let mut group = Group::new();
        for (number, datagram) in train.iter().enumerate() {
            let likely = (train.first + number) as u16;
            let identification = match icrcs.check(likely, datagram) {
                Verdict::Right => likely,
                Verdict::Identified(identification) => identification,
                Verdict::Wrong => {
                    counters.drop(Dropped::WrongIcrc, 1);
                    self.capture_arrival(&came, likely, datagram, Some("dropped: wrong ICRC"));
                    continue;
                }
            };
            let Ok(packet) = Packet::parse(datagram) else {
                counters.drop(Dropped::Malformed, 1);
                self.capture_arrival(&came, identification, datagram, Some("dropped: malformed"));
                continue;
            };
            self.capture_arrival(&came, identification, datagram, None);
            if packet.pkey & PARTITION != PARTITION {
                counters.drop(Dropped::OtherPartition, 1);
                continue;
            }
            // One that came with requests was given before them: they may fail the queue pair.
            let behind_requests =
                group.first().is_some_and(|first| !first.operation.is_for_requester());
            if behind_requests && packet.is_acknowledgement() {
                self.deliver(counters, &[packet], &route);
                continue;
            }
            if !belongs(&packet, &group) {
                self.deliver(counters, &group, &route);
                group.clear();
            }
            group.push(packet);
        }
        self.deliver(counters, &group, &route);
    }

    /// Gives packets to the queue pair they are for.
    fn deliver(&self, counters: &Counters, packets: &[Packet<'_>], route: &Route) {
        let Some(first) = packets.first() else { return };
        let to = QpNumber::from_bits(first.to);
        match Recipient::at(&route.destination, to) {
            Recipient::QueuePair => {}
            Recipient::Members => return self.deliver_to_members(counters, packets, route),
            Recipient::Nobody => return counters.drop(Dropped::WrongDestination, packets.len()),
        }
        let Some(qp) = self.qp(to.index()).filter(|qp| qp.number() == to) else {
            return counters.drop(Dropped::NoQueuePair, packets.len());
        };
        let why = match qp.take_packets(packets, route) {
            Taken::Yes => {
                let is_notice = |packet: &&Packet<'_>| packet.operation == Operation::Congestion;
                let notices = packets.iter().filter(is_notice).count();
                Counters::add(&counters.received, packets.len());
                return Counters::add(&counters.notifications_received, notices);
            }
            Taken::WrongService => Dropped::OtherService,
            Taken::WrongAddress => Dropped::OtherAddress,
        };
        counters.drop(why, packets.len());
    }

    /// Gives datagrams to all members of the group that they have come for.
    fn deliver_to_members(&self, counters: &Counters, packets: &[Packet<'_>], route: &Route) {
        let members = self.members(&route.destination);
        let taken = members.filter(|qp| qp.take_packets(packets, route) == Taken::Yes);
        match taken.count() {
            0 => counters.drop(Dropped::NoQueuePair, packets.len()),
            _ => Counters::add(&counters.received, packets.len()),
        }
    }
}

/// Whether queue pairs of a service take a packet at all (rule OP-32). Word of congestion is of no
/// service.
pub(crate) fn is_of(service: Service, packet: &Packet<'_>) -> bool {
    packet.operation == Operation::Congestion || service.serves(&packet.transport)
}

/// Whether a queue pair takes packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It does, whatever it makes of them.
    Yes,
    /// It is of another service, or has no packets.
    WrongService,
    /// It is connected to another address (rule NET-10).
    WrongAddress,
}

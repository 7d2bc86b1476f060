//! Receiving: from datagrams to the packets of queue pairs.

use std::mem::discriminant;

use transom_device::qp::{QpNumber, Service};
use transom_wire::grh::Route;
use transom_wire::icrc::{self, Verdict};
use transom_wire::packet::{Operation, Packet, Transport};

use super::{BATCH, Path};
use crate::adapter::Adapter;
use crate::addresses::gid;
use crate::link::udp::Datagrams;
use crate::registry::{Counters, Dropped};

/// Packets handed to a queue pair at once: a whole train.
const TOGETHER: usize = 64;
/// The queue pair number that names a multicast group's members (rule NET-12).
const MULTICAST: u32 = 0xff_ffff;
/// Without the bit that says full member (rule PK-14).
const PARTITION: u16 = 0x7fff;

/// What stands in an empty place.
const NOTHING: Packet<'static> = Packet {
    transport: Transport::Rc,
    operation: Operation::Congestion,
    solicited: false,
    migrated: false,
    pkey: 0,
    fecn: false,
    becn: false,
    to: 0,
    ack_request: false,
    psn: transom_wire::Psn::new(0),
    payload: &[],
};

/// Whether the sending half of a queue pair takes a packet: answers, and word of congestion.
pub(crate) fn is_for_requester(packet: &Packet<'_>) -> bool {
    packet.operation.is_response() || packet.operation == Operation::Congestion
}

/// Packets of one service for one queue pair, requests or responses, from one train.
struct Group<'a> {
    packets: [Packet<'a>; TOGETHER],
    count: usize,
}

impl<'a> Group<'a> {
    fn takes(&self, packet: &Packet<'a>) -> bool {
        let kind = |packet: &Packet<'_>| {
            (packet.to, discriminant(&packet.transport), is_for_requester(packet))
        };
        self.count == 0 || self.count < TOGETHER && kind(&self.packets[0]) == kind(packet)
    }

    fn add(&mut self, packet: Packet<'a>) {
        self.packets[self.count] = packet;
        self.count += 1;
    }
}

impl Adapter {
    /// Carries out what has arrived over the wire. If another thread is at it, it is left to that
    /// one, for packets must keep their order. True if there may be more.
    pub(crate) fn take_packets(&self) -> bool {
        let Some(wire) = self.wire() else { return false };
        let Some(mut arrivals) = wire.arrivals.try_lock() else { return false };
        let taken = wire.port.receive(&mut arrivals, BATCH, |train| self.take_train(&train));
        taken.is_ok_and(|taken| taken >= BATCH)
    }

    fn take_train(&self, train: &Datagrams<'_>) {
        let Some(wire) = self.wire() else { return };
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
        };
        let mut group = Group { packets: [NOTHING; TOGETHER], count: 0 };
        for (number, datagram) in train.iter().enumerate() {
            let likely = (train.first + number) as u16;
            let identification = match path.check(likely, datagram) {
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
            if !group.takes(&packet) {
                self.deliver(&group.packets[..group.count], &route);
                group.count = 0;
            }
            group.add(packet);
        }
        if group.count > 0 {
            self.deliver(&group.packets[..group.count], &route);
        }
    }

    /// Gives packets to the queue pair they are for.
    fn deliver(&self, packets: &[Packet<'_>], route: &Route) {
        let (Some(first), Some(wire)) = (packets.first(), self.wire()) else { return };
        let counters = wire.counters();
        let to = QpNumber::from_bits(first.to);
        let found = self.qp(to.index()).filter(|qp| qp.number() == to);
        let Some(qp) = found.filter(|_| first.to != MULTICAST) else {
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
}

/// Whether queue pairs of a service take a packet at all (rule OP-32). Word of congestion is of no
/// service.
pub(crate) fn is_of(service: Service, packet: &Packet<'_>) -> bool {
    packet.operation == Operation::Congestion
        || match packet.transport {
            Transport::Rc => service == Service::Rc,
            Transport::Uc => service == Service::Uc,
            Transport::Ud { .. } => service == Service::Ud,
            Transport::Xrc { .. } => {
                matches!(service, Service::XrcInitiator | Service::XrcTarget)
            }
        }
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

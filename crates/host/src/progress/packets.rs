//! Arrivals from the wire, and their recipients.

use tracing::debug;
use transom_device::execution::Unheard;
use transom_device::qp::QpNumber;
use transom_net::management::ManagementDatagram;
use transom_net::udp::{Obstacle, Undelivered};
use transom_net::{Path, Receiver};
use transom_system::addresses::ip;
use transom_system::clock;
use transom_system::registry::{Counters, Dropped};
use transom_wire::Psn;
use transom_wire::cm::{GSI_QKEY, GSI_QPN, MAD_BYTES};
use transom_wire::grh::Route;
use transom_wire::packet::{Ending, Operation, Packet, Transport};

use super::Dispatch;
use crate::objects::{Recipient, Taken};

impl Dispatch<'_> {
    /// Carries out everything that has arrived over the wire until now. Waits for a thread that is carrying some of it
    /// out.
    pub(super) fn take_all_packets(self) {
        if let Some(wire) = self.device().port().wire() {
            wire.turn().receive_all(&self);
        }
    }

    /// The same, unless another thread is doing it. Then false.
    pub(super) fn try_take_all_packets(self) -> bool {
        let Some(wire) = self.device().port().wire() else { return true };
        let turn = wire.try_turn();
        turn.map(|mut turn| turn.receive_all(&self)).is_some()
    }

    /// Gives management datagrams to the connection manager (rule CM-01).
    fn deliver_management(&self, counters: &Counters, packets: &[Packet<'_>], route: &Route) {
        let operation = Operation::SendOnly(Ending::Plain);
        let mut datagrams = Vec::with_capacity(packets.len());
        for packet in packets {
            let is_management = matches!(packet.transport, Transport::Ud { qkey: GSI_QKEY, .. });
            let mad: Result<&[u8; MAD_BYTES], _> = packet.payload.try_into();
            let mad = mad.ok().filter(|_| is_management && packet.operation == operation);
            let Some(mad) = mad.copied() else {
                counters.drop(Dropped::OtherService, 1);
                continue;
            };
            let (source, destination) = (ip(&route.source), ip(&route.destination));
            Counters::add(&counters.received, 1);
            datagrams.push(ManagementDatagram { source, destination, mad });
        }
        self.adapter.connections().deliver(&datagrams);
    }

    /// A request reached nobody. The queue pairs that wait for an answer from its destination are told, all of them:
    /// the system reports only few of the packets that reach nobody.
    fn nobody_took_request(self, it: &Undelivered<'_>, peer: QpNumber, psn: Psn) {
        let is_over = |from: QpNumber| match it.why {
            Obstacle::NoPort => true,
            Obstacle::NoProcess => from.slot() == peer.slot(),
            Obstacle::NoWay(_) | Obstacle::TooLong(_) => false,
        };
        // Anybody can send reports. Those that count come again.
        if !is_over(peer) || !self.device().work.reports.allows(clock::steady()) {
            return;
        }
        let all = self.adapter.queue_pairs.all();
        if all.iter().any(|qp| qp.waits_for_answer(it.destination, peer, psn)) {
            all.iter().for_each(|qp| qp.on_nobody_there(it.destination, is_over));
        }
    }

    /// Gives datagrams to all members of their group.
    fn deliver_to_members(&self, counters: &Counters, packets: &[Packet<'_>], route: &Route) {
        let members = self.adapter.groups.members(&route.destination);
        let taken = members.filter(|qp| qp.take_packets(packets, route, 0) == Taken::Yes);
        match taken.count() {
            0 => counters.drop(Dropped::NoQueuePair, packets.len()),
            _ => {
                Counters::add(&counters.received_by_groups, packets.len());
                Counters::add(&counters.received, packets.len());
            }
        }
    }
}

impl Receiver for Dispatch<'_> {
    fn hear(&self, came: &Path, identification: u16, datagram: &[u8], dropped: Option<&str>) {
        self.show_arrival(came, identification, datagram, dropped);
    }

    /// Gives packets to their queue pair.
    fn deliver(&self, packets: &[Packet<'_>], route: &Route, interface: u32) {
        let (Some(first), Some(wire)) = (packets.first(), self.device().port().wire()) else {
            return;
        };
        let counters = wire.counters();
        let to = QpNumber::from_bits(first.to);
        match Recipient::at(&route.destination, to) {
            Recipient::QueuePair => {}
            Recipient::Members => return self.deliver_to_members(counters, packets, route),
            Recipient::Nobody => return counters.drop(Dropped::WrongDestination, packets.len()),
        }
        if to.bits() == GSI_QPN {
            return self.deliver_management(counters, packets, route);
        }
        let Some(qp) = self.adapter.queue_pairs.get(to.index()).filter(|qp| qp.number() == to)
        else {
            self.adapter.queue_pairs.note_none(0, to.bits());
            return counters.drop(Dropped::NoQueuePair, packets.len());
        };
        let why = match qp.take_packets(packets, route, interface) {
            Taken::Yes => {
                Counters::add(&counters.received, packets.len());
                if first.operation.is_for_requester() {
                    let is_notice = |it: &&Packet<'_>| it.operation == Operation::Congestion;
                    let notices = packets.iter().filter(is_notice).count();
                    Counters::add(&counters.notifications_received, notices);
                    if !qp.slows_down() {
                        Counters::add(&counters.notifications_ignored, notices);
                    }
                }
                return;
            }
            Taken::WrongService => {
                qp.note_strange();
                Dropped::OtherService
            }
            Taken::WrongAddress => {
                qp.note_dropped(0, Unheard::OtherAddress(ip(&route.source)));
                Dropped::OtherAddress
            }
        };
        counters.drop(why, packets.len());
    }

    fn undelivered(&self, it: &Undelivered<'_>) {
        debug!(to = %it.destination, why = ?it.why, "a packet has come to nobody");
        if let Some((peer, psn)) = it.request() {
            return self.nobody_took_request(it, QpNumber::from_bits(peer), Psn::new(psn));
        }
        let message = it.datagram_for(GSI_QPN).and_then(|bytes| bytes.first_chunk());
        if let Some(message) = message {
            self.adapter.connections().undelivered(it.destination, it.why, message);
        }
    }
}

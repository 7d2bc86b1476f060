//! What arrives: bytes become packets, packets go to the queue pair and the half they are for.

use transom_wire::grh::Route;
use transom_wire::icrc::Verdict as Icrc;
use transom_wire::packet::{Packet, Transport};

use crate::model::{Arrived, At, Cause};
use crate::network::InFlight;
use crate::port::Port;
use crate::world::{Event, Shared, describe};

impl Shared {
    /// Takes all that arrives at a device now, of which one event has told, and has its queue pairs see
    /// it.
    pub fn arrive(&self, device: usize) -> Vec<At> {
        let mut datagrams = vec![self.arrival(device)];
        loop {
            let mut events = self.events.borrow_mut();
            let Some(first) = events.first_entry() else { break };
            let due = first.key().0 == self.now();
            if !due || !matches!(first.get(), Event::Arrive(to) if *to == device) {
                break;
            }
            first.remove();
            datagrams.push(self.arrival(device));
        }
        let packets: Vec<_> =
            datagrams.iter().filter_map(|packet| self.parse(device, packet)).collect();
        let mut touched = Vec::new();
        let mut rest = &packets[..];
        while let Some(first) = rest.first() {
            let same = |packet: &&Packet<'_>| {
                packet.to == first.to
                    && packet.operation.is_for_requester() == first.operation.is_for_requester()
                    && packet.transport == first.transport
            };
            // What is not RC comes one by one, so that the model can tell what belongs to what.
            let most = if first.transport == Transport::Rc { 64 } else { 1 };
            let count = rest.iter().take(most).take_while(same).count();
            let (batch, behind) = rest.split_at(count);
            rest = behind;
            touched.extend(self.deliver(device, batch));
        }
        touched
    }

    fn parse<'p>(&self, device: usize, packet: &'p InFlight) -> Option<Packet<'p>> {
        let InFlight { bytes, sent, .. } = packet;
        let right = self.path(1 - device).check(0, bytes) == Icrc::Right;
        let packet = if right { Packet::parse(bytes).ok() } else { None };
        if let Some(sent) = sent {
            self.model().counts.corrupted += 1;
            let flags =
                |packet: Packet<'_>| format!("{:?}", Packet { fecn: false, becn: false, ..packet });
            let same = packet.is_none() || packet.map(flags) == Packet::parse(sent).ok().map(flags);
            let verdict = same.then_some(()).ok_or_else(|| "a changed packet gets through".into());
            self.note(At { device, qp: 0 }, verdict);
        }
        if packet.is_none() {
            self.say(|| format!("{device} drops {} bytes", bytes.len()));
        }
        packet
    }

    /// The queue pair of a number.
    pub(crate) fn named(&self, device: usize, number: u32) -> Option<usize> {
        let qps = self.nodes[device].qps.borrow();
        qps.iter().position(|qp| qp.number.bits() == number)
    }

    /// Hands packets for one queue pair to the half they are for.
    fn deliver(&self, device: usize, packets: &[Packet<'_>]) -> Option<At> {
        let first = packets.first()?;
        let at = At { device, qp: self.named(device, first.to)? };
        let qp = self.nodes[device].qp(at.qp);
        let cause = if first.operation.is_for_requester() {
            Cause::Responses
        } else {
            let arrived = packets.iter().map(|packet| {
                self.arrivals.set(self.arrivals.get() + 1);
                let source = match packet.transport {
                    Transport::Ud { source, .. } => Some(source),
                    _ => None,
                };
                Arrived { arrival: self.arrivals.get(), psn: packet.psn, source }
            });
            Cause::Requests(arrived.collect())
        };
        self.say(|| {
            let all: Vec<_> = packets.iter().map(describe).collect();
            format!("{at} receives {}", all.join("; "))
        });
        let port = Port { shared: self, at, qp: &qp, cause: &cause };
        let mut endpoint = qp.endpoint.borrow_mut();
        if cause == Cause::Responses {
            self.model().heard(at, packets);
            endpoint.take_answers(&port, packets);
        } else {
            self.model().arrived(at, &cause);
            let from = Route {
                source: self.gid(1 - device),
                destination: self.gid(device),
                traffic_class: 0,
                hop_limit: 64,
                flow_label: 0,
            };
            endpoint.take_requests(&port, packets, &from);
        }
        Some(at)
    }
}

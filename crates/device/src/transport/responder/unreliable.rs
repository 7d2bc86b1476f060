//! Packets of services that answer nothing: UC and UD.

use transom_wire::grh::Route;
use transom_wire::packet::{Ending, Operation, Packet, Transport};

use super::segment::{self, Payloads, Segment};
use super::{Nowhere, PacketResponder, beginning};
use crate::execution::{Context, Process, Reply, Request, Responder};
use crate::qp::QpNumber;
use crate::queue::{Address, Body, Datagram, Remote};

/// By how many packets one may be late: more than a network holds back. A sender that restarts with a number below the
/// expected one is ignored for as many.
const LATE: u64 = 1024;

impl PacketResponder {
    /// Takes the first of these packets of an unreliable connection, and the following ones of its message. Returns how
    /// many. A lost packet takes the rest of its message with it (rules UC-01, OP-31), and a late packet counts as
    /// lost. A message whose number lies far behind is not late: its sender counts from a new start.
    pub(super) fn receive_unreliable<P: Process>(
        &mut self,
        responder: &mut Responder,
        packets: &[Packet<'_>],
        cx: &mut Context<'_, P>,
    ) -> usize {
        let packet = &packets[0];
        let mut extended_psn = self.extend(packet.psn);
        let late = self.expected_psn.saturating_sub(extended_psn);
        let begins = segment::carries_data(&packet.operation) && segment::begins(&packet.operation);
        if late > 0 && (late <= LATE || !begins) {
            return 1;
        }
        if late > 0 {
            // However often that happens, there are numbers before it.
            extended_psn = beginning(packet.psn);
        }
        if extended_psn != self.expected_psn || segment::begins(&packet.operation) {
            self.message = None;
        }
        self.expected_psn = extended_psn + 1;
        let summary = cx.summary;
        let admits = |packet: &Packet<'_>| self.admits(packet, summary);
        let gathered = Segment::gather(self.message, packets, self.mtu(), admits);
        let segment = match gathered {
            Ok(segment) if !matches!(segment.body, Body::SendInvalidate(_)) => segment,
            // UC invalidates nothing (rule INV-43).
            Ok(_) | Err(_) => {
                self.message = None;
                return 1;
            }
        };
        let count = segment.packets as usize;
        self.expected_psn = extended_psn + u64::from(segment.packets);
        self.message = (!segment.ends).then_some(segment.message);
        let mut payloads = Payloads { packets: &packets[..count], process: cx.process };
        let request = self.segment_request(packet, &segment, cx);
        let reply = responder.execute_in_order(&request, &mut payloads, &mut Nowhere, cx);
        if reply == Reply::Dropped {
            self.message = None;
        }
        count
    }

    /// Takes a datagram (rules G.7); it is one packet, so that is how many.
    pub(super) fn receive_datagram<P: Process>(
        &mut self,
        responder: &mut Responder,
        packet: &Packet<'_>,
        from: &Route,
        cx: &mut Context<'_, P>,
    ) -> usize {
        let Transport::Ud { qkey, source } = packet.transport else { return 1 };
        let body = match packet.operation {
            Operation::SendOnly(Ending::Plain) => Body::Send,
            Operation::SendOnly(Ending::Immediate(immediate)) => {
                Body::SendImmediate(immediate.to_be())
            }
            _ => return 1,
        };
        let length = packet.payload.len() as u64;
        if length > self.mtu() {
            return 1;
        }
        let address = Address {
            gid: from.destination,
            source: from.source,
            traffic_class: from.traffic_class,
            hop_limit: from.hop_limit,
            flow_label: from.flow_label,
        };
        let remote = Remote::Datagram(Datagram { pd: 0, address, qp: packet.to, qkey });
        let request = Request {
            from: QpNumber::from_bits(source),
            length,
            total: length,
            solicited: packet.solicited,
            ..self.request(remote, body, cx)
        };
        let packets = core::slice::from_ref(packet);
        let mut payloads = Payloads { packets, process: cx.process };
        let _ = responder.execute_in_order(&request, &mut payloads, &mut Nowhere, cx);
        1
    }
}

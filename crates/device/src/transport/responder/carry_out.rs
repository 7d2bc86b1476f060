//! Carries out the next packets in order, and turns down those that are not allowed.

use transom_wire::NakCode;
use transom_wire::packet::{Operation as Op, Packet, Reth, Transport};

use super::answer::psn;
use super::resources::{Answer, Resource};
use super::segment::{Payloads, Segment};
use super::{Nowhere, PacketResponder};
use crate::execution::{Bytes, Context, Process, Reply, Request, Responder, packets};
use crate::protection::{Key, Operation, Reason, RemoteAddress};
use crate::qp::Service;
use crate::queue::{Body, Placement, Remote};

/// The bit of FLUSH's selectivity that asks for the whole region.
const WHOLE_REGION: u8 = 1;

impl PacketResponder {
    /// Takes the next packets of a SEND or WRITE; answers how many.
    pub(super) fn take_segment<P: Process>(
        &mut self,
        responder: &mut Responder,
        packets: &[Packet<'_>],
        cx: &mut Context<'_, P>,
    ) -> usize {
        let summary = cx.summary;
        let admits = |packet: &Packet<'_>| self.admits(packet, summary);
        let mtu = self.mtu();
        let segment = match Segment::gather(self.message, packets, mtu, admits) {
            Ok(segment) => segment,
            Err(reason) => {
                self.reject(responder, &packets[0], reason, cx);
                return 1;
            }
        };
        let count = segment.packets as usize;
        let request = self.segment_request(&packets[0], &segment, cx);
        if self.waits(responder, &request, cx) {
            self.hold_back();
            return count;
        }
        let last = self.expected_psn + u64::from(segment.packets) - 1;
        let effects = cx.effects.len();
        let mut payloads = Payloads { packets: &packets[..count], process: cx.process };
        let reply = responder.execute_in_order(&request, &mut payloads, &mut Nowhere, cx);
        match reply {
            Reply::Ack => {
                self.message = None;
                self.msn = next_msn(self.msn);
            }
            Reply::Silence => self.message = Some(segment.message),
            other => {
                self.turn_down(other, cx);
                return count;
            }
        }
        self.expected_psn = last + 1;
        if segment.asked {
            // The program may end as soon as it sees the completion.
            let sent = reply == Reply::Ack
                && !self.resources.has_pending()
                && cx.effects.completes_after(effects);
            if sent {
                let acknowledgement = self.acknowledgement(last, self.msn, cx);
                cx.effects.respond_before(effects, acknowledgement);
            }
            match sent {
                true => self.acks.acknowledged(),
                false => self.acks.owe(last),
            }
        }
        count
    }

    /// A segment, as execution names it.
    pub(super) fn segment_request<P>(
        &self,
        packet: &Packet<'_>,
        segment: &Segment,
        cx: &Context<'_, P>,
    ) -> Request {
        let open = if segment.ends { segment.message.length } else { Request::OPEN };
        Request {
            offset: segment.offset,
            length: segment.length(),
            total: segment.message.total().unwrap_or(open),
            solicited: segment.solicited,
            ..self.request(remote(packet.transport), segment.body, cx)
        }
    }

    /// A request of no bytes.
    pub(super) fn request<P>(&self, remote: Remote, body: Body, cx: &Context<'_, P>) -> Request {
        Request {
            to: cx.number,
            from: cx.summary.peering().from,
            service: match self.service {
                Service::XrcTarget => Service::XrcInitiator,
                other => other,
            },
            remote,
            message: psn(self.expected_psn),
            attempt: 0,
            body,
            offset: 0,
            length: 0,
            total: 0,
            solicited: false,
        }
    }

    /// Takes the next packet if it is a request that is one packet always: READ, atomics, FLUSH.
    pub(super) fn take_other<P: Process>(
        &mut self,
        responder: &mut Responder,
        packet: &Packet<'_>,
        cx: &mut Context<'_, P>,
    ) {
        let (body, total) = match packet.operation {
            Op::ReadRequest(Reth { address, key, length }) => {
                (Body::Read { address, key: Key(key) }, u64::from(length))
            }
            Op::CompareSwap { address, key, swap, compare } => {
                (Body::CompareSwap { address, key: Key(key), swap, compare }, 8)
            }
            Op::FetchAdd { address, key, add } => {
                (Body::FetchAdd { address, key: Key(key), add }, 8)
            }
            Op::AtomicWrite(Reth { address, key, length }) => {
                (Body::AtomicWrite { address, key: Key(key) }, u64::from(length))
            }
            Op::Flush { placement, selectivity, reth: Reth { address, key, length } } => {
                let placement = Placement::from_bits_truncate(placement);
                let whole = selectivity & WHOLE_REGION != 0;
                (Body::Flush { address, key: Key(key), length, placement, whole }, 0)
            }
            // Part of a SEND or WRITE, an answer, or nothing.
            Op::SendFirst
            | Op::SendMiddle
            | Op::SendLast(_)
            | Op::SendOnly(_)
            | Op::WriteFirst(_)
            | Op::WriteMiddle
            | Op::WriteLast { .. }
            | Op::WriteOnly { .. }
            | Op::ReadResponseFirst(_)
            | Op::ReadResponseMiddle
            | Op::ReadResponseLast(_)
            | Op::ReadResponseOnly(_)
            | Op::Acknowledge(_)
            | Op::AtomicAcknowledge { .. }
            | Op::Reserved(_)
            | Op::Congestion => {
                return self.reject(responder, packet, Reason::PacketOrder, cx);
            }
        };
        if self.message.is_some() {
            return self.reject(responder, packet, Reason::PacketOrder, cx);
        }
        // More than the origin was told it may have under way; that it may have none is seen when
        // the request is carried out (rules RA-09, RA-10).
        let resources = usize::from(cx.summary.gate().read_resources);
        if resources > 0 && self.resources.outstanding() >= resources.min(self.resources.capacity())
        {
            return self.reject(responder, packet, Reason::NoReadResources, cx);
        }
        let carried = if body.carries_data() { total } else { 0 };
        let whole_word = body.operation().needs().word.is_none() || total == 8;
        if packet.payload.len() as u64 != carried || !whole_word {
            return self.reject(responder, packet, Reason::PacketLength, cx);
        }
        let remote = remote(packet.transport);
        let request = Request { total, ..self.request(remote, body, cx) };
        if self.waits(responder, &request, cx) {
            return self.hold_back();
        }
        let reply = match body {
            Body::Read { .. } => responder.accept_read(&request, cx),
            _ => {
                let mut bytes = Bytes { bytes: packet.payload, process: cx.process };
                responder.execute_in_order(&request, &mut bytes, &mut Nowhere, cx)
            }
        };
        let answer = match (reply, body) {
            (Reply::Ack, Body::Read { address, key }) => {
                Answer::Data { from: RemoteAddress { address, key }, length: total }
            }
            (Reply::Ack, _) => Answer::Done,
            (Reply::Atomic(old), _) => Answer::Old(old),
            (other, _) => return self.turn_down(other, cx),
        };
        let count = match answer {
            Answer::Data { length, .. } => packets(length, self.mtu()),
            _ => 1,
        };
        let srq = remote.srq().unwrap_or(0);
        self.msn = next_msn(self.msn);
        self.resources.push(Resource::new(self.expected_psn, count, self.msn, srq, answer));
        self.expected_psn += u64::from(count);
    }

    /// Answers a packet that is wrong in itself or in its place.
    fn reject<P: Process>(
        &mut self,
        responder: &mut Responder,
        packet: &Packet<'_>,
        reason: Reason,
        cx: &mut Context<'_, P>,
    ) {
        if self.resources.has_pending() && reason != Reason::NoReadResources {
            return self.hold_back();
        }
        // A packet with an undefined opcode is judged like one that may mean anything: a SEND (rule OP-33).
        let asked = packet.operation.opcode().and_then(Operation::of_packet);
        let operation = asked.unwrap_or(Operation::Send);
        let body = match packet.operation {
            Op::WriteLast { immediate: immediate @ Some(_) }
            | Op::WriteOnly { immediate: immediate @ Some(_), .. } => {
                Body::Write { address: 0, key: Key(0), immediate }
            }
            _ => Body::Send,
        };
        let length = packet.payload.len() as u64;
        let request = self.request(remote(packet.transport), body, cx);
        let request = Request { length, total: length, ..request };
        let reply = responder.reject(&request, operation, reason, cx);
        self.turn_down(reply, cx);
    }

    /// The next packet has not been carried out.
    fn turn_down<P>(&mut self, reply: Reply, cx: &mut Context<'_, P>) {
        match reply {
            // The origin would take it for the loss of an answer that it still waits for.
            Reply::NotReady(timer) if self.resources.has_pending() => {
                self.acks.hold_back_for(self.expected_psn, timer);
            }
            Reply::NotReady(timer) => self.answer_not_ready(timer, cx),
            Reply::Nak { code, .. } => self.refuse(self.expected_psn, code, cx),
            _ => {}
        }
    }

    /// Whether a request has to wait until the pending answers have gone out: it takes away a key that READs before it
    /// still use (rule ORD-19), or its refusal would drop their answers.
    fn waits<P: Process>(
        &self,
        responder: &mut Responder,
        request: &Request,
        cx: &mut Context<'_, P>,
    ) -> bool {
        self.resources.has_pending()
            && (matches!(request.body, Body::SendInvalidate(_))
                || responder.would_refuse(request, cx))
    }

    /// The next packet has to come again, when the pending answers have gone out.
    fn hold_back(&mut self) {
        self.acks.hold_back(self.expected_psn);
    }

    /// The packet of this number is refused, and the queue pair in error.
    pub(super) fn refuse<P>(&mut self, extended_psn: u64, code: NakCode, cx: &mut Context<'_, P>) {
        self.message = None;
        self.acks.give_up();
        self.resources.forget_pending();
        self.answer_refused(extended_psn, code, cx);
    }
}

fn next_msn(msn: u32) -> u32 {
    (msn + 1) & 0xff_ffff
}

/// Whom a request of this transport service is for.
fn remote(transport: Transport) -> Remote {
    match transport {
        Transport::Xrc { srq } => Remote::Srq(srq),
        _ => Remote::Connected,
    }
}

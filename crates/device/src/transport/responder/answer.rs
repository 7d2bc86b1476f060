//! Answers: what goes back to the origin, in the order of its requests.

use transom_wire::packet::{Aeth, Operation, Packet, Transport};
use transom_wire::{NakCode, Psn, RnrTimer, Syndrome};

use super::PacketResponder;
use super::resources::{Answer, Resource};
use crate::execution::{Context, Counted, Process, Reply, Request, packets};
use crate::protection::RemoteAddress;
use crate::qp::Service;
use crate::queue::{Body, Remote};
use crate::transport::{NextAnswer, ReadAnswer, ResponseBurst};

/// An acknowledgement that says nothing of credits (rule ACK-03).
const NO_CREDITS: Syndrome = Syndrome::Ack { credits: 0x1f };

impl PacketResponder {
    /// Sends everything that is due after the answers of [`PacketResponder::next_answer`], if none of them waits: the
    /// acknowledgement of the last packet, or the NAK about a missing one.
    pub fn acknowledge<P>(&mut self, cx: &mut Context<'_, P>) {
        let may_go = |extended_psn| !self.resources.has_pending_before(extended_psn);
        if let Some(extended_psn) = self.acks.take_due(may_go) {
            // Up to the next answer of another kind (rule PSN-23).
            let end = self.resources.end_from(extended_psn, self.expected_psn);
            cx.effects.respond(self.acknowledgement(end, self.msn, cx));
        }
        if self.resources.has_pending() {
            return;
        }
        let Some((lost, not_ready)) = self.acks.take_lost() else { return };
        if lost < self.expected_psn || !cx.summary.gate().receives() {
            return;
        }
        match not_ready {
            Some(timer) => self.answer_not_ready(timer, cx),
            None => {
                self.acks.fall_silent();
                self.answer_refused(self.expected_psn, NakCode::SequenceError, cx);
            }
        }
    }

    /// The oldest pending answer to a READ, an atomic or a similar request, if the link has room for so many packets.
    /// For a READ it is a burst of data; the caller reports the result with [`PacketResponder::sent`]. Then it asks
    /// again.
    pub fn next_answer<P>(&mut self, room: usize, cx: &mut Context<'_, P>) -> NextAnswer {
        let oldest = self.resources.oldest_pending().copied();
        let Some(resource) = oldest.filter(|_| room > 0) else { return NextAnswer::Nothing };
        // It acknowledges what came before it (rule ACK-05).
        self.acks.answered(resource.at);
        let aeth = aeth(NO_CREDITS, resource.msn);
        let operation = match resource.answer {
            Answer::Data { from, .. } => {
                return NextAnswer::Data(self.read_answer(&resource, from, room, cx));
            }
            Answer::Old(old) => Operation::AtomicAcknowledge { aeth, old },
            Answer::Done => Operation::ReadResponseOnly(aeth),
        };
        cx.effects.respond(self.packet(operation, resource.at, cx));
        self.resources.answered(1, true);
        NextAnswer::Packet
    }

    /// The next burst of the answer to a READ.
    fn read_answer<P>(
        &self,
        resource: &Resource,
        from: RemoteAddress,
        room: usize,
        cx: &Context<'_, P>,
    ) -> ReadAnswer {
        let (range, mtu) = (resource.range, self.mtu());
        let offset = u64::from(range.next) * mtu;
        let room = (room as u64).saturating_mul(mtu);
        let length = self.link.segment_of(range.end.saturating_sub(offset)).min(room);
        let burst = ResponseBurst {
            psn: psn(resource.at + u64::from(range.next)),
            length,
            begins: range.next == range.first,
            ends: offset + length >= range.end,
            msn: resource.msn,
        };
        let remote = match self.service {
            Service::XrcTarget => Remote::Srq(resource.srq),
            _ => Remote::Connected,
        };
        let body = Body::Read { address: from.address, key: from.key };
        let request = self.request(remote, body, cx);
        let request = Request { offset, length, total: range.end, ..request };
        ReadAnswer { burst, request, again: resource.answered }
    }

    /// The result for the part of an answer that [`PacketResponder::next_answer`] has handed out: the reply of
    /// [`ReadAnswer::fetch`], or [`Reply::Silence`] if there was no room for all of it. Returns whether the caller may
    /// ask for another.
    pub fn sent<P: Process>(
        &mut self,
        answer: &ReadAnswer,
        reply: Reply,
        cx: &mut Context<'_, P>,
    ) -> bool {
        let Some(resource) = self.resources.oldest_pending().copied() else { return false };
        match reply {
            Reply::Data { .. } => {}
            // A requester that has the data already ignores the NAK.
            Reply::Nak { code, .. } if answer.again => {
                let at = resource.at + u64::from(resource.range.next);
                self.answer_refused(at, code, cx);
                self.resources.answered(0, true);
                return true;
            }
            Reply::Nak { code, .. } => {
                self.refuse(resource.at + u64::from(resource.range.next), code, cx);
                return false;
            }
            // It waits for room.
            Reply::Silence => return false,
            _ => {
                self.resources.forget_pending();
                return false;
            }
        }
        if let Answer::Data { length: read, .. } = resource.answer
            && answer.burst.ends
            && !resource.answered
        {
            cx.process.count(Counted::REMOTE_READ, Some(read));
            cx.process.has_served(crate::operation::Operation::Read, read);
        }
        self.resources.answered(packets(answer.burst.length, self.mtu()), answer.burst.ends);
        true
    }

    /// The acknowledgement of all that has come, if it is not the answer to a READ or an atomic that
    /// says so.
    pub fn last_acknowledgement<P>(&self, cx: &Context<'_, P>) -> Option<Packet<'static>> {
        let last = self.expected_psn.checked_sub(1).filter(|last| *last >= self.first)?;
        let said = !self.resources.has_pending()
            && !self.resources.holds(last)
            && self.service.is_reliable();
        said.then(|| self.acknowledgement(last, self.msn, cx))
    }

    /// The acknowledgement of all up to `extended_psn`.
    pub(super) fn acknowledgement<P>(
        &self,
        extended_psn: u64,
        msn: u32,
        cx: &Context<'_, P>,
    ) -> Packet<'static> {
        self.packet(Operation::Acknowledge(aeth(NO_CREDITS, msn)), extended_psn, cx)
    }

    /// The receiver is not ready for the next packet (rule RN-01).
    pub(super) fn answer_not_ready<P>(&mut self, timer: RnrTimer, cx: &mut Context<'_, P>) {
        self.acks.fall_silent();
        self.acks.acknowledged();
        let aeth = aeth(Syndrome::RnrNak(timer), self.msn);
        cx.effects.respond(self.packet(Operation::Acknowledge(aeth), self.expected_psn, cx));
    }

    /// The packet of this number is not accepted (rule ACK-02).
    pub(super) fn answer_refused<P>(
        &self,
        extended_psn: u64,
        code: NakCode,
        cx: &mut Context<'_, P>,
    ) {
        let aeth = aeth(Syndrome::Nak(code), self.msn);
        cx.effects.respond(self.packet(Operation::Acknowledge(aeth), extended_psn, cx));
    }

    fn packet<P>(
        &self,
        operation: Operation,
        extended_psn: u64,
        cx: &Context<'_, P>,
    ) -> Packet<'static> {
        let transport = match self.service {
            Service::XrcTarget => Transport::Xrc { srq: 0 },
            _ => Transport::Rc,
        };
        Packet::new(transport, operation, cx.summary.peering().from.bits(), psn(extended_psn))
    }
}

/// The number that a packet of this extended PSN carries.
pub(super) fn psn(extended_psn: u64) -> Psn {
    Psn::new(extended_psn as u32)
}

fn aeth(syndrome: Syndrome, msn: u32) -> Aeth {
    Aeth { byte: syndrome.to_byte(), msn: msn & 0xff_ffff }
}

//! Messages that take a posted receive: SEND, WRITE with immediate, datagrams.

use core::slice;

use transom_wire::NakCode;
use transom_wire::grh::{GRH_BYTES, mapped_ipv4};

use super::super::{
    Context, Effect, Effects, LocalBuffers, PlainSend, Process, QpEvent, QueueSide, Reply, Request,
    Source, TakeShared, Tally, Unheard,
};
use super::placement::Misplaced;
use super::tag_matching::Extent;
use super::{FLUSHED_AT_ONCE, Responder};
use crate::protection::{Attempt, Key, Operation, Reason, Refusal, Stamp, invalidate};
use crate::qp::{QpState, Service};
use crate::queue::{
    Completion, Flags, Opcode, PostError, Receive, ReceiveQueue, ReceiveRequest, Remote, Status,
    TagPart, Take,
};

impl Responder {
    /// Posts a receive to the queue pair's own queue.
    pub fn post<P: Process>(
        &mut self,
        request: &ReceiveRequest<'_>,
        cx: &mut Context<'_, P>,
    ) -> Result<(), PostError> {
        let state = cx.summary.gate().state;
        if state == QpState::Reset {
            return Err(PostError::WrongState);
        }
        // With a shared queue, or on the end of XRC that only sends (rule PS-11).
        let Some(queue) = self.receives.own_mut() else { return Err(PostError::WrongService) };
        queue.post(request)?;
        if state == QpState::Error {
            self.flush(cx);
        } else {
            cx.process.receives_wait(queue.len());
        }
        Ok(())
    }

    /// Completes the receives that are the queue pair's as flushed; those of a shared queue stay
    /// there (rules ST-19, ST-22). If it does not complete all, [`Effect::Flush`] asks for another call.
    pub fn flush<P: Process>(&mut self, cx: &mut Context<'_, P>) {
        self.flush_rendezvous(cx);
        let posted = self.receives.own().map_or(0, ReceiveQueue::len);
        let all = posted + usize::from(self.message.has_taken);
        let flushed = all.min(FLUSHED_AT_ONCE);
        if all > 0 {
            cx.process.note_flushed(QueueSide::Receive, all as u64);
        }
        for _ in 0..flushed {
            if !self.message.has_taken
                && let Some(queue) = self.receives.own_mut()
            {
                queue.take(0, &mut self.message.taken);
            }
            self.flush_taken(cx);
        }
        self.message.progress = 0;
        if flushed < all {
            return cx.effects.push(Effect::Flush(QueueSide::Receive));
        }
        if self.receives.ends() {
            cx.effects.event(QpEvent::LastWqeReached);
        }
    }

    fn flush_taken<P: Process>(&mut self, cx: &mut Context<'_, P>) {
        if core::mem::take(&mut self.message.has_taken) {
            self.forget_unexpected(cx.effects);
        }
        let completion = self.completion(cx, Status::Flushed, self.receive_opcode());
        self.hand_over(completion, false, cx);
    }

    /// The receive of the message under way ends without a completion: a shared queue it came from has its place
    /// back.
    pub(super) fn give_up_shared(&self, effects: &mut Effects) {
        let Receive { part, srq, .. } = self.message.taken;
        if self.receives.own().is_none() && part != TagPart::Matched {
            effects.push(Effect::GiveUpShared { srq });
        }
    }

    /// Forgets the receive of the message under way if it came from this shared queue, because the queue is gone.
    pub fn forget_shared(&mut self, srq: u32) {
        self.message.has_taken &= self.message.taken.srq != Some(srq);
    }

    /// Takes a receive with room for `least` bytes for the message, if none is taken yet. If the message has a tag, it
    /// is the receive that waits for the tag.
    pub(super) fn take<P: Process>(
        &mut self,
        request: &Request,
        tag: Option<u64>,
        least: u64,
        cx: &mut Context<'_, P>,
    ) -> Result<(), NoReceive> {
        let named = match request.remote {
            Remote::Srq(number) => Some(number),
            _ => None,
        };
        if self.message.has_taken
            && named.is_some_and(|named| self.message.taken.srq != Some(named))
        {
            // Left over from a message whose sender failed, and not of the queue this one names.
            self.flush_taken(cx);
        }
        if self.message.has_taken {
            // Left over from a datagram whose sender failed, it may be too small for this one.
            let fits = self.message.taken.length >= least;
            let room = self.message.taken.length;
            return if fits { Ok(()) } else { Err(NoReceive::TooSmall { room }) };
        }
        let found = match self.receives.own_mut() {
            Some(queue) => {
                self.message.taken.pd = cx.summary.gate().pd;
                TakeShared::Found(queue.take(least, &mut self.message.taken))
            }
            None => cx.process.take_shared(named, tag, least, &mut self.message.taken),
        };
        match found {
            TakeShared::Found(Take::Taken) => {
                self.message.has_taken = true;
                cx.process.has_taken(&mut self.message.taken, request);
                Ok(())
            }
            TakeShared::Found(Take::Empty) => Err(NoReceive::NotReady),
            TakeShared::Found(Take::TooSmall { room }) => Err(NoReceive::TooSmall { room }),
            TakeShared::Unknown => Err(NoReceive::UnknownQueue),
        }
    }

    /// Answers a message that gets no receive. Reliable services ask to try again, others drop it
    /// (rules RN-01, UC-03, UD-04, SQ-06).
    pub(super) fn without_receive<P: Process>(
        &mut self,
        why: NoReceive,
        request: &Request,
        cx: &mut Context<'_, P>,
    ) -> Reply {
        // Packets of a reliable message that came before this one have been carried out, and do not
        // come again (rule RA-12).
        if !self.service.is_reliable() {
            self.message.progress = 0;
        }
        match why {
            NoReceive::UnknownQueue => {
                let attempt = self.attempt(Operation::Send, request.known(), cx);
                self.refuse(&Refusal::without_object(Reason::UnknownSrq, attempt), cx)
            }
            NoReceive::NotReady if self.service == Service::XrcTarget => {
                self.not_ready(cx.summary.reception().1, cx)
            }
            NoReceive::NotReady if self.service.is_reliable() => {
                self.not_ready(self.min_rnr_timer, cx)
            }
            NoReceive::NotReady => {
                cx.process.tally(Tally::NoReceive, 1);
                cx.process.note_unheard(request.from, Unheard::NoReceive);
                Reply::Dropped
            }
            // Only datagrams ask for room. A datagram that finds none is lost.
            NoReceive::TooSmall { room } => {
                let needed = GRH_BYTES as u64 + request.total;
                cx.process.note_unheard(request.from, Unheard::TooSmall { needed, room });
                Reply::Dropped
            }
        }
    }

    /// Carries out a SEND if it is plain here too: the next in order, for a receive of one buffer that it fits, with
    /// everything allowed. Returns the completion of its receive, which is due after the acknowledgement. `None` if
    /// nothing has happened, except that some of its bytes may be in the receive; then [`Responder::execute`] has to
    /// decide. The caller knows that nobody injects.
    #[inline]
    pub fn receive_at_once<P: Process>(
        &mut self,
        send: &PlainSend,
        source: &mut impl Source,
        cx: &Context<'_, P>,
    ) -> Option<Completion> {
        let (gate, peering) = (cx.summary.gate(), cx.summary.peering());
        let next = send.message == self.expected_psn
            && self.message.progress == 0
            && !self.message.has_taken;
        let for_here = gate.receives()
            && gate.service == Service::Rc
            && peering.from == send.from
            && peering.established;
        if !next || !for_here {
            return None;
        }
        let queue = self.receives.own_mut()?;
        let (wr_id, buffer) = queue.oldest_of_one()?;
        if send.length > u64::from(buffer.length) {
            return None;
        }
        let buffers = LocalBuffers {
            sges: slice::from_ref(buffer),
            keys: cx.process.keys(),
            announcer: cx.process.announcer(),
            waiter: cx.process.waiter(),
            qp: cx.number.bits(),
            pd: gate.pd,
        };
        let grant = buffers.grant_first(Operation::LocalWrite, buffer, send.length)?;
        source.copy_to(0, &grant).ok()?;
        drop(grant);
        queue.pop();
        self.expected_psn = send.message.plus(1);
        let mut completion =
            Completion::new(wr_id, Status::Success, Opcode::Receive, cx.number.bits());
        completion.byte_length = send.length as u32;
        completion.places = 1;
        cx.process.has_served(Operation::Send, send.length);
        Some(completion)
    }

    pub(super) fn send<P: Process>(
        &mut self,
        request: &Request,
        immediate: Option<u32>,
        key: Option<Key>,
        source: &mut dyn Source,
        cx: &mut Context<'_, P>,
    ) -> Reply {
        let datagram = match request.remote {
            Remote::Datagram(datagram) => Some(datagram),
            _ => None,
        };
        let front = if datagram.is_some() { GRH_BYTES as u64 } else { 0 };
        let least = if datagram.is_some() { front + request.total } else { 0 };
        let Ok(tag) = self.read_tag(request, source) else { return Reply::OriginFailed };
        if self.is_crowded() {
            return self.without_receive(NoReceive::NotReady, request, cx);
        }
        if let Err(why) = self.take(request, tag, least, cx) {
            return self.without_receive(why, request, cx);
        }
        let Extent { skip, needed } = self.extent(request.known());
        if needed > self.message.taken.length {
            let attempt = self.attempt(Operation::Send, needed, cx);
            let mut refusal = Refusal::without_object(Reason::ReceiveTooSmall, attempt);
            refusal.object.length = self.message.taken.length;
            refusal.object.pd = self.message.taken.pd;
            return self.fail_receive(&refusal, Status::LocalLength, cx);
        }
        let placed = self
            .place_grh(datagram.as_ref(), request.total, cx)
            .and_then(|()| self.place(front, skip, request, source, cx));
        match placed {
            Ok(()) => {}
            Err(Misplaced::Process) => return Reply::OriginFailed,
            Err(Misplaced::Here(refusal)) => {
                return self.fail_receive(&refusal, Status::LocalProtection, cx);
            }
        }
        self.message.progress += request.length;
        if !request.is_last() {
            return Reply::Silence;
        }
        if let Some(key) = key
            && let Err(refusal) = self.invalidate(key, cx)
        {
            // Class J: the program is told, the peer is not (rule INV-35).
            self.fail_receive(&refusal, Status::WindowBind, cx);
            return Reply::Dropped;
        }
        cx.process.has_served(Operation::Send, request.total);
        if key.is_some() {
            cx.process.tally(Tally::InvalidatedByPeer, 1);
        }
        let mut completion = self.completion(cx, Status::Success, self.receive_opcode());
        completion.byte_length = (front + request.total - skip) as u32;
        if let Some(immediate) = immediate {
            completion.immediate = immediate;
            completion.flags = Flags::IMMEDIATE;
        } else if let Some(key) = key {
            completion.immediate = key.0;
            completion.flags = Flags::INVALIDATED;
        }
        if let Some(datagram) = &datagram {
            cx.process.has_delivered(datagram);
            completion.source_qp = request.from.bits();
            completion.flags |= Flags::GRH;
            completion.flags.set(Flags::IPV4, mapped_ipv4(&datagram.address.gid).is_some());
        }
        self.describe(&mut completion);
        self.prepare_rendezvous(request.solicited, cx);
        self.consume(completion, request.solicited, cx)
    }

    pub(super) fn attempt<P>(
        &self,
        operation: Operation,
        length: u64,
        cx: &Context<'_, P>,
    ) -> Attempt {
        let (qp, pd) = (cx.number.bits(), cx.summary.gate().pd);
        Attempt { operation, key: Key(0), address: 0, length, qp, pd }
    }

    fn invalidate<P: Process>(&self, key: Key, cx: &mut Context<'_, P>) -> Result<(), Refusal> {
        let stamp = Stamp { qp: cx.number.bits(), pd: cx.summary.gate().pd, wr_id: 0, now: 0 };
        let operation = Operation::RemoteInvalidate;
        invalidate(
            &cx.process.keys(),
            &cx.process.qps(),
            operation,
            key,
            &stamp,
            cx.process.waiter(),
            cx.process.witness(),
        )
    }

    /// The message is done and completes the receive it took.
    pub(super) fn consume<P: Process>(
        &mut self,
        completion: Completion,
        solicited: bool,
        cx: &mut Context<'_, P>,
    ) -> Reply {
        self.message.has_taken = false;
        let reply = self.done(cx);
        self.hand_over(completion, solicited, cx);
        reply
    }

    /// Refuses a WRITE with immediate that has a receive: the receive carries the news, so no event
    /// does (rules RA-46, AE-08).
    pub(super) fn spoil_receive<P: Process>(
        &mut self,
        refusal: &Refusal,
        cx: &mut Context<'_, P>,
    ) -> Reply {
        if self.service == Service::Uc {
            return self.refuse(refusal, cx);
        }
        self.note(refusal, cx);
        let mut completion =
            self.completion(cx, Status::LocalAccess, Opcode::ReceiveWriteImmediate);
        completion.vendor_error = refusal.reason.code();
        self.message.has_taken = false;
        self.hand_over(completion, false, cx);
        self.fall(cx);
        Reply::Nak { code: refusal.reason.nak(), reason: refusal.reason.code() }
    }

    /// Whether the receive that a reliable message is to have cannot take it. Which one that is with
    /// tags is only known when it is carried out.
    pub(super) fn would_fail_receive<P: Process>(
        &mut self,
        request: &Request,
        cx: &mut Context<'_, P>,
    ) -> bool {
        if self.receives.matching().is_some() {
            return false;
        }
        match self.take(request, None, 0, cx) {
            Ok(()) => {
                let too_long = request.known() > self.message.taken.length;
                too_long || self.buffers(cx).check(Operation::LocalWrite).is_err()
            }
            Err(why) => why == NoReceive::UnknownQueue,
        }
    }

    /// The receive itself cannot take the message (rules RA-52, RA-53, LA-02).
    pub(super) fn fail_receive<P: Process>(
        &mut self,
        refusal: &Refusal,
        status: Status,
        cx: &mut Context<'_, P>,
    ) -> Reply {
        cx.process.note_refusal(refusal);
        let mut completion = self.completion(cx, status, self.receive_opcode());
        completion.vendor_error = refusal.reason.code();
        self.message.has_taken = false;
        self.forget_unexpected(cx.effects);
        self.hand_over(completion, false, cx);
        self.fall(cx);
        let code = match status {
            Status::LocalLength => NakCode::InvalidRequest,
            _ => NakCode::RemoteOperational,
        };
        if self.service.is_reliable() {
            Reply::Nak { code, reason: refusal.reason.code() }
        } else {
            Reply::Dropped
        }
    }

    fn hand_over<P: Process>(
        &self,
        completion: Completion,
        solicited: bool,
        cx: &mut Context<'_, P>,
    ) {
        if completion.status != Status::Success {
            let kinds = [Some(Tally::ReceiveFailed), Tally::of_receive(completion.status)];
            kinds.into_iter().flatten().for_each(|kind| cx.process.tally(kind, 1));
        }
        match self.message.taken.srq {
            Some(srq) => cx.effects.push(Effect::CompleteShared { srq, completion, solicited }),
            None => cx.effects.complete(completion, solicited),
        }
    }

    pub(super) fn completion<P: Process>(
        &self,
        cx: &mut Context<'_, P>,
        status: Status,
        opcode: Opcode,
    ) -> Completion {
        let Receive { wr_id, part, .. } = self.message.taken;
        // A tagged buffer has no place in the queue.
        let places = u32::from(part != TagPart::Matched);
        Completion { places, ..Completion::new(wr_id, status, opcode, cx.number.bits()) }
    }
}

/// Why no receive was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoReceive {
    /// None is posted.
    NotReady,
    /// The oldest is too small for the datagram.
    TooSmall {
        /// The room that it has.
        room: u64,
    },
    /// The message names a shared queue that is not there.
    UnknownQueue,
}

//! The completer: takes replies and completes posted work in order (rules ORD-02, ORD-28).

use tracing::debug;
use transom_wire::{NakCode, Psn, RnrTimer};

use super::super::retry::Verdict;
use super::super::{
    Bytes, Context, CopyError, Counted, Effect, Failure, Process, QpEvent, QueueSide, Reply,
    Source, Tally, Why, packets,
};
use super::wqe::{Part, Progress, opcode};
use super::{Pause, Requester, buffers, completion};
use crate::operation::Data;
use crate::protection::{Operation, Reason, Refusal};
use crate::qp::QpState;
use crate::queue::{SendFlags, Status};

impl Requester {
    /// Completes everything posted as flushed, in order.
    pub fn flush<P: Process>(&mut self, cx: &mut Context<'_, P>) {
        if !self.ring.is_empty() {
            cx.process.note_flushed(QueueSide::Send, self.ring.len() as u64);
        }
        while !self.ring.is_empty() {
            self.complete_head(cx, Status::Flushed, 0);
        }
        self.under_way.attempt += 1;
        self.under_way.reading = 0;
        self.flight.stop_clock();
        self.pause = Pause::default();
        self.meant_to_fail = None;
    }

    /// UC and UD: done when the last segment has left (rule UC-02).
    pub(super) fn complete_unacknowledged<P: Process>(&mut self, cx: &mut Context<'_, P>) {
        while self.ring.head() < self.under_way.next {
            let length = self.ring.at(self.ring.head()).length;
            self.complete_head(cx, Status::Success, length);
        }
    }

    /// Takes a reply. Replies come in the order of the requests. A reply to an abandoned attempt is ignored (rule
    /// PSN-24). `data` has the result of a READ or atomic, if it is not in place yet.
    pub fn on_reply<P: Process>(
        &mut self,
        message: Psn,
        attempt: u64,
        reply: Reply,
        data: Option<&mut dyn Source>,
        cx: &mut Context<'_, P>,
    ) {
        if attempt != self.under_way.attempt || !self.is_started(message) {
            return;
        }
        if !self.fits(reply) {
            return self.fail_head(cx, Status::BadResponse, Why::BadResponse);
        }
        match reply {
            Reply::Silence => {}
            Reply::Ack => self.finish_head(cx),
            Reply::Atomic(old) => self.store_atomic(old, cx),
            Reply::Data { length } => self.store_data(length, data, cx),
            Reply::NotReady(timer) => self.wait_for_receiver(timer, cx),
            Reply::Dropped => self.wait_in_vain(cx),
            Reply::Nak { code, reason } => {
                self.fail_head(cx, status_of(code), Why::Refused(reason));
            }
            Reply::OriginFailed => self.take_data_along(cx),
        }
    }

    /// The other end is gone: everything on its way is lost. This is not known of packets; they have their timeout.
    /// Nobody answers a message of an unreliable service: it goes on, to nobody (rule UC-02).
    pub fn on_silence<P: Process>(&mut self, cx: &mut Context<'_, P>) {
        let awaited = self.service.is_reliable() && self.is_under_way();
        if awaited && self.connection.link.mtu.is_none() {
            self.wait_in_vain(cx);
        }
    }

    /// What is under way is lost, and is sent again when its time is over.
    fn wait_in_vain<P: Process>(&mut self, cx: &mut Context<'_, P>) {
        let verdict = self.retry.lost(cx.process.now());
        cx.process.tally(Tally::Timeout, 1);
        self.again(verdict, Why::Unanswered, cx);
    }

    /// The target has no receive, and asks to come again later (rule RN-02).
    pub(crate) fn wait_for_receiver<P: Process>(
        &mut self,
        timer: RnrTimer,
        cx: &mut Context<'_, P>,
    ) {
        let verdict = self.retry.not_ready(cx.process.now(), timer);
        cx.process.tally(Tally::NotReady, 1);
        if matches!(verdict, Verdict::At(_)) {
            cx.process.tally(Tally::NotReadyTime, timer.nanoseconds());
        }
        self.again(verdict, Why::NotReady, cx);
    }

    /// Whether `message` is the oldest one under way.
    fn is_started(&self, message: Psn) -> bool {
        if self.ring.is_empty() {
            return false;
        }
        let head = self.ring.at(self.ring.head());
        head.message == message && head.progress != Progress::Waiting
    }

    pub(crate) fn finish_head<P: Process>(&mut self, cx: &mut Context<'_, P>) {
        self.retry.reload();
        let head = self.ring.head();
        self.under_way.reading -= self.reads_of(head, self.read_unit());
        self.complete_head(cx, Status::Success, self.ring.at(head).length);
    }

    /// So many bytes of the head, which has been started, have come or are acknowledged.
    pub(crate) fn set_answered(&mut self, answered: u64) {
        let (head, unit) = (self.ring.head(), self.read_unit());
        let Progress::Started { sent, .. } = self.ring.at(head).progress else { return };
        let reads = self.reads_of(head, unit);
        let sent = sent.max(answered);
        self.ring.at_mut(head).progress = Progress::Started { sent, answered };
        self.under_way.reading -= reads - self.reads_of(head, unit);
    }

    pub(crate) fn store_atomic<P: Process>(&mut self, old: u64, cx: &mut Context<'_, P>) {
        let old = old.to_ne_bytes();
        if self.store(0, 8, &mut Bytes { bytes: &old, process: cx.process }, cx) {
            self.finish_head(cx);
        }
    }

    fn store_data<P: Process>(
        &mut self,
        length: u64,
        data: Option<&mut dyn Source>,
        cx: &mut Context<'_, P>,
    ) {
        let position = self.ring.head();
        let Progress::Started { answered, .. } = self.ring.at(position).progress else { return };
        if let Some(data) = data
            && !self.store(answered, length, data, cx)
        {
            return;
        }
        let answered = answered + length;
        self.set_answered(answered);
        if answered >= self.ring.at(position).length {
            self.finish_head(cx);
        }
    }

    /// Stores returned data in the head's buffers; false if they may not be written, which fails
    /// the work request (rules LA-04, LA-05).
    pub(crate) fn store<P: Process>(
        &mut self,
        offset: u64,
        length: u64,
        data: &mut dyn Source,
        cx: &mut Context<'_, P>,
    ) -> bool {
        let num_sge = self.ring.at(self.ring.head()).num_sge;
        let buffers = buffers(cx, self.ring.sges_at(self.ring.head(), num_sge));
        let stored = buffers
            .each(Operation::LocalWrite, offset, length, |at, grant| data.copy_to(at, grant));
        let refusal = match stored {
            Ok(()) => return true,
            Err(CopyError::Near(refusal)) => refusal,
            Err(CopyError::Far) => buffers.gone(Operation::LocalWrite),
        };
        self.refuse_head(cx, Status::LocalProtection, &refusal);
        false
    }

    /// The target could not take the data of the oldest message from its buffers. The message goes again with its data.
    /// This shows whether the buffers can still be read, and it also sends memory that only this process can read, as
    /// with some devices.
    fn take_data_along<P: Process>(&mut self, cx: &mut Context<'_, P>) {
        if core::mem::replace(&mut self.under_way.takes_data_along, true) {
            let why = Why::Unfit(Reason::MemoryGone, 0, 0);
            return self.fail_head(cx, Status::LocalProtection, why);
        }
        let now = cx.process.now();
        // It is not exceeded.
        self.again(Verdict::At(now), Why::Unanswered, cx);
    }

    /// Whether a reply is of the kind and length that the oldest message waits for (rule PSN-30).
    fn fits(&self, reply: Reply) -> bool {
        let head = self.ring.at(self.ring.head());
        match (reply, head.progress) {
            (Reply::Ack, _) => !head.returns_data(),
            (Reply::Atomic(_), _) => head.data() == Data::OldValue,
            (Reply::Data { length }, Progress::Started { answered, .. }) => {
                head.data() == Data::Fetched
                    && length == self.connection.link.segment_of(head.length - answered)
            }
            _ => true,
        }
    }

    /// Goes back to the oldest unanswered message, and sends it again when `verdict` says. Of a message in packets, the
    /// parts that were acknowledged or that came do not go again (rule PSN-25).
    pub(crate) fn again<P: Process>(
        &mut self,
        verdict: Verdict,
        exceeded: Why,
        cx: &mut Context<'_, P>,
    ) {
        let (qp, message) = (cx.number, self.ring.at(self.ring.head()).message);
        debug!(%qp, ?message, ?verdict, if_exceeded = ?exceeded, "retransmission");
        match verdict {
            Verdict::Exceeded if exceeded == Why::NotReady => {
                return self.fail_head(cx, Status::RnrRetryExceeded, exceeded);
            }
            Verdict::Exceeded => return self.fail_head(cx, Status::RetryExceeded, exceeded),
            Verdict::At(time) => self.pause = Pause::Until(time),
            Verdict::GiveUpAt(time) => self.pause = Pause::GivingUpAt(time),
            Verdict::Never => self.pause = Pause::ForEver,
        }
        let head = self.ring.head();
        let progress = self.ring.at(head).progress;
        let partly = self.under_way.next < self.ring.tail()
            && self.ring.at(self.under_way.next).progress != Progress::Waiting;
        self.under_way.begun = self.under_way.begun.max(self.under_way.next + u64::from(partly));
        self.under_way.next_psn = self.ring.at(head).message;
        for position in head..(self.under_way.next + 1).min(self.ring.tail()) {
            self.ring.at_mut(position).progress = Progress::Waiting;
        }
        self.under_way.next = head;
        self.under_way.attempt += 1;
        self.under_way.reading = 0;
        self.flight.stop_clock();
        if let Some(mtu) = self.connection.link.mtu
            && let Progress::Started { answered: answered @ 1.., .. } = progress
        {
            let head = self.ring.at_mut(head);
            head.progress = Progress::Started { sent: answered, answered };
            self.under_way.next_psn = head.message.plus(packets(head.length, mtu));
        }
    }

    /// The head is refused: notes why and fails.
    pub(super) fn refuse_head<P: Process>(
        &mut self,
        cx: &mut Context<'_, P>,
        status: Status,
        refusal: &Refusal,
    ) {
        cx.process.note_refusal(refusal);
        self.fail_noted(cx, status, refusal.reason.code());
    }

    /// The head fails though nothing is refused here: the same.
    pub(crate) fn fail_head<P: Process>(
        &mut self,
        cx: &mut Context<'_, P>,
        status: Status,
        why: Why,
    ) {
        let head = self.ring.at(self.ring.head());
        let (wr_id, opcode) = (head.wr_id, opcode(&head.op));
        cx.process.note_failure(&Failure { wr_id, opcode, status, why, retry: self.retry });
        self.fail_noted(cx, status, why.code());
    }

    /// Completes the head in error and takes the queue pair down with it (rules RA-42, ORD-28):
    /// RC and XRC into ERR, the send queue of UC and UD into SQE (rule ST-18).
    fn fail_noted<P: Process>(&mut self, cx: &mut Context<'_, P>, status: Status, reason: u8) {
        let reliable = self.service.is_reliable();
        let to = if reliable { QpState::Error } else { QpState::Sqe };
        debug!(qp = %cx.number, ?to, ?status, reason, "a work request failed");
        cx.summary.fall(to);
        self.end_head(cx, status, 0, reason);
        self.flush(cx);
        if reliable {
            cx.effects.push(Effect::Flush(QueueSide::Receive));
        }
    }

    /// Completes the head; success is reported only if asked for (rules PS-08, T1-41).
    pub(super) fn complete_head<P: Process>(
        &mut self,
        cx: &mut Context<'_, P>,
        status: Status,
        length: u64,
    ) {
        if self.meant_to_fail.is_some() && status == Status::Success && self.fails_at_end(cx) {
            return;
        }
        self.end_head(cx, status, length, 0);
        self.note_drained(cx);
    }

    /// Takes the head out and reports how it ended.
    #[inline]
    fn end_head<P: Process>(
        &mut self,
        cx: &mut Context<'_, P>,
        status: Status,
        length: u64,
        reason: u8,
    ) {
        let head = self.ring.at(self.ring.head());
        if head.part != Part::Program {
            if head.part != Part::Watched {
                return self.end_rendezvous(cx, status, length, reason);
            }
            self.tell_end(cx, status, length);
        }
        let done = status == Status::Success;
        self.under_way.takes_data_along = false;
        if let Some(counted) = Counted::of_posted(&head.op) {
            cx.process.count(counted, done.then_some(length));
        }
        if !done {
            let kinds = [Some(Tally::SendFailed), Tally::of_send(status)];
            kinds.into_iter().flatten().for_each(|kind| cx.process.tally(kind, 1));
        } else if let Some(operation) = head.op.operation() {
            cx.process.has_carried(operation, length);
        }
        let reported = !done || self.limits.signal_all || head.flags.contains(SendFlags::SIGNALED);
        let mut completion = completion(cx, head.wr_id, &head.op, status);
        completion.byte_length = length as u32;
        completion.vendor_error = reason;
        completion.places = self.places.end(reported);
        self.pop();
        if reported {
            cx.process.complete(&completion);
        }
    }

    pub(super) fn pop(&mut self) {
        self.ring.pop();
        self.under_way.next = self.under_way.next.max(self.ring.head());
    }

    pub(super) fn note_drained<P: Process>(&mut self, cx: &mut Context<'_, P>) {
        if self.under_way.drain_notice
            && !self.is_draining()
            && cx.summary.gate().state == QpState::Sqd
        {
            self.under_way.drain_notice = false;
            cx.effects.event(QpEvent::SendQueueDrained);
        }
    }
}

/// What a work request ends with whose target answered so (rules E.3).
pub(crate) fn status_of(code: NakCode) -> Status {
    match code {
        NakCode::RemoteAccess => Status::RemoteAccess,
        NakCode::InvalidRequest => Status::RemoteInvalidRequest,
        NakCode::RemoteOperational => Status::RemoteOperation,
        NakCode::SequenceError => Status::BadResponse,
    }
}

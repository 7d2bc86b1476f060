//! The requester: starts posted work in order. Its [`completer`] ends it in order.

mod completer;

use transom_wire::Psn;

use super::{
    Body, Direct, LocalBuffers, MAX_MESSAGE, Origin, Payload, QueueSide, Reply, Request, Sent,
};
use crate::protection::{
    Operation, Reason, Refusal, Stamp, bind_type1, bind_type2, invalidate, unbind_type1,
};
use crate::qp::{QpState, Service};
use crate::queue::{
    Completion, Flags, Opcode, PostError, SendFlags, SendOp, SendRequest, Sge, Status, WorkRing,
};
use crate::transport::retry::Retry;

/// How far a work request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Waiting,
    /// `sent` bytes are on their way, `answered` bytes of a READ have come.
    Started {
        sent: u64,
        answered: u64,
    },
}

#[derive(Clone, Copy)]
struct SendWqe {
    wr_id: u64,
    op: SendOp,
    flags: SendFlags,
    pieces: usize,
    length: u64,
    message: Psn,
    progress: Progress,
}

impl SendWqe {
    const BLANK: Self = Self {
        wr_id: 0,
        op: SendOp::Unsupported,
        flags: SendFlags::empty(),
        pieces: 0,
        length: 0,
        message: Psn::new(0),
        progress: Progress::Waiting,
    };

    /// Whether an answer with data is waited for (rules ORD-10, RN-11).
    fn awaits_data(&self) -> bool {
        matches!(
            self.op,
            SendOp::Read { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }
        )
    }

    fn body(&self) -> Option<Body> {
        let send = |immediate, invalidate| Body::Send { immediate, invalidate };
        Some(match self.op {
            SendOp::Send => send(None, None),
            SendOp::SendImmediate(immediate) => send(Some(immediate), None),
            SendOp::SendInvalidate(key) => send(None, Some(key)),
            SendOp::Write { address, key, immediate } => Body::Write { address, key, immediate },
            SendOp::Read { address, key } => Body::Read { address, key },
            SendOp::CompareSwap { address, key, swap, compare } => {
                Body::CompareSwap { address, key, swap, compare }
            }
            SendOp::FetchAdd { address, key, add } => Body::FetchAdd { address, key, add },
            _ => return None,
        })
    }
}

fn opcode(op: &SendOp) -> Opcode {
    match op {
        SendOp::Send
        | SendOp::SendImmediate(_)
        | SendOp::SendInvalidate(_)
        | SendOp::Unsupported => Opcode::Send,
        SendOp::Write { .. } => Opcode::Write,
        SendOp::Read { .. } => Opcode::Read,
        SendOp::CompareSwap { .. } => Opcode::CompareSwap,
        SendOp::FetchAdd { .. } => Opcode::FetchAdd,
        SendOp::AtomicWrite { .. } => Opcode::AtomicWrite,
        SendOp::Flush { .. } => Opcode::Flush,
        SendOp::BindType1(_) | SendOp::BindType2(_) => Opcode::BindWindow,
        SendOp::LocalInvalidate(_) => Opcode::LocalInvalidate,
    }
}

/// What a send queue was created for.
#[derive(Clone, Copy, Debug)]
pub struct RequesterLimits {
    /// Work requests.
    pub size: usize,
    /// Pieces of each.
    pub pieces: usize,
    /// Inline bytes of each.
    pub inline_room: usize,
    /// Every work request is reported, signaled or not.
    pub signal_all: bool,
}

/// The send queue: what is posted, what is on its way, and when to try again.
pub struct Requester {
    service: Service,
    signal_all: bool,
    ring: WorkRing<SendWqe>,
    /// Position of the first work request that is not fully handed to the link.
    next: u64,
    /// Work requests before this position have been started, be it that they go out again.
    begun: u64,
    /// The number the next message gets.
    message: Psn,
    attempt: u16,
    /// READs and atomics on their way.
    awaiting_data: u32,
    /// `max_rd_atomic`.
    pub max_rd_atomic: u8,
    /// Retry counters.
    pub retry: Retry,
    not_before: Option<u64>,
    giving_up: bool,
    /// A request is lost and the timeout is off: nothing moves until the queue pair is reset.
    stuck: bool,
    /// The program waits for the drained event (rule ST-16).
    drain_notice: bool,
}

impl Requester {
    /// A requester for a queue pair of this service.
    pub fn new(service: Service, limits: &RequesterLimits) -> Self {
        Self {
            service,
            signal_all: limits.signal_all,
            ring: WorkRing::new(limits.size, limits.pieces, limits.inline_room, SendWqe::BLANK),
            next: 0,
            begun: 0,
            message: Psn::default(),
            attempt: 0,
            awaiting_data: 0,
            max_rd_atomic: 0,
            retry: Retry::default(),
            not_before: None,
            giving_up: false,
            stuck: false,
            drain_notice: false,
        }
    }

    /// Begins to send; the first message carries `first`.
    pub fn start(&mut self, first: Psn) {
        self.message = first;
        self.retry.reload();
    }

    /// Forgets everything posted, without completions (rule ST-10).
    pub fn reset(&mut self) {
        self.ring.clear();
        self.next = self.ring.tail();
        self.attempt = self.attempt.wrapping_add(1);
        self.awaiting_data = 0;
        self.not_before = None;
        self.giving_up = false;
        self.stuck = false;
        self.drain_notice = false;
    }

    /// When to call [`Requester::advance`] again at the latest, in the host's nanoseconds.
    pub fn deadline(&self) -> Option<u64> {
        self.not_before
    }

    /// Whether something is started and unfinished, under way or waiting to go out again
    /// (rule ST-17).
    pub fn is_draining(&self) -> bool {
        self.is_under_way() || self.ring.head() < self.begun
    }

    /// Whether something is started and unanswered.
    fn is_under_way(&self) -> bool {
        self.next != self.ring.head()
            || (!self.ring.is_empty() && self.ring.at(self.next).progress != Progress::Waiting)
    }

    /// Asks for [`QpEvent::SendQueueDrained`](super::QpEvent::SendQueueDrained) once nothing is under way.
    pub fn notify_drained<O: Origin>(&mut self, origin: &O) {
        self.drain_notice = true;
        self.note_drained(origin);
    }

    /// Posts a work request; [`Requester::advance`] carries it out.
    pub fn post<O: Origin>(
        &mut self,
        request: &SendRequest<'_>,
        origin: &O,
    ) -> Result<(), PostError> {
        let state = origin.summary().gate().state;
        if matches!(state, QpState::Reset | QpState::Init | QpState::Rtr) {
            return Err(PostError::WrongState);
        }
        if self.service == Service::Uc && matches!(request.op, SendOp::SendInvalidate(_)) {
            return Err(PostError::WrongService);
        }
        let (pieces, length) = match request.inline {
            Some(inline) => (0, self.check_inline(request, inline)?),
            None if request.sges.len() > self.ring.pieces() => {
                return Err(PostError::TooManyPieces);
            }
            None => (request.sges.len(), LocalBuffers::length(request.sges)),
        };
        if self.ring.is_empty() && state == QpState::Rts && self.carry_out(request, length, origin)
        {
            return Ok(());
        }
        if self.ring.is_full() {
            return Err(PostError::Full);
        }
        let mut flags = request.flags;
        flags.set(SendFlags::INLINE, request.inline.is_some());
        let wqe = SendWqe {
            wr_id: request.wr_id,
            op: request.op,
            flags,
            pieces,
            length,
            message: Psn::default(),
            progress: Progress::Waiting,
        };
        self.ring.push(wqe, &request.sges[..pieces], request.inline.unwrap_or(&[]));
        if matches!(state, QpState::Error | QpState::Sqe) {
            self.flush(origin);
        }
        Ok(())
    }

    /// Whether `count` work requests can be posted one after the other. What else a post may refuse
    /// lies in the request itself, and whoever builds a batch has looked there.
    pub fn check_room<O: Origin>(&self, count: usize, origin: &O) -> Result<(), PostError> {
        if matches!(origin.summary().gate().state, QpState::Reset | QpState::Init | QpState::Rtr) {
            return Err(PostError::WrongState);
        }
        if count > self.ring.room() { Err(PostError::Full) } else { Ok(()) }
    }

    /// Carries out a WRITE or READ on the direct way without a stop in the ring, if there is nothing
    /// before it; false leaves it to the ring, where it is tried again and may fail.
    #[inline]
    fn carry_out<O: Origin>(&mut self, request: &SendRequest<'_>, length: u64, origin: &O) -> bool {
        let payload = match request.inline {
            None => Payload::Buffers(request.sges),
            Some([piece]) => Payload::Inline(piece),
            Some(_) => return false,
        };
        let ready = self.ring.size() > 0
            && length <= MAX_MESSAGE
            && (self.max_rd_atomic > 0 || !matches!(request.op, SendOp::Read { .. }));
        if !ready || self.try_direct(origin, &request.op, payload, length) != Direct::Done {
            return false;
        }
        if self.signal_all || request.flags.contains(SendFlags::SIGNALED) {
            let status = Status::Success;
            let mut completion = completion(origin, request.wr_id, &request.op, status);
            completion.byte_length = length as u32;
            origin.complete(QueueSide::Send, completion, false);
        }
        true
    }

    fn check_inline(&self, request: &SendRequest<'_>, inline: &[&[u8]]) -> Result<u64, PostError> {
        let allowed = matches!(
            request.op,
            SendOp::Send
                | SendOp::SendImmediate(_)
                | SendOp::SendInvalidate(_)
                | SendOp::Write { .. }
        );
        if !allowed {
            return Err(PostError::InlineNotAllowed);
        }
        let length = inline.iter().map(|piece| piece.len()).sum::<usize>();
        if length > self.ring.inline_room() {
            Err(PostError::InlineTooLong)
        } else {
            Ok(length as u64)
        }
    }

    /// Starts and carries out as much as can be now.
    pub fn advance<O: Origin>(&mut self, origin: &O) {
        while self.step(origin) {}
    }

    /// One work request or segment further; false if nothing more can be done now.
    fn step<O: Origin>(&mut self, origin: &O) -> bool {
        if self.next == self.ring.tail() || self.stuck {
            return false;
        }
        if let Some(time) = self.not_before {
            if origin.now() < time {
                return false;
            }
            self.not_before = None;
            if core::mem::take(&mut self.giving_up) {
                self.fail_head(origin, Status::RetryExceeded, 0);
                return false;
            }
        }
        let wqe = *self.ring.at(self.next);
        match origin.summary().gate().state {
            QpState::Rts => {}
            QpState::Sqd if wqe.progress != Progress::Waiting || self.next < self.begun => {}
            _ => return false,
        }
        if wqe.progress == Progress::Waiting && !self.may_start(&wqe) {
            return false;
        }
        match wqe.op {
            SendOp::BindType1(_) | SendOp::BindType2(_) | SendOp::LocalInvalidate(_) => {
                self.local_operation(origin, &wqe)
            }
            SendOp::Unsupported => {
                self.fail_head(origin, Status::LocalQpOperation, Reason::WrongService.code());
                false
            }
            _ => self.start_message(origin, &wqe),
        }
    }

    /// Whether what is under way lets the work request begin.
    fn may_start(&self, wqe: &SendWqe) -> bool {
        let first = self.next == self.ring.head();
        let fenced = wqe.flags.contains(SendFlags::FENCE) && self.service == Service::Rc;
        if fenced && self.awaiting_data > 0 {
            return false;
        }
        match wqe.op {
            // Local operations are strict: all before them are done (rules ORD-12, ORD-16).
            SendOp::BindType1(_)
            | SendOp::BindType2(_)
            | SendOp::LocalInvalidate(_)
            | SendOp::Unsupported => first,
            _ if wqe.awaits_data() => first || self.awaiting_data < u32::from(self.max_rd_atomic),
            _ => true,
        }
    }

    fn local_operation<O: Origin>(&mut self, origin: &O, wqe: &SendWqe) -> bool {
        let (keys, waiter) = (origin.keys(), origin.waiter());
        let mut stamp = Stamp {
            qp: origin.number().bits(),
            pd: origin.summary().gate().pd,
            wr_id: wqe.wr_id,
            now: 0,
        };
        let done = match wqe.op {
            SendOp::BindType1(bind) if bind.length == 0 => {
                unbind_type1(&keys, &bind, &stamp, waiter)
            }
            SendOp::BindType1(bind) => {
                stamp.now = origin.now();
                bind_type1(&keys, &bind, &stamp, waiter)
            }
            SendOp::BindType2(bind) => {
                stamp.now = origin.now();
                bind_type2(&keys, origin.summary(), &bind, &stamp, waiter)
            }
            SendOp::LocalInvalidate(key) => {
                let operation = Operation::Invalidate;
                invalidate(&keys, &origin.qps(), operation, key, &stamp, waiter)
            }
            _ => unreachable!("the caller has matched the local operations"),
        };
        match done {
            Ok(()) => {
                self.next += 1;
                self.complete_head(origin, Status::Success, 0);
                true
            }
            Err(refusal) => self.refuse_head(origin, Status::WindowBind, &refusal),
        }
    }

    /// Starts a message, or goes on with one that the link could not take whole.
    fn start_message<O: Origin>(&mut self, origin: &O, wqe: &SendWqe) -> bool {
        if wqe.progress == Progress::Waiting {
            if let Some(status) = self.malformed(wqe) {
                let reason = if status == Status::LocalLength {
                    Reason::TooLong
                } else {
                    Reason::WrongService
                };
                // In order: whatever is under way completes first.
                if self.next == self.ring.head() {
                    self.fail_head(origin, status, reason.code());
                }
                return false;
            }
            if self.next == self.ring.head() {
                match self.try_direct(origin, &wqe.op, self.payload(wqe), wqe.length) {
                    Direct::Done => {
                        self.next += 1;
                        self.complete_head(origin, Status::Success, wqe.length);
                        return true;
                    }
                    Direct::Near(refusal) => {
                        return self.refuse_head(origin, Status::LocalProtection, &refusal);
                    }
                    Direct::Declined => {}
                }
            }
            if let Err(refusal) = self.check_gather(origin, wqe) {
                if self.next == self.ring.head() {
                    self.refuse_head(origin, Status::LocalProtection, &refusal);
                }
                return false;
            }
            let message = self.message;
            self.message = message.plus(1);
            self.awaiting_data += u32::from(wqe.awaits_data());
            let started = self.ring.at_mut(self.next);
            started.message = message;
            started.progress = Progress::Started { sent: 0, answered: 0 };
        }
        self.send_segment(origin)
    }

    /// What is wrong with a message before any key is looked at.
    fn malformed(&self, wqe: &SendWqe) -> Option<Status> {
        if wqe.length > MAX_MESSAGE {
            return Some(Status::LocalLength);
        }
        if wqe.awaits_data() {
            let atomic = !matches!(wqe.op, SendOp::Read { .. });
            if self.service == Service::Uc || self.max_rd_atomic == 0 {
                return Some(Status::LocalQpOperation);
            }
            if atomic && wqe.length != 8 {
                return Some(Status::LocalLength);
            }
        }
        None
    }

    /// The direct way, for a WRITE or READ with nothing older under way.
    #[inline]
    fn try_direct<O: Origin>(
        &self,
        origin: &O,
        op: &SendOp,
        payload: Payload<'_>,
        length: u64,
    ) -> Direct {
        match (op, payload) {
            (SendOp::Write { address, key, immediate: None }, _) => {
                // A list that fails half-way would leave half a message behind (rule LA-06).
                if let Payload::Buffers(sges) = payload
                    && (sges.len() > 1 || length > super::one_sided::CHUNK)
                    && let Err(refusal) = buffers(origin, sges).check(Operation::LocalRead)
                {
                    return Direct::Near(refusal);
                }
                origin.write_direct(*address, *key, payload, length)
            }
            (SendOp::Read { address, key }, Payload::Buffers(sges)) => {
                origin.read_direct(*address, *key, sges, length)
            }
            _ => Direct::Declined,
        }
    }

    fn payload(&self, wqe: &SendWqe) -> Payload<'_> {
        if wqe.flags.contains(SendFlags::INLINE) {
            Payload::Inline(self.ring.inline_at(self.next, wqe.length as usize))
        } else {
            Payload::Buffers(self.ring.sges_at(self.next, wqe.pieces))
        }
    }

    /// Checks what a SEND or WRITE will gather (rule LA-19). READs and atomics are judged when
    /// their data is stored (rules LA-08, LA-20).
    fn check_gather<O: Origin>(&self, origin: &O, wqe: &SendWqe) -> Result<(), Refusal> {
        if wqe.awaits_data() {
            return Ok(());
        }
        let sges = self.ring.sges_at(self.next, wqe.pieces);
        buffers(origin, sges).check(Operation::LocalRead)
    }

    /// Hands the next segment of the message at `next` to the link.
    fn send_segment<O: Origin>(&mut self, origin: &O) -> bool {
        let wqe = *self.ring.at(self.next);
        let (Some(body), Progress::Started { sent, answered }) = (wqe.body(), wqe.progress) else {
            unreachable!("only a started message is sent");
        };
        let request = Request {
            to: origin.peer(),
            from: origin.number(),
            service: self.service,
            message: wqe.message,
            attempt: self.attempt,
            body,
            offset: sent,
            length: (wqe.length - sent).min(origin.segment_limit()),
            total: wqe.length,
            solicited: wqe.flags.contains(SendFlags::SOLICITED),
        };
        let outcome = origin.send(&request, self.payload(&wqe));
        match outcome {
            Sent::Busy => return false,
            Sent::Near(refusal) => {
                // Checked before, so the region went away meanwhile. Complete in order.
                if self.next == self.ring.head() {
                    self.refuse_head(origin, Status::LocalProtection, &refusal);
                } else {
                    self.ring.at_mut(self.next).progress = Progress::Waiting;
                    self.message = wqe.message;
                    self.awaiting_data -= u32::from(wqe.awaits_data());
                }
                return false;
            }
            Sent::Queued | Sent::Answered(_) | Sent::Unreachable => {}
        }
        let position = self.next;
        let sent = sent + request.length;
        self.ring.at_mut(position).progress = Progress::Started { sent, answered };
        if request.is_last() {
            self.next += 1;
        }
        if self.service == Service::Uc {
            if request.is_last() {
                self.complete_unacknowledged(origin);
            }
            return true;
        }
        let reply = match outcome {
            Sent::Answered(reply) => reply,
            Sent::Unreachable => Reply::Dropped,
            _ => return true,
        };
        self.on_reply(request.message, request.attempt, reply, None, origin);
        true
    }

    /// Whether a reply is of the kind and length that the oldest message waits for (rule PSN-30).
    fn fits<O: Origin>(&self, reply: Reply, origin: &O) -> bool {
        let head = self.ring.at(self.ring.head());
        let read = matches!(head.op, SendOp::Read { .. });
        match (reply, head.progress) {
            (Reply::Ack, _) => !head.awaits_data(),
            (Reply::Atomic(_), _) => head.awaits_data() && !read,
            (Reply::Data { length }, Progress::Started { answered, .. }) => {
                read && length == (head.length - answered).min(origin.segment_limit())
            }
            _ => true,
        }
    }
}

fn buffers<'a, O: Origin>(origin: &'a O, sges: &'a [Sge]) -> LocalBuffers<'a> {
    LocalBuffers {
        sges,
        keys: origin.keys(),
        announcer: origin.announcer(),
        waiter: origin.waiter(),
        qp: origin.number().bits(),
        pd: origin.summary().gate().pd,
    }
}

fn completion<O: Origin>(origin: &O, wr_id: u64, op: &SendOp, status: Status) -> Completion {
    Completion {
        wr_id,
        status,
        opcode: opcode(op),
        vendor_error: 0,
        byte_length: 0,
        immediate: 0,
        qp: origin.number().bits(),
        flags: Flags::empty(),
        source_qp: 0,
        time: 0,
    }
}

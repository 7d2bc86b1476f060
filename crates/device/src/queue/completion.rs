//! Completion queues and completions (rules G.5, G.6).

use std::collections::VecDeque;

use bitflags::bitflags;

/// Statuses, with the values of `enum ibv_wc_status` (rules WC-00 to WC-23).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum Status {
    /// Done.
    Success = 0,
    /// The receive buffer was too small, or a length is wrong.
    LocalLength = 1,
    /// The queue pair does not do this.
    LocalQpOperation = 2,
    /// A local buffer may not be used so.
    LocalProtection = 4,
    /// Not done: the queue pair had failed or was told to fail.
    Flushed = 5,
    /// A bind or invalidation was refused.
    WindowBind = 6,
    /// The answer does not fit the request.
    BadResponse = 7,
    /// A WRITE with immediate was refused after it had taken a receive.
    LocalAccess = 8,
    /// The peer called the request invalid.
    RemoteInvalidRequest = 9,
    /// The peer refused access.
    RemoteAccess = 10,
    /// The peer could not carry it out.
    RemoteOperation = 11,
    /// No answer, after all retries.
    RetryExceeded = 12,
    /// The peer had no receive posted, after all retries.
    RnrRetryExceeded = 13,
}

/// What completed, with the values of `enum ibv_wc_opcode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Opcode {
    /// Any SEND.
    Send = 0,
    /// Any RDMA WRITE.
    Write = 1,
    /// RDMA READ.
    Read = 2,
    /// Compare and swap.
    CompareSwap = 3,
    /// Fetch and add.
    FetchAdd = 4,
    /// A bind.
    BindWindow = 5,
    /// LOCAL_INV.
    LocalInvalidate = 6,
    /// FLUSH.
    Flush = 8,
    /// ATOMIC WRITE.
    AtomicWrite = 9,
    /// A message received.
    Receive = 128,
    /// A WRITE with immediate received.
    ReceiveWriteImmediate = 129,
}

bitflags! {
    /// With the values of `enum ibv_wc_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Flags: u32 {
        /// The first 40 bytes of the receive buffer are the GRH area (rule UD-01).
        const GRH = 1;
        /// The immediate field is valid.
        const IMMEDIATE = 2;
        /// The immediate field is the key that was invalidated.
        const INVALIDATED = 8;
    }
}

/// One work completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The consumer's number of the work request.
    pub wr_id: u64,
    /// How it ended.
    pub status: Status,
    /// What it was; set on errors too.
    pub opcode: Opcode,
    /// The code of the [`Reason`](crate::protection::Reason), zero if none.
    pub vendor_error: u32,
    /// Bytes received, read, or returned by an atomic.
    pub byte_length: u32,
    /// Immediate data in network order, or the invalidated key.
    pub immediate: u32,
    /// The queue pair of the work request.
    pub qp: u32,
    /// Which fields are valid.
    pub flags: Flags,
    /// A received datagram's sender (rule UD-07).
    pub source_qp: u32,
    /// When it was added to its queue, in the host's nanoseconds, if the queue wanted to know.
    pub time: u64,
}

/// What raises an event at the next completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Notify {
    /// Nothing.
    No,
    /// A solicited or failed one.
    Solicited,
    /// Any.
    Any,
}

/// What the host has to do after a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// The consumer asked to be told: raise the event now.
    pub notify: bool,
    /// The queue was full: the completion is lost and the queue unusable (rule CQ-05).
    pub overrun: bool,
    /// Call [`CompletionQueue::end_period`] at this time.
    pub period_ends: Option<u64>,
}

/// When an event that was asked for is raised (`ibv_modify_cq(3)`): after `count` completions, or
/// `period` nanoseconds after the first of them.
///
/// If either is zero, events come at once: a count alone could hold one back for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moderation {
    /// Completions.
    pub count: u16,
    /// Nanoseconds.
    pub period: u64,
}

/// What a completion queue does beyond the usual (`ibv_create_cq_ex(3)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompletionOptions {
    /// Each completion keeps the time when it was added.
    pub timestamps: bool,
    /// A full queue loses its oldest completion and goes on.
    pub ignore_overrun: bool,
}

/// The new size is below what is waiting (rule CQ-14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooSmall;

/// A completion queue.
pub struct CompletionQueue {
    waiting: VecDeque<Completion>,
    capacity: usize,
    options: CompletionOptions,
    notify: Notify,
    overrun: bool,
    moderation: Moderation,
    /// Completions that the event asked for has been held back for.
    held: u16,
    /// When it is raised at the latest.
    deadline: u64,
    /// Whether a call of `end_period` is to come.
    timed: bool,
}

impl CompletionQueue {
    /// A queue for `capacity` completions; their memory is taken now, not while polling.
    pub fn new(capacity: usize, options: CompletionOptions) -> Self {
        Self {
            waiting: VecDeque::with_capacity(capacity),
            capacity,
            options,
            notify: Notify::No,
            overrun: false,
            moderation: Moderation::default(),
            held: 0,
            deadline: 0,
            timed: false,
        }
    }

    /// How many completions it holds.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether a completion was lost.
    pub fn is_overrun(&self) -> bool {
        self.overrun
    }

    /// Whether the next completion must carry the time.
    #[inline]
    pub fn wants_time(&self) -> bool {
        self.options.timestamps || (self.is_moderated() && self.notify != Notify::No)
    }

    /// Adds a completion. `solicited` is what the message said (rules CQ-06 to CQ-10).
    pub fn push(&mut self, completion: Completion, solicited: bool) -> Pending {
        if self.waiting.len() == self.capacity {
            if !self.options.ignore_overrun {
                let first = !self.overrun;
                self.overrun = true;
                return Pending { overrun: first, ..Pending::default() };
            }
            self.waiting.pop_front();
        }
        let urgent = solicited || completion.status != Status::Success;
        self.waiting.push_back(completion);
        match self.notify {
            Notify::Any => self.tell(completion.time),
            Notify::Solicited if urgent => self.tell(completion.time),
            Notify::No | Notify::Solicited => Pending::default(),
        }
    }

    /// A completion came that the consumer wants to be told of: now, or with later ones.
    fn tell(&mut self, now: u64) -> Pending {
        self.held += 1;
        if !self.is_moderated() || self.held >= self.moderation.count {
            return self.raise();
        }
        if self.held == 1 {
            self.deadline = now + self.moderation.period;
        }
        // One call at a time: it finds a later deadline by itself.
        let call = !std::mem::replace(&mut self.timed, true);
        Pending { period_ends: call.then_some(self.deadline), ..Pending::default() }
    }

    fn raise(&mut self) -> Pending {
        self.notify = Notify::No;
        self.held = 0;
        Pending { notify: true, ..Pending::default() }
    }

    fn is_moderated(&self) -> bool {
        self.moderation.count > 1 && self.moderation.period > 0
    }

    /// The time that a change asked for has come.
    pub fn end_period(&mut self, now: u64) -> Pending {
        self.timed = false;
        if self.held == 0 {
            return Pending::default();
        }
        if now >= self.deadline {
            return self.raise();
        }
        self.timed = true;
        Pending { period_ends: Some(self.deadline), ..Pending::default() }
    }

    /// Changes when events are raised; one that is held back is raised now.
    pub fn moderate(&mut self, moderation: Moderation) -> Pending {
        self.moderation = moderation;
        if self.held > 0 { self.raise() } else { Pending::default() }
    }

    /// Takes the oldest completion.
    #[inline]
    pub fn pop(&mut self) -> Option<Completion> {
        self.waiting.pop_front()
    }

    /// Whether none is waiting.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Asks for an event; asking again never asks for less (rules CQ-08, CQ-09).
    pub fn arm(&mut self, notify: Notify) {
        self.notify = self.notify.max(notify);
    }

    /// Changes the size; what waits is kept (rule CQ-14).
    pub fn resize(&mut self, capacity: usize) -> Result<(), TooSmall> {
        if capacity < self.waiting.len() {
            return Err(TooSmall);
        }
        let mut waiting = VecDeque::with_capacity(capacity);
        waiting.append(&mut self.waiting);
        self.waiting = waiting;
        self.capacity = capacity;
        Ok(())
    }

    /// Drops the waiting completions of a queue pair (rule ORD-29).
    pub fn forget(&mut self, qp: u32) {
        self.waiting.retain(|completion| completion.qp != qp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number for every status; whoever adds one decides here whether it may be.
    fn number(status: Status) -> u32 {
        match status {
            Status::Success => 0,
            Status::LocalLength => 1,
            Status::LocalQpOperation => 2,
            Status::LocalProtection => 4,
            Status::Flushed => 5,
            Status::WindowBind => 6,
            Status::BadResponse => 7,
            Status::LocalAccess => 8,
            Status::RemoteInvalidRequest => 9,
            Status::RemoteAccess => 10,
            Status::RemoteOperation => 11,
            Status::RetryExceeded => 12,
            Status::RnrRetryExceeded => 13,
        }
    }

    /// Statuses of reliable datagrams and tag matching, of failures of hardware and without a name,
    /// have no value here, so no completion can have them.
    /// Rules: WC-03, WC-14, WC-15, WC-16, WC-17, WC-18, WC-19, WC-20, WC-21, WC-22, WC-23
    #[test]
    fn statuses_that_never_occur_have_no_value() {
        let all = [
            Status::Success,
            Status::LocalLength,
            Status::LocalQpOperation,
            Status::LocalProtection,
            Status::Flushed,
            Status::WindowBind,
            Status::BadResponse,
            Status::LocalAccess,
            Status::RemoteInvalidRequest,
            Status::RemoteAccess,
            Status::RemoteOperation,
            Status::RetryExceeded,
            Status::RnrRetryExceeded,
        ];
        let never = |value: u32| value == 3 || value > 13;
        let numbers: Vec<_> = all.into_iter().map(number).collect();
        let expected: Vec<_> = (0..=23).filter(|value| !never(*value)).collect();
        assert_eq!(numbers, expected);
        assert!(all.into_iter().all(|status| status as u32 == number(status)));
    }

    fn at(time: u64) -> Completion {
        Completion {
            wr_id: time,
            status: Status::Success,
            opcode: Opcode::Receive,
            vendor_error: 0,
            byte_length: 0,
            immediate: 0,
            qp: 1,
            flags: Flags::empty(),
            source_qp: 0,
            time,
        }
    }

    fn moderated(count: u16, period: u64) -> CompletionQueue {
        let mut queue = CompletionQueue::new(64, CompletionOptions::default());
        assert_eq!(queue.moderate(Moderation { count, period }), Pending::default());
        queue.arm(Notify::Any);
        queue
    }

    const NOW: Pending = Pending { notify: true, overrun: false, period_ends: None };
    const NOTHING: Pending = Pending { notify: false, overrun: false, period_ends: None };

    fn later(time: u64) -> Pending {
        Pending { period_ends: Some(time), ..NOTHING }
    }

    #[test]
    fn a_count_raises_before_the_period() {
        let mut queue = moderated(3, 100);
        assert!(queue.wants_time());
        assert_eq!(queue.push(at(10), false), later(110));
        assert_eq!(queue.push(at(20), false), NOTHING);
        assert_eq!(queue.push(at(30), false), NOW);
        assert!(!queue.wants_time(), "nobody waits for an event");
        assert_eq!(queue.end_period(110), NOTHING);
    }

    #[test]
    fn a_period_raises_before_the_count() {
        let mut queue = moderated(3, 100);
        assert_eq!(queue.push(at(10), false), later(110));
        assert_eq!(queue.end_period(110), NOW);
        assert_eq!(queue.push(at(120), false), NOTHING);
    }

    #[test]
    fn one_call_is_due_at_a_time() {
        let mut queue = moderated(2, 100);
        assert_eq!(queue.push(at(10), false), later(110));
        assert_eq!(queue.push(at(20), false), NOW);
        queue.arm(Notify::Any);
        assert_eq!(queue.push(at(50), false), NOTHING);
        assert_eq!(queue.end_period(110), later(150));
        assert_eq!(queue.end_period(150), NOW);
    }

    #[test]
    fn half_a_moderation_holds_nothing_back() {
        for (count, period) in [(0, 100), (1, 100), (9, 0), (0, 0)] {
            assert_eq!(moderated(count, period).push(at(10), false), NOW);
        }
    }

    #[test]
    fn a_new_moderation_lets_go_what_is_held() {
        let mut queue = moderated(3, 100);
        assert_eq!(queue.push(at(10), false), later(110));
        assert_eq!(queue.moderate(Moderation { count: 9, period: 900 }), NOW);
        assert_eq!(queue.end_period(110), NOTHING);
    }

    #[test]
    fn a_queue_that_ignores_overrun_loses_the_oldest() {
        let options = CompletionOptions { ignore_overrun: true, ..CompletionOptions::default() };
        let mut queue = CompletionQueue::new(2, options);
        for time in 1..=5 {
            assert_eq!(queue.push(at(time), false), NOTHING);
        }
        let left = std::iter::from_fn(|| queue.pop()).map(|completion| completion.wr_id);
        assert_eq!(left.collect::<Vec<_>>(), [4, 5]);
        assert!(!queue.is_overrun());
    }
}

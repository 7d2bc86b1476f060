//! Completion queues of this process.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use transom_device::queue::{
    Completion, CompletionOptions, CompletionQueue, Feeder, Moderation, Notify, Opcode, Pending,
    Returned, SizeError, Status,
};
use transom_system::catalog::{Listed, Number, Standing};
use transom_system::clock;
use transom_system::lock::ShortMutex;
use transom_system::object_counts::ObjectKind;
use transom_system::registry::Fate;

use super::empty_polls::EmptyPolls;
use super::{Busy, Deferred, RegisterError};
use crate::device::{Device, Limits};
use crate::events::{AsyncEvent, CompletionEvent, EventQueue, EventSource, HoldsEvents};

/// The attributes to create a completion queue with.
#[derive(Clone, Debug)]
pub struct CqConfig {
    /// How many completions it holds.
    pub capacity: usize,
    /// How many the program has asked for, which may be fewer.
    pub asked: u32,
    /// Its options beyond the defaults.
    pub options: CompletionOptions,
    /// The completion channel, if the queue has one.
    pub channel: Option<Arc<EventQueue<CompletionEvent>>>,
    /// The context's asynchronous events.
    pub events: Arc<EventQueue<AsyncEvent>>,
    /// How events name the queue.
    pub id: u64,
    /// The number by which others see its context.
    pub context: Option<Number>,
}

/// A completion queue.
pub struct Cq {
    device: Arc<Device>,
    queue: ShortMutex<CompletionQueue>,
    /// How many completions the program has asked for.
    asked: AtomicU32,
    /// A poll found nothing, and nothing has been added since. Written under the queue's lock. Most polls of a waiting
    /// program read it without the lock.
    is_empty: AtomicBool,
    empty_polls: EmptyPolls,
    /// Its completion events, if it has a channel.
    channel: Option<EventSource<CompletionEvent>>,
    events: EventSource<AsyncEvent>,
    id: u64,
    /// By which others see it.
    listed: Option<Number>,
}

/// What a program that waits for an event of a completion queue can expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// A completion to come raises an event.
    pub is_armed: bool,
    /// Events may be held back.
    pub is_moderated: bool,
    /// How many completions wait to be polled.
    pub completions: usize,
    /// One of them is of a receive.
    pub has_receive: bool,
}

/// The completions of a queue that wait to be polled, and what one queue pair has among them.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) count: usize,
    /// Its errors, other than flushes: the program's number of the work, and the status.
    pub(super) errors: Vec<(u64, Status)>,
    /// How many messages it has received well.
    pub(super) messages: usize,
}

/// A work queue's access to its completion queue. It lives until [`Feed::end`].
#[derive(Clone, Debug)]
pub(super) struct Feed {
    cq: Arc<Cq>,
    feeder: Feeder,
}

impl Feed {
    /// Makes a work queue complete there. Its places come back to `returned`.
    pub(super) fn new(cq: &Arc<Cq>, returned: &Arc<Returned>) -> Result<Self, RegisterError> {
        let attached = cq.queue.lock().attach(returned);
        let feeder = attached.map_err(|_| RegisterError::Exhausted)?;
        Ok(Self { cq: cq.clone(), feeder })
    }

    /// Where it leads.
    pub(super) fn cq(&self) -> &Arc<Cq> {
        &self.cq
    }

    /// Adds a completion. True if the queue has just overrun; `deferred` then tells its queue pairs (rule CQ-05).
    #[inline]
    pub(super) fn complete(
        &self,
        completion: &Completion,
        solicited: bool,
        deferred: &mut Deferred,
    ) -> bool {
        let overrun = self.push(completion, solicited);
        if overrun {
            deferred.fail_users(self.cq.id);
        }
        overrun
    }

    /// Adds a completion; true if the queue has just overrun.
    #[inline]
    pub(super) fn push(&self, completion: &Completion, solicited: bool) -> bool {
        self.cq.push(self.feeder, completion, solicited)
    }

    /// Drops its completions that nobody has polled yet.
    pub(super) fn forget(&self) {
        self.cq.queue.lock().forget(self.feeder);
    }

    /// Ends the work queue's access, and drops its completions.
    pub(super) fn end(&self) {
        self.cq.queue.lock().detach(self.feeder);
    }

    /// Ends the work queue's access, and leaves its completions there.
    pub(super) fn leave(&self) {
        self.cq.queue.lock().leave(self.feeder);
    }

    /// How many messages that it has received well wait to be polled. `None` if the queue is busy for so long.
    pub(super) fn messages(&self, patience: Duration) -> Option<usize> {
        Some(self.cq.waiting_for(|it| it.feeder == self.feeder, patience)?.messages)
    }

    /// Whether somebody may still poll completions of it.
    pub(super) fn is_unpolled(&self) -> bool {
        self.cq.queue.lock().has_any_of(self.feeder)
    }
}

impl std::fmt::Debug for Cq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cq").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Cq {
    /// Makes a queue without completions or users. The size has been checked against [`Limits`].
    pub fn new(device: &Arc<Device>, config: CqConfig) -> Result<Self, RegisterError> {
        device.check_own()?;
        let queue = CompletionQueue::new(config.capacity, config.options);
        let queue = queue.map_err(|_| RegisterError::Exhausted)?;
        let id = config.id;
        let attach = |channel: Arc<EventQueue<_>>| channel.attach(id, &[CompletionEvent]);
        let channel = config.channel.map(attach).transpose()?;
        let events = config.events.attach(id, &[AsyncEvent::CqError])?;
        let limit = Limits::here().completion_queues;
        if !device.process().objects().add_below(ObjectKind::CompletionQueue, limit) {
            return Err(RegisterError::Exhausted);
        }
        let capacity = queue.capacity() as u32;
        let listed = Listed::CompletionQueue { context: config.context, capacity };
        let listed = device.process().list(listed);
        Ok(Self {
            device: device.clone(),
            queue: ShortMutex::new(queue),
            asked: AtomicU32::new(config.asked),
            is_empty: AtomicBool::new(true),
            empty_polls: EmptyPolls::new(),
            channel,
            events,
            id,
            listed,
        })
    }

    /// The number by which others see it.
    pub(crate) fn listed(&self) -> Option<Number> {
        self.listed
    }

    /// How events name it.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether it is one of this device.
    pub(super) fn is_of(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    #[inline]
    pub(crate) fn push(
        self: &Arc<Self>,
        feeder: Feeder,
        completion: &Completion,
        solicited: bool,
    ) -> bool {
        let mut queue = self.queue.lock();
        if queue.push_quietly(feeder, completion, solicited) {
            self.is_empty.store(false, Release);
            return false;
        }
        drop(queue);
        self.push_loudly(feeder, *completion, solicited)
    }

    #[inline(never)]
    fn push_loudly(
        self: &Arc<Self>,
        feeder: Feeder,
        mut completion: Completion,
        solicited: bool,
    ) -> bool {
        let mut queue = self.queue.lock();
        // Read the clock under the lock, so that times rise in the order of completions.
        if queue.wants_time() {
            completion.time = clock::steady();
        }
        let pending = queue.push(feeder, completion, solicited);
        self.is_empty.store(false, Release);
        let capacity = queue.capacity();
        drop(queue);
        if pending.overrun {
            let asked = self.asked.load(Relaxed).into();
            let fate = Fate::Overrun { capacity: capacity as u64, asked };
            self.device.process().note_work(completion.qp, 0, None, fate);
        }
        self.carry_out(pending);
        pending.overrun
    }

    /// Changes when events are raised.
    pub fn moderate(self: &Arc<Self>, moderation: Moderation) {
        let pending = self.queue.lock().moderate(moderation);
        self.carry_out(pending);
    }

    /// Carries out the consequences of a change of the queue.
    #[inline]
    fn carry_out(self: &Arc<Self>, pending: Pending) {
        if pending.notify
            && let Some(channel) = &self.channel
        {
            channel.raise(CompletionEvent);
        }
        if pending.overrun {
            self.events.raise(AsyncEvent::CqError);
        }
        if let Some(deadline) = pending.period_ends {
            let queue: Weak<Self> = Arc::downgrade(self);
            self.device.work.deadlines.schedule_events(deadline, queue);
        }
    }

    /// Takes up to `limit` completions. `None` if the queue has overrun and is unusable.
    #[inline(always)]
    pub(crate) fn take(
        &self,
        limit: usize,
        each: &mut impl FnMut(usize, &Completion),
    ) -> Option<usize> {
        if self.is_empty.load(Acquire) {
            return Some(0);
        }
        let mut queue = self.queue.lock();
        if queue.is_overrun() {
            return None;
        }
        let mut count = 0;
        while count < limit {
            let Some(completion) = queue.pop() else {
                self.is_empty.store(true, Relaxed);
                break;
            };
            each(count, &completion);
            count += 1;
        }
        Some(count)
    }

    /// Whether the program's poll, which found `count` completions, is over. If it found none, this may have yielded
    /// the processor, perhaps for long; then the caller has to look again. Call it with nothing locked.
    #[inline]
    pub fn polled(&self, count: usize) -> bool {
        if count == 0 {
            return !self.empty_polls.add(clock::steady);
        }
        self.empty_polls.end();
        true
    }

    /// Asks for an event at the next completion. If there is a completion already that nobody has taken, the event
    /// comes now: true.
    pub fn arm(self: &Arc<Self>, notify: Notify) -> bool {
        let mut queue = self.queue.lock();
        let now = if queue.is_moderated() { clock::steady() } else { 0 };
        let pending = queue.arm(notify, now);
        drop(queue);
        self.carry_out(pending);
        pending.notify
    }

    /// As [`Self::arm`], but an event that would come now is held until [`Self::raise`]. True if there is one.
    pub fn arm_holding(self: &Arc<Self>, notify: Notify) -> bool {
        let mut queue = self.queue.lock();
        let now = if queue.is_moderated() { clock::steady() } else { 0 };
        let pending = queue.arm(notify, now);
        drop(queue);
        self.carry_out(Pending { notify: false, ..pending });
        pending.notify
    }

    /// Raises an event that was held.
    pub fn raise(&self) {
        self.channel.iter().for_each(|channel| channel.raise(CompletionEvent));
    }

    /// Takes the completions that wait as reported: arming raises no event for them.
    pub fn take_as_told(&self) {
        self.queue.lock().take_as_told();
    }

    /// How many completions wait to be polled, if the queue is not busy.
    pub(super) fn waiting(&self) -> Option<usize> {
        self.queue.try_lock().map(|queue| queue.count())
    }

    /// Shows others how it stands now. One that is busy is shown as it was.
    pub(super) fn show(&self) {
        let (Some(queue), Some(listed)) = (self.queue.try_lock(), self.listed) else { return };
        let standing = Standing {
            waiting: queue.count() as u32,
            polls: self.empty_polls.count().wrapping_add(queue.taken()),
            has_channel: self.channel.is_some(),
            is_armed: queue.is_armed(),
        };
        drop(queue);
        self.device.process().segment().catalog().show(listed, standing);
    }

    /// What a program that waits for an event can expect.
    pub fn outlook(&self) -> Outlook {
        let queue = self.queue.lock();
        let is_receive = |it: &Completion| it.opcode as u32 & Opcode::Receive as u32 != 0;
        Outlook {
            is_armed: queue.is_armed(),
            is_moderated: queue.is_moderated(),
            completions: queue.count(),
            has_receive: queue.waiting().any(is_receive),
        }
    }

    /// How many completions wait to be polled.
    pub fn count(&self) -> usize {
        self.queue.lock().count()
    }

    /// The completions that wait to be polled, and what a queue pair has among them. `None` if it is busy for so long.
    pub(super) fn waiting_of(&self, qp: u32, patience: Duration) -> Option<Waiting> {
        self.waiting_for(|it| it.qp == qp, patience)
    }

    fn waiting_for(
        &self,
        is_meant: impl Fn(&Completion) -> bool,
        patience: Duration,
    ) -> Option<Waiting> {
        let begun = Instant::now();
        let queue = loop {
            match self.queue.try_lock() {
                Some(queue) => break queue,
                None if begun.elapsed() > patience => return None,
                None => std::thread::yield_now(),
            }
        };
        let mut waiting = Waiting { count: queue.count(), ..Waiting::default() };
        for it in queue.waiting().filter(|it| is_meant(it)) {
            match it.status {
                Status::Success => waiting.messages += usize::from(is_message(it.opcode)),
                Status::Flushed => {}
                status => waiting.errors.push((it.wr_id, status)),
            }
        }
        Some(waiting)
    }

    /// The device has failed: everybody who waits for an event gets one (rule AE-09).
    pub(crate) fn fail(self: &Arc<Self>) {
        let pending = self.queue.lock().fail();
        self.carry_out(pending);
    }

    /// Changes the size; answers the new one.
    pub fn resize(&self, capacity: usize, asked: u32) -> Result<(), SizeError> {
        self.queue.lock().resize(capacity)?;
        self.asked.store(asked, Relaxed);
        Ok(())
    }

    /// How many completions it holds.
    pub fn capacity(&self) -> usize {
        self.queue.lock().capacity()
    }

    /// Checks that no queue pair uses it (rule CR-12).
    pub fn check_unused(&self) -> Result<(), Busy> {
        if self.queue.lock().is_fed() { Err(Busy) } else { Ok(()) }
    }
}

/// Whether a completion of this kind says that a message has come.
const fn is_message(opcode: Opcode) -> bool {
    use Opcode::{Receive, ReceiveWriteImmediate, TagNone, TagReceive};
    matches!(opcode, Receive | ReceiveWriteImmediate | TagReceive | TagNone)
}

impl HoldsEvents for Cq {
    fn end_period(self: Arc<Self>, now: u64) {
        let pending = self.queue.lock().end_period(now);
        self.carry_out(pending);
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        self.device.process().unlist(self.listed);
        self.device.process().objects().remove(ObjectKind::CompletionQueue);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::OnTheWire;

    /// A handler that ends the process may have interrupted a poll.
    ///
    /// Rules: CHK-02, CHK-03
    #[test]
    fn who_asks_what_waits_for_a_queue_pair_does_not_wait_for_ever() {
        let adapter = OnTheWire::open();
        let events = Arc::new(EventQueue::new().expect("a queue of events"));
        let options = CompletionOptions::default();
        let config = CqConfig {
            capacity: 8,
            asked: 8,
            options,
            channel: None,
            events,
            id: 0,
            context: None,
        };
        let cq = Arc::new(Cq::new(adapter.device(), config).expect("a completion queue"));
        for (wr_id, status, opcode, qp) in [
            (1, Status::Success, Opcode::Receive, 7),
            (2, Status::Success, Opcode::Receive, 8),
            (3, Status::Success, Opcode::Send, 7),
            (4, Status::RemoteAccess, Opcode::Write, 7),
            (5, Status::Flushed, Opcode::Receive, 7),
            (6, Status::Success, Opcode::TagAdd, 7),
        ] {
            cq.push(Feeder::default(), &Completion::new(wr_id, status, opcode, qp), false);
        }
        let waiting = cq.waiting_of(7, Duration::ZERO).expect("nobody holds it");
        assert_eq!((waiting.count, waiting.messages), (6, 1));
        assert_eq!(waiting.errors, [(4, Status::RemoteAccess)]);
        let held = cq.queue.lock();
        assert!(cq.waiting_of(7, Duration::ZERO).is_none());
        drop(held);
        assert_eq!(cq.count(), 6);
    }
}

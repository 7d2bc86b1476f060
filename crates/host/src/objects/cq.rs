//! Completion queues of this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::*};

use transom_device::queue::{Completion, CompletionQueue, Notify, Pushed, TooSmall};

use super::{AsyncEvent, Busy, EventPipe};
use crate::lock::ShortMutex;

/// Where a completion queue's events go, and under which name.
#[derive(Clone, Debug)]
pub struct CompletionTarget {
    /// The completion channel, if the queue has one.
    pub channel: Option<Arc<EventPipe>>,
    /// The context's asynchronous events.
    pub events: Arc<EventPipe>,
    /// How events name the queue.
    pub id: u64,
}

/// A completion queue.
pub struct Cq {
    queue: ShortMutex<CompletionQueue>,
    target: CompletionTarget,
    users: AtomicU32,
}

impl std::fmt::Debug for Cq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cq").field("target", &self.target).finish_non_exhaustive()
    }
}

impl Cq {
    /// A queue for `capacity` completions.
    pub fn new(capacity: usize, target: CompletionTarget) -> Self {
        let queue = ShortMutex::new(CompletionQueue::new(capacity));
        Self { queue, target, users: AtomicU32::new(0) }
    }

    /// How events name it.
    pub fn id(&self) -> u64 {
        self.target.id
    }

    /// Adds a completion; true if the queue has just overrun (rule CQ-05).
    pub(crate) fn push(&self, completion: Completion, solicited: bool) -> bool {
        let Pushed { notify, overrun } = self.queue.lock().push(completion, solicited);
        if notify && let Some(channel) = &self.target.channel {
            channel.raise(0, self.target.id);
        }
        if overrun {
            self.target.events.raise(AsyncEvent::CqError as u64, self.target.id);
        }
        overrun
    }

    /// Takes up to `limit` completions; `None` if the queue has overrun and is unusable.
    #[inline]
    pub(crate) fn take(
        &self,
        limit: usize,
        each: &mut impl FnMut(usize, &Completion),
    ) -> Option<usize> {
        let mut queue = self.queue.lock();
        if queue.is_overrun() {
            return None;
        }
        let mut count = 0;
        while count < limit {
            let Some(completion) = queue.pop() else { break };
            each(count, &completion);
            count += 1;
        }
        Some(count)
    }

    /// Asks for an event at the next completion.
    pub fn arm(&self, notify: Notify) {
        self.queue.lock().arm(notify);
    }

    /// Changes the size; answers the new one.
    pub fn resize(&self, capacity: usize) -> Result<(), TooSmall> {
        self.queue.lock().resize(capacity)
    }

    /// Drops the completions of a queue pair that is destroyed.
    pub(crate) fn forget(&self, qp: u32) {
        self.queue.lock().forget(qp);
    }

    pub(crate) fn adopt(&self) {
        self.users.fetch_add(1, AcqRel);
    }

    pub(crate) fn release(&self) {
        self.users.fetch_sub(1, AcqRel);
    }

    /// Whether queue pairs use it (rule CR-12).
    pub fn check_unused(&self) -> Result<(), Busy> {
        if self.users.load(Acquire) == 0 { Ok(()) } else { Err(Busy) }
    }
}

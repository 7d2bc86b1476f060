//! The moment when a completion was taken.

use std::sync::atomic::{AtomicU64, Ordering};

/// A point in the life of a completion queue. Names of queues are never reused, so moments of different queues are
/// never confused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    queue: u64,
    /// How many completions had been taken.
    number: u64,
}

impl Moment {
    /// The next moment of the same queue.
    pub(crate) fn next(self) -> Self {
        Self { number: self.number + 1, ..self }
    }

    /// Whether it belongs to the same queue, and is later.
    pub(crate) fn is_after(self, other: Self) -> bool {
        self.queue == other.queue && self.number > other.number
    }
}

impl Default for Moment {
    /// The first moment of a new queue.
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { queue: NEXT.fetch_add(1, Ordering::Relaxed), number: 0 }
    }
}

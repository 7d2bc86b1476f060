//! When a thread that polls in vain yields the processor.
//!
//! A hardware adapter works while a program spins. Here the other end needs a processor, and it may need this one. A
//! program that polls to the end of its time slice makes each message wait for milliseconds. So every so many empty
//! polls, the polling thread lets others run.
//!
//! Only a system call tells whether somebody wants this processor. But if nobody does, yielding is over at once, and
//! then it is done less often: on an idle machine once in some hundred microseconds of empty polls.

use std::sync::atomic::{AtomicU32, Ordering::*};

/// After so many empty polls a thread yields, if others want the processor. They take some ten microseconds: longer
/// than an answer takes if the other end has a processor of its own.
const CROWDED: u32 = 200;
/// The same where nobody does.
const ALONE: u32 = CROWDED << 5;
/// If yielding took longer than this, in nanoseconds, another thread ran.
const GAVE_WAY: u64 = 5_000;

/// The empty polls of one queue since the last one that found something. Threads that poll the same queue may miscount;
/// nothing depends on the exact number.
#[derive(Debug)]
pub(super) struct EmptyPolls {
    count: AtomicU32,
    /// How many there are before the polling thread yields.
    limit: AtomicU32,
    /// How often it has yielded.
    yields: AtomicU32,
}

impl EmptyPolls {
    pub(super) fn new() -> Self {
        let (count, limit) = (AtomicU32::new(0), AtomicU32::new(CROWDED));
        Self { count, limit, yields: AtomicU32::new(0) }
    }

    /// A number that changes with each empty poll. A look at it may always find the polling thread where it yields.
    pub(super) fn count(&self) -> u32 {
        let yields = self.yields.load(Relaxed);
        yields.wrapping_mul(2 * ALONE).wrapping_add(self.count.load(Relaxed))
    }

    /// A poll has found something.
    #[inline]
    pub(super) fn end(&self) {
        self.count.store(0, Relaxed);
    }

    /// Counts an empty poll. Yields if it is time, and says whether it did. `now` tells nanoseconds.
    #[inline]
    pub(super) fn add(&self, now: impl Fn() -> u64) -> bool {
        let count = self.count.load(Relaxed) + 1;
        let gives_way = count >= self.limit.load(Relaxed);
        if gives_way {
            self.give_way(now);
        } else {
            self.count.store(count, Relaxed);
        }
        gives_way
    }

    #[cold]
    fn give_way(&self, now: impl Fn() -> u64) {
        self.count.store(0, Relaxed);
        self.yields.store(self.yields.load(Relaxed).wrapping_add(1), Relaxed);
        let start = now();
        std::thread::yield_now();
        let limit = match now().saturating_sub(start) > GAVE_WAY {
            true => CROWDED,
            false => ALONE.min(self.limit.load(Relaxed) * 2),
        };
        self.limit.store(limit, Relaxed);
    }
}

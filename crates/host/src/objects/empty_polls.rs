//! When a thread that polls in vain gives way.
//!
//! An adapter of hardware works while a program spins. Here the other end needs a processor, and it may
//! be this one: a program that polls until its time slice is over makes each message wait for
//! milliseconds. So every so many polls that find nothing, whoever polls lets others run.
//!
//! Nothing tells without a system call whether somebody wants this processor. But giving way to nobody
//! is over at once, and then it is done less often: on an idle machine once in some hundred
//! microseconds of vain polling.

use std::sync::atomic::{AtomicU32, Ordering::*};

/// After how many polls in vain a thread gives way where others want the processor: some ten
/// microseconds, longer than an answer takes on processors of its own.
const CROWDED: u32 = 200;
/// The same where nobody does.
const ALONE: u32 = CROWDED << 5;
/// Whoever gives way for longer, in nanoseconds, has given way to somebody.
const GAVE_WAY: u64 = 5_000;

/// The polls of one queue that have found nothing since the last one that did. Threads that poll one
/// queue may be lost count of; nothing depends on the exact number.
#[derive(Debug)]
pub(super) struct EmptyPolls {
    count: AtomicU32,
    /// How many there are before whoever polls gives way.
    limit: AtomicU32,
}

impl EmptyPolls {
    pub(super) fn new() -> Self {
        Self { count: AtomicU32::new(0), limit: AtomicU32::new(CROWDED) }
    }

    /// A poll has found something.
    #[inline]
    pub(super) fn end(&self) {
        self.count.store(0, Relaxed);
    }

    /// One more has found nothing; gives way if it is time, and says whether it has. `now` tells nanoseconds.
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
        let start = now();
        std::thread::yield_now();
        let limit = match now().saturating_sub(start) > GAVE_WAY {
            true => CROWDED,
            false => ALONE.min(self.limit.load(Relaxed) * 2),
        };
        self.limit.store(limit, Relaxed);
    }
}

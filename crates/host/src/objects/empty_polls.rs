//! When a thread that polls in vain yields the processor.
//!
//! A hardware adapter works while a program spins. Here the other end needs a processor, and it may need this one. A
//! program that polls to the end of its time slice makes each message wait for milliseconds. So every so many empty
//! polls, the polling thread lets others run.
//!
//! Only a system call tells whether somebody wants this processor. But if nobody does, yielding is over at once, and
//! then it is done less often: on an idle machine once in some hundred microseconds of empty polls.
//!
//! Who gets the processor may want something that this thread has: a lock of the program's, which it holds each time it
//! polls. If the thread always yielded there, the other one would never get it. So when others have run several times and
//! nothing has come, the thread yields once in many time slices. In between the system takes the processor away, at any
//! point of the program.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// After so many empty polls a thread yields, if others want the processor. They take some ten microseconds: longer
/// than an answer takes if the other end has a processor of its own.
const CROWDED: u32 = 200;
/// The same where nobody does.
const ALONE: u32 = CROWDED << 5;
/// If yielding took longer than this, in nanoseconds, another thread ran.
const GAVE_WAY: u64 = 5_000;

/// When a thread has yielded to others so many times in a row, and nothing has come, it yields more seldom.
const IN_VAIN: u32 = 8;
/// Once in so many nanoseconds, which are many time slices.
const SELDOM: u64 = 100_000_000;

/// What a thread has yielded for, whichever queues it polls.
#[derive(Clone, Copy)]
struct Yields {
    /// How many in a row were to others, and brought nothing.
    in_vain: u32,
    /// When the last one ended, in nanoseconds.
    last: u64,
}

thread_local! {
    static YIELDS: Cell<Yields> = const { Cell::new(Yields { in_vain: 0, last: 0 }) };
}

/// The empty polls of one queue since the last one that found something. Threads that poll the same queue may miscount;
/// nothing depends on the exact number.
#[derive(Debug)]
pub(super) struct EmptyPolls {
    /// The lower half counts them since the last yield. The rest is [`HAS_YIELDED`].
    polls: AtomicU64,
    /// How many polls there are before the polling thread yields.
    limit: AtomicU32,
    /// How often it was to yield.
    yields: AtomicU32,
}

/// A thread has yielded since a poll found something, in [`EmptyPolls::polls`].
const HAS_YIELDED: u64 = 1 << 32;

impl EmptyPolls {
    pub(super) fn new() -> Self {
        let (polls, limit) = (AtomicU64::new(0), AtomicU32::new(CROWDED));
        Self { polls, limit, yields: AtomicU32::new(0) }
    }

    /// A number that changes with each empty poll. A look at it may always find the polling thread where it yields.
    pub(super) fn count(&self) -> u32 {
        let yields = self.yields.load(Relaxed);
        yields.wrapping_mul(2 * ALONE).wrapping_add(self.polls.load(Relaxed) as u32)
    }

    /// A poll has found something.
    #[inline]
    pub(super) fn end(&self) {
        self.polls.store(0, Relaxed);
    }

    /// Counts an empty poll. Yields if it is time, and says whether it did. `now` tells nanoseconds.
    #[inline]
    pub(super) fn add(&self, now: impl Fn() -> u64) -> bool {
        let polls = self.polls.load(Relaxed) + 1;
        if polls as u32 >= self.limit.load(Relaxed) {
            return self.give_way(polls < HAS_YIELDED, now);
        }
        self.polls.store(polls, Relaxed);
        false
    }

    #[cold]
    fn give_way(&self, has_found: bool, now: impl Fn() -> u64) -> bool {
        self.yields.store(self.yields.load(Relaxed).wrapping_add(1), Relaxed);
        self.polls.store(HAS_YIELDED, Relaxed);
        let (start, Yields { in_vain, last }) = (now(), YIELDS.get());
        let in_vain = if has_found { 0 } else { in_vain };
        if in_vain >= IN_VAIN && start.saturating_sub(last) < SELDOM {
            return false;
        }
        std::thread::yield_now();
        let end = now();
        let (limit, in_vain) = match end.saturating_sub(start) > GAVE_WAY {
            true => (CROWDED, IN_VAIN.min(in_vain + 1)),
            false => (ALONE.min(self.limit.load(Relaxed) * 2), 0),
        };
        self.limit.store(limit, Relaxed);
        YIELDS.set(Yields { in_vain, last: end });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock, and empty polls of a queue. Each look at the clock takes so many nanoseconds.
    struct Polling {
        polls: EmptyPolls,
        now: Cell<u64>,
        look: u64,
    }

    impl Polling {
        fn new(look: u64) -> Self {
            Self { polls: EmptyPolls::new(), now: Cell::new(0), look }
        }

        /// So many empty polls. Says when the thread yielded, in polls.
        fn yields(&self, polls: u32) -> Vec<u32> {
            let now = || self.now.replace(self.now.get() + self.look);
            (1..=polls).filter(|_| self.polls.add(now)).collect()
        }
    }

    /// Rules: CQ-01
    #[test]
    fn a_thread_yields_more_seldom_while_nobody_wants_its_processor() {
        let polling = Polling::new(GAVE_WAY);
        assert_eq!(polling.yields(1_400), [200, 600, 1_400]);
        polling.yields(30 * ALONE);
        assert_eq!(polling.yields(2 * ALONE).len(), 2);
    }

    /// Rules: CQ-01
    #[test]
    fn a_thread_that_yields_in_vain_leaves_it_to_the_system_mostly() {
        let polling = Polling::new(GAVE_WAY + 1);
        assert_eq!(polling.yields(1_600).len() as u32, IN_VAIN);
        for _ in 0..3 {
            let held = polling.yields(200_000);
            assert_eq!(held, [], "it yields again after {} ns", polling.now.get());
            polling.now.set(polling.now.get() + SELDOM);
            assert_eq!(polling.yields(1_600).len(), 1);
        }
        let other = Polling { now: polling.now.clone(), ..Polling::new(GAVE_WAY + 1) };
        other.polls.polls.store(HAS_YIELDED, Relaxed);
        assert_eq!(other.yields(1_600), [], "it is the same thread");
        polling.polls.end();
        assert_eq!(polling.yields(1_400).len(), 7, "something has come");
    }

    /// Rules: CQ-01
    #[test]
    fn what_comes_between_makes_the_yields_count_anew() {
        let polling = Polling::new(GAVE_WAY + 1);
        for _ in 0..10 {
            assert_eq!(polling.yields(1_400).len(), 7);
            polling.polls.end();
        }
    }
}

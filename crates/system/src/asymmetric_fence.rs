//! A memory barrier in the threads of other processes, `membarrier(2)`.
//!
//! Two sides that each store and then load what the other stores need a barrier between the two, on both
//! sides. Where one side does so all the time and the other seldom, the seldom one has the system put
//! barriers into the threads of both, and the other needs none.

use std::sync::atomic::{Ordering::SeqCst, compiler_fence};

use rustix::thread::{MembarrierCommand, membarrier};

/// Has barriers of other processes reach the threads of this one from now on; false where the system
/// has no such thing, or forbids it.
pub fn register() -> bool {
    membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
}

/// A barrier in all threads of all processes that [`register`] them, this one's too. It takes a system call
/// of a few microseconds.
pub fn heavy() {
    // It cannot fail where `register` did not.
    let done = membarrier(MembarrierCommand::GlobalExpedited);
    debug_assert!(done.is_ok());
}

/// Between a store and a load of a side that leaves the barrier to the other: the compiler keeps them in
/// order.
#[inline]
pub fn light() {
    compiler_fence(SeqCst);
}

#[cfg(all(test, not(miri)))]
#[expect(clippy::print_stdout, reason = "tests say what they skip")]
mod tests {
    use std::hint::{black_box, spin_loop};
    use std::sync::atomic::{AtomicU32, Ordering::*};
    use std::thread;

    use super::*;

    /// Apart from what else is written.
    #[derive(Default)]
    #[repr(align(128))]
    struct Line(AtomicU32);

    impl Line {
        /// Waits until it has such a value; the other thread may need this processor.
        fn wait_for(&self, is_it: impl Fn(u32) -> bool) -> u32 {
            loop {
                for _ in 0..1000 {
                    let value = self.0.load(Acquire);
                    if is_it(value) {
                        return value;
                    }
                    spin_loop();
                }
                thread::yield_now();
            }
        }
    }

    /// Of two that each store and then look for the other's store, one at least finds it.
    #[test]
    fn one_of_two_sees_the_other() {
        const ROUNDS: u32 = 50_000;
        if !register() {
            return println!(
                "skipped: the system has no barriers for other processes (membarrier)"
            );
        }
        let [begun, ended, often, seldom] = [(); 4].map(|()| Line::default());
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    begun.wait_for(|value| value == round);
                    often.0.store(1, Relaxed);
                    light();
                    let seen = seldom.0.load(Relaxed);
                    ended.0.store(2 * round + seen, Release);
                }
            });
            let mut missed = 0;
            for round in 1..=ROUNDS {
                often.0.store(0, Relaxed);
                seldom.0.store(0, Relaxed);
                begun.0.store(round, Release);
                // A little later each time: what is not ordered shows within nanoseconds.
                (0..round % 512).for_each(|it| _ = black_box(it));
                seldom.0.store(1, Relaxed);
                heavy();
                let seen = often.0.load(Relaxed);
                let by_other = ended.wait_for(|value| value / 2 == round) % 2;
                missed += u32::from(seen == 0 && by_other == 0);
            }
            assert_eq!(missed, 0);
        });
    }
}

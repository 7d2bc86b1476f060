//! A lock for a handful of instructions.
//!
//! A completion queue's lock is taken twice for every operation, once to add and once to take, and held for a copy of
//! 40 bytes. Releasing this one is a plain store. A lock that can put its waiters to sleep needs an atomic exchange,
//! which takes 15 ns more for each operation. A thread that finds it taken spins a little, then lets the holder run.

use std::sync::atomic::{AtomicBool, Ordering::*};

/// Data under the lock.
pub type ShortMutex<T> = lock_api::Mutex<ShortLock, T>;

/// The lock itself.
pub struct ShortLock(AtomicBool);

// SAFETY: `lock` returns only after its exchange found the flag clear and set it, so one holder at a
// time; `unlock` releases what that holder wrote to the next.
unsafe impl lock_api::RawMutex for ShortLock {
    const INIT: Self = Self(AtomicBool::new(false));
    type GuardMarker = lock_api::GuardSend;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.wait();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        !self.0.swap(true, Acquire)
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.0.store(false, Release);
    }
}

impl ShortLock {
    /// Locks it after its current holder.
    #[cold]
    fn wait(&self) {
        let mut round = 0_u32;
        while self.0.swap(true, Acquire) {
            round = round.saturating_add(1);
            if round < 32 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time() {
        let rounds = if cfg!(miri) { 100 } else { 10_000 };
        let exact = ShortMutex::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..rounds).for_each(|_| *exact.lock() += 1));
            }
        });
        assert_eq!(*exact.lock(), 4 * rounds);
    }
}

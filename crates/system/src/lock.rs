//! Locks: one for a handful of instructions, and one for what the whole process has.
//!
//! A completion queue's lock is taken twice for every operation, once to add and once to take, and held for a copy of
//! 40 bytes. Releasing this one is a plain store. A lock that can put its waiters to sleep needs an atomic exchange,
//! which takes 15 ns more for each operation. A thread that finds it taken spins a little, then lets the holder run.
//!
//! The other lock may be held while a device opens, so its waiters sleep. A fork holds it ([`fork::hold_too`]). All of
//! it is in its own words: a child has none of its parent's waiters, and no list of them either.
//!
//! [`fork::hold_too`]: crate::fork::hold_too

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*};

use rustix::thread::futex;

/// Data under the lock.
pub type ShortMutex<T> = lock_api::Mutex<ShortLock, T>;

/// Data of the whole process, under a lock whose waiters sleep.
pub type SleepingMutex<T> = lock_api::Mutex<SleepingLock, T>;

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

/// The lock of a [`SleepingMutex`].
pub struct SleepingLock {
    /// One of the states below.
    state: AtomicU32,
    /// The thread that holds it ([`this_thread`]), or 0.
    holder: AtomicUsize,
}

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody may sleep until it is free.
const WAITED_FOR: u32 = 2;

/// A number that no other thread has. It takes no system call.
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

// SAFETY: `lock` returns only after an exchange found it free and made it held, so one holder at a time; `unlock`
// releases what that holder wrote to the next.
unsafe impl lock_api::RawMutex for SleepingLock {
    const INIT: Self = Self { state: AtomicU32::new(FREE), holder: AtomicUsize::new(0) };
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.wait();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        let taken = self.state.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok();
        if taken {
            self.holder.store(this_thread(), Relaxed);
        }
        taken
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.holder.store(0, Relaxed);
        if self.state.swap(FREE, Release) == WAITED_FOR {
            self.wake();
        }
    }
}

impl SleepingLock {
    /// Locks it after its current holder.
    #[cold]
    fn wait(&self) {
        while self.state.swap(WAITED_FOR, Acquire) != FREE {
            // It returns at once if the state has changed, and early after a signal.
            let _ = futex::wait(&self.state, futex::Flags::PRIVATE, WAITED_FOR, None);
        }
        self.holder.store(this_thread(), Relaxed);
    }

    #[cold]
    fn wake(&self) {
        let _ = futex::wake(&self.state, futex::Flags::PRIVATE, 1);
    }

    /// Whether this thread holds it.
    pub(crate) fn is_held_here(&self) -> bool {
        self.holder.load(Relaxed) == this_thread()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time_while_the_others_sleep() {
        let rounds = if cfg!(miri) { 100 } else { 10_000 };
        let exact = SleepingMutex::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..rounds).for_each(|_| *exact.lock() += 1));
            }
        });
        assert_eq!(*exact.lock(), 4 * rounds);
        let held = exact.lock();
        // SAFETY: it is not unlocked.
        assert!(exact.try_lock().is_none() && unsafe { exact.raw() }.is_held_here());
        std::thread::scope(|scope| {
            // SAFETY: as above.
            scope.spawn(|| assert!(!unsafe { exact.raw() }.is_held_here()));
        });
        drop(held);
        // SAFETY: as above.
        assert!(!unsafe { exact.raw() }.is_held_here());
    }

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

//! Who takes arrivals: a program that polls, or the background thread.
//!
//! A program that goes to sleep says so, then looks whether the thread listens. A thread that stops listening says so,
//! then looks whether the program sleeps. Each does both in one order for all, so one of them always sees the other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

/// What program and thread know of each other.
#[derive(Default)]
pub(crate) struct Polling {
    /// Counts polls that found nothing.
    in_vain: AtomicU64,
    /// The program has polled since the thread last asked, whether or not it found something. A program that finds
    /// completions which the thread brought polls all the same.
    polled: AtomicBool,
    /// The program is about to sleep, so the thread has to listen for it.
    sleeps: AtomicBool,
    /// The thread sleeps and listens to the sockets of the wire link.
    listens: AtomicBool,
}

impl Polling {
    // The program.

    /// It polls.
    #[inline]
    pub(crate) fn note(&self) {
        // Threads that poll at the same time must not take the cache line from each other.
        if !self.polled.load(Relaxed) {
            self.polled.store(true, Relaxed);
        }
    }

    /// Its poll has found nothing.
    #[inline]
    pub(crate) fn note_in_vain(&self) {
        // Several pollers may miscount. Any change tells the thread enough.
        self.in_vain.store(self.in_vain.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// It is about to sleep.
    pub(crate) fn expect_sleep(&self) {
        self.sleeps.store(true, SeqCst);
    }

    /// Whether it has to wake the thread. Ask this after [`Polling::expect_sleep`].
    pub(crate) fn needs_wake(&self) -> bool {
        !self.listens.load(SeqCst)
    }

    /// Whether the thread listens now.
    #[inline]
    pub(crate) fn thread_listens(&self) -> bool {
        self.listens.load(Relaxed)
    }

    // The background thread.

    /// Whether the program has polled since the last call with `begin_anew`.
    pub(crate) fn has_polled(&self, begin_anew: bool) -> bool {
        let polled = self.polled.load(Relaxed);
        if polled && begin_anew {
            self.polled.store(false, Relaxed);
        }
        polled
    }

    /// How many polls have found nothing. It may be a few more.
    pub(crate) fn in_vain(&self) -> u64 {
        self.in_vain.load(Relaxed)
    }

    /// Whether the program has been about to sleep since the last call.
    pub(crate) fn take_sleep(&self) -> bool {
        self.sleeps.swap(false, SeqCst)
    }

    /// Begins to listen, or ends. Returns whether arrivals have to wake the thread: also if the program is about to
    /// sleep. A program that has found the thread listening does not wake it.
    pub(crate) fn listen(&self, listens: bool) -> bool {
        self.listens.store(listens, SeqCst);
        listens || self.sleeps.load(SeqCst)
    }
}

//! The program's exit, as the thread that exits and the background thread share it.
//!
//! A program may exit in the handler of a signal. Then the thread that exits has been interrupted anywhere, and holds
//! locks that it never releases: one of `malloc`, or of a verb. So it takes no memory, gives none back, and takes no
//! lock. It asks the background thread to tell the peers, and waits for it. The wait is bounded, because the background
//! thread may need one of those locks.

use std::sync::atomic::{AtomicU32, Ordering::*};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::thread::futex;

/// How long the background thread waits for the locks and peers that it needs.
const PATIENCE: Duration = Duration::from_secs(1);

/// Values of [`Exit`].
const RUNS: u32 = 0;
const EXITS: u32 = 1;
const TOLD: u32 = 2;

/// Whether the program exits, and whether its peers have been told.
pub(crate) struct Exit(AtomicU32);

impl Exit {
    /// The program runs.
    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(RUNS))
    }

    /// The program exits. Wake the background thread after this.
    pub(crate) fn begin(&self) {
        let _ = self.0.compare_exchange(RUNS, EXITS, SeqCst, SeqCst);
    }

    /// Waits until the background thread has told the peers, at most until then.
    pub(crate) fn wait(&self, until: Instant) {
        while self.0.load(Acquire) == EXITS {
            let left = until.saturating_duration_since(Instant::now());
            let Some(left) = Timespec::try_from(left).ok().filter(|_| !left.is_zero()) else {
                return;
            };
            // A signal may end it early.
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, EXITS, Some(&left));
        }
    }

    /// For the background thread: tells the peers, if the program exits and they are not told yet. They are given up at
    /// the time in the argument.
    pub(crate) fn carry_out(&self, tell: impl FnOnce(Instant)) {
        /// A panic ends the wait too.
        struct Told<'a>(&'a AtomicU32);
        impl Drop for Told<'_> {
            fn drop(&mut self) {
                self.0.store(TOLD, Release);
                let _ = futex::wake(self.0, futex::Flags::PRIVATE, u32::MAX >> 1);
            }
        }

        if self.0.load(SeqCst) == EXITS {
            let _told = Told(&self.0);
            tell(Instant::now() + PATIENCE);
        }
    }
}

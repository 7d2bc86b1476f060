//! The turn of a thread that polls a completion queue field by field.

use std::cell::UnsafeCell;

use parking_lot::RawMutex;
use parking_lot::lock_api::RawMutex as _;
use transom_abi::{ibv_wc, ibv_wc_tm_info};

/// The current completion, and the lock of the thread that reads it. The lock is held from `start_poll` to `end_poll`.
pub(crate) struct Poller {
    /// `None` for a queue that only one thread uses at a time.
    turn: Option<RawMutex>,
    pub(crate) current: UnsafeCell<Current>,
}

// SAFETY: only the thread whose turn it is reaches the current completion. For a queue that one thread uses at a time,
// the program promises this.
unsafe impl Sync for Poller {}

/// The completion that the program reads now.
#[derive(Default)]
pub(crate) struct Current {
    pub(crate) wc: ibv_wc,
    pub(crate) tag: ibv_wc_tm_info,
    /// The time when it was added, in nanoseconds of the steady clock.
    pub(crate) time: u64,
}

impl Default for Poller {
    fn default() -> Self {
        Self::new(false)
    }
}

impl Poller {
    pub(crate) fn new(single_threaded: bool) -> Self {
        let turn = (!single_threaded).then_some(RawMutex::INIT);
        Self { turn, current: UnsafeCell::default() }
    }

    /// Takes the turn, until [`Poller::end`].
    pub(crate) fn begin(&self) -> Turn<'_> {
        if let Some(turn) = &self.turn {
            turn.lock();
        }
        Turn(self)
    }

    /// Ends the turn that [`Poller::begin`] began, if there is one.
    pub(crate) fn end(&self) {
        if let Some(turn) = self.turn.as_ref().filter(|turn| turn.is_locked()) {
            // SAFETY: the polling thread has locked it, and only that thread calls this.
            unsafe { turn.unlock() };
        }
    }
}

/// Ends the turn when it is dropped.
pub(crate) struct Turn<'a>(&'a Poller);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

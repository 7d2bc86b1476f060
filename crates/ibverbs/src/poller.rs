//! The turn of whoever polls a completion queue field by field.

use std::cell::UnsafeCell;

use parking_lot::RawMutex;
use parking_lot::lock_api::RawMutex as _;
use transom_abi::{ibv_wc, ibv_wc_tm_info};

/// The completion that is read, and the lock of who reads it: held from `start_poll` to `end_poll`.
pub(crate) struct Poller {
    /// None for a queue that one thread uses at a time.
    turn: Option<RawMutex>,
    pub(crate) current: UnsafeCell<Current>,
}

// SAFETY: the current completion is reached by whose turn it is; of a queue that one thread uses at a
// time, C sees to it.
unsafe impl Sync for Poller {}

/// The completion that is read.
#[derive(Default)]
pub(crate) struct Current {
    pub(crate) wc: ibv_wc,
    pub(crate) tag: ibv_wc_tm_info,
    /// When it was added, in nanoseconds of the steady clock.
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

    /// Ends what [`Poller::begin`] began; nothing if nothing was.
    pub(crate) fn end(&self) {
        if let Some(turn) = self.turn.as_ref().filter(|turn| turn.is_locked()) {
            // SAFETY: locked by the thread that polls, which is the only one to end it.
            unsafe { turn.unlock() };
        }
    }
}

/// Ends a turn that comes to nothing.
pub(crate) struct Turn<'a>(&'a Poller);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

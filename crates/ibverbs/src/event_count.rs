//! The counts that make a destroy wait for acknowledgements.

use parking_lot::{Condvar, Mutex};

/// Events delivered and acknowledged (rules CR-18, AE-06).
#[derive(Default)]
pub(crate) struct EventCount {
    unacknowledged: Mutex<u64>,
    changed: Condvar,
}

impl EventCount {
    pub(crate) fn delivered(&self) {
        *self.unacknowledged.lock() += 1;
    }

    pub(crate) fn acknowledged(&self, count: u64) {
        let mut left = self.unacknowledged.lock();
        *left = left.saturating_sub(count);
        self.changed.notify_all();
    }

    /// Whether everything delivered is acknowledged.
    pub(crate) fn is_settled(&self) -> bool {
        *self.unacknowledged.lock() == 0
    }

    /// Waits until everything delivered is acknowledged.
    pub(crate) fn settle(&self) {
        let mut left = self.unacknowledged.lock();
        while *left > 0 {
            self.changed.wait(&mut left);
        }
    }
}

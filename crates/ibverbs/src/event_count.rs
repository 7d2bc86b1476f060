//! The counts that make a destroy wait for acknowledgements.

use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

/// A program that still means to acknowledge its events has done so by then.
const LONG: Duration = Duration::from_secs(1);

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

    /// Waits until everything delivered is acknowledged. If that takes long, `late` says once how many are not, with
    /// nothing locked.
    pub(crate) fn settle(&self, late: impl FnOnce(u64)) {
        let mut late = Some(late);
        let mut left = self.unacknowledged.lock();
        while *left > 0 {
            if late.is_none() {
                self.changed.wait(&mut left);
            } else if self.changed.wait_for(&mut left, LONG).timed_out() && *left > 0 {
                let count = *left;
                MutexGuard::unlocked(&mut left, || {
                    late.take().into_iter().for_each(|it| it(count))
                });
            }
        }
    }
}

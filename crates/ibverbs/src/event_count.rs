//! The counts of events that make a destroy wait for acknowledgements.

use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use transom_check::ledger::Owner;

use crate::{check, sanitized, wrong};

/// After this time, a program has most likely forgotten to acknowledge its events.
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
        sanitized::tells(self);
        let mut left = self.unacknowledged.lock();
        *left = left.saturating_sub(count);
        self.changed.notify_all();
    }

    /// Whether everything delivered is acknowledged. If it is, what threads did before they acknowledged comes before
    /// what the caller does.
    pub(crate) fn is_settled(&self) -> bool {
        let settled = *self.unacknowledged.lock() == 0;
        if settled {
            sanitized::is_told(self);
        }
        settled
    }

    /// Waits until everything delivered is acknowledged. If that takes long, it reports this once.
    pub(crate) fn settle(&self, wait: &Wait) {
        if self.is_settled() {
            return;
        }
        // Nothing may be locked here: the checker may take a while.
        let is_told =
            check::on().is_some_and(|checker| checker.waits(wait.verb, wait.owner, false));
        let mut is_late = false;
        let mut left = self.unacknowledged.lock();
        while *left > 0 {
            if is_late {
                self.changed.wait(&mut left);
            } else if self.changed.wait_for(&mut left, LONG).timed_out() && *left > 0 {
                is_late = true;
                let count = *left;
                MutexGuard::unlocked(&mut left, || wait.is_late(count, is_told));
            }
        }
    }
}

/// A verb that waits for events of an object to be acknowledged.
pub(crate) struct Wait {
    pub(crate) verb: &'static str,
    pub(crate) owner: Owner,
}

impl Wait {
    #[cold]
    fn is_late(&self, count: u64, is_told: bool) {
        wrong::waits(self.verb, self.owner.event.acknowledged_by(), count);
        if let Some(checker) = check::on().filter(|_| !is_told) {
            checker.waits(self.verb, self.owner, true);
        }
    }
}

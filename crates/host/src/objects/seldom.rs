//! Frequent occurrences that are noted only now and then.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use transom_system::clock;

/// The least time between two notes, in nanoseconds.
const APART: u64 = 1_000_000_000;

/// When something was noted last.
#[derive(Debug, Default)]
pub(super) struct Seldom(AtomicU64);

impl Seldom {
    /// Whether to note it now.
    pub(super) fn is_due(&self) -> bool {
        let (now, last) = (clock::steady(), self.0.load(Relaxed));
        let due = last == 0 || now.saturating_sub(last) >= APART;
        due && self.0.compare_exchange(last, now, Relaxed, Relaxed).is_ok()
    }
}

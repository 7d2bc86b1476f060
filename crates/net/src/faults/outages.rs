//! A port that is down for a while.

use std::sync::atomic::{AtomicU32, Ordering::*};

/// How many outages there are now.
#[derive(Debug, Default)]
pub struct Outages(AtomicU32);

impl Outages {
    /// Whether the port is down now.
    #[inline]
    pub fn is_down(&self) -> bool {
        self.0.load(Acquire) > 0
    }

    /// An outage begins. Returns whether it is the only one.
    pub fn begin(&self) -> bool {
        self.0.fetch_add(1, AcqRel) == 0
    }

    /// An outage is over. Returns whether it was the last.
    pub fn end(&self) -> bool {
        self.0.fetch_sub(1, AcqRel) == 1
    }
}

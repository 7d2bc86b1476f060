//! Protection domains: a number, and a count of what belongs to it (rules A.1).

use std::sync::atomic::{AtomicU32, Ordering::*};

/// Still in use by something else: `EBUSY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// A protection domain.
#[derive(Debug)]
pub struct ProtectionDomain {
    number: u32,
    children: AtomicU32,
}

/// The count of a domain that has been freed.
const CLOSED: u32 = u32::MAX;

impl ProtectionDomain {
    pub(crate) fn new(number: u32) -> Self {
        Self { number, children: AtomicU32::new(0) }
    }

    /// Its number, unique on the device.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Counts a region, window or queue pair that belongs to it; fails once it is freed.
    pub fn adopt(&self) -> Result<(), Busy> {
        let one_more = |count| (count < CLOSED - 1).then(|| count + 1);
        self.children.fetch_update(AcqRel, Relaxed, one_more).map(drop).map_err(|_| Busy)
    }

    /// Counts one less.
    pub fn release(&self) {
        self.children.fetch_sub(1, AcqRel);
    }

    /// Ends the domain unless something belongs to it (rules PD-02 to PD-06, PD-09).
    pub fn close(&self) -> Result<(), Busy> {
        self.children.compare_exchange(0, CLOSED, AcqRel, Relaxed).map(drop).map_err(|_| Busy)
    }
}

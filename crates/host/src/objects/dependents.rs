//! Counts the objects that depend on another one. It can end only at zero.

use std::sync::atomic::{AtomicU32, Ordering::*};

/// Still in use by something else: `EBUSY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("still in use by something else")]
pub struct Busy;

/// How many other objects depend on one.
#[derive(Debug, Default)]
pub(super) struct Dependents(AtomicU32);

/// The count of an object that has ended.
const CLOSED: u32 = u32::MAX;

impl Dependents {
    /// Counts one more; fails once the object has ended.
    pub(super) fn adopt(&self) -> Result<(), Busy> {
        let one_more = |count| (count < CLOSED - 1).then(|| count + 1);
        self.0.fetch_update(AcqRel, Relaxed, one_more).map(drop).map_err(|_| Busy)
    }

    /// Counts one less.
    pub(super) fn release(&self) {
        self.0.fetch_sub(1, AcqRel);
    }

    /// Ends the object unless something depends on it.
    pub(super) fn close(&self) -> Result<(), Busy> {
        self.0.compare_exchange(0, CLOSED, AcqRel, Relaxed).map(drop).map_err(|_| Busy)
    }

    /// Whether something depends on the object.
    pub(super) fn check_unused(&self) -> Result<(), Busy> {
        if matches!(self.0.load(Acquire), 0 | CLOSED) { Ok(()) } else { Err(Busy) }
    }

    /// How many depend on it.
    pub(super) fn count(&self) -> u64 {
        match self.0.load(Acquire) {
            CLOSED => 0,
            count => count.into(),
        }
    }

    /// Whether the object has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.0.load(Acquire) == CLOSED
    }
}

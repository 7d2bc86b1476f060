//! Thread domains: the program's word that one thread at a time uses what is made in one.
//!
//! No lock is left out for it. The word covers the program's threads, but the background thread and
//! the peers' messages reach the same queues; and an uncontended lock is two of the roughly thirty
//! nanoseconds that posting and polling take at the least.

use super::Busy;
use super::dependents::Dependents;

/// A thread domain.
#[derive(Debug, Default)]
pub struct ThreadDomain {
    parent_domains: Dependents,
}

impl ThreadDomain {
    /// Counts a parent domain that uses it; fails once it is freed.
    pub(super) fn adopt(&self) -> Result<(), Busy> {
        self.parent_domains.adopt()
    }

    /// Counts one less.
    pub(super) fn release(&self) {
        self.parent_domains.release();
    }

    /// Ends it unless a parent domain uses it.
    pub fn close(&self) -> Result<(), Busy> {
        self.parent_domains.close()
    }
}

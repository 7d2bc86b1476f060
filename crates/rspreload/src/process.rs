//! The process whose rsockets these are.
//!
//! A child that has its memory in common with the parent, until it calls `exec` (`vfork(2)`), must not change what
//! the parent's descriptors stand for.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

static OWNER: AtomicU32 = AtomicU32::new(0);

/// The rsockets are this process's from now on.
pub(crate) fn take() {
    OWNER.store(std::process::id(), Relaxed);
}

/// Whether the rsockets are this process's.
pub(crate) fn has_rsockets() -> bool {
    OWNER.load(Relaxed) == std::process::id()
}

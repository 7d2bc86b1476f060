//! The process that owns the rsockets.
//!
//! A `vfork(2)` child shares memory with its parent until it calls `exec`. It must not change which rsockets the
//! parent's descriptors stand for.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

static OWNER: AtomicU32 = AtomicU32::new(0);

/// This process owns the rsockets from now on.
pub(crate) fn take() {
    OWNER.store(std::process::id(), Relaxed);
}

/// Whether this process owns the rsockets.
pub(crate) fn has_rsockets() -> bool {
    OWNER.load(Relaxed) == std::process::id()
}

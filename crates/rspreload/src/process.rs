//! The process whose rsockets these are.
//!
//! A child that it forks has none: rsockets cannot be used by both, and what a descriptor still stands for
//! there would be the parent's. A child that has its memory in common with the parent, until it calls
//! `exec` (`vfork(2)`), must not change what the parent's descriptors stand for.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::{epoll, table};

static OWNER: AtomicU32 = AtomicU32::new(0);

/// This process has rsockets from now on; false if it can have none.
pub(crate) fn takes_rsockets() -> bool {
    static TAKEN: OnceLock<bool> = OnceLock::new();
    *TAKEN.get_or_init(|| {
        OWNER.store(std::process::id(), Relaxed);
        // SAFETY: functions of this library, which is never unloaded.
        unsafe { libc::pthread_atfork(Some(epoll::hold), Some(in_parent), Some(in_child)) == 0 }
    }) && has_rsockets()
}

/// Whether the rsockets are this process's.
pub(crate) fn has_rsockets() -> bool {
    OWNER.load(Relaxed) == std::process::id()
}

unsafe extern "C" fn in_parent() {
    // SAFETY: held by this thread.
    unsafe { epoll::release(false) };
}

unsafe extern "C" fn in_child() {
    table::clear();
    // SAFETY: held by the thread that this one is the copy of.
    unsafe { epoll::release(true) };
    OWNER.store(std::process::id(), Relaxed);
}

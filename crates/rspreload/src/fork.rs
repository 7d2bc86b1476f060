//! A child that the process forks has none of its rsockets: they cannot be used by both, and what a descriptor still
//! stands for there would be the parent's.

use std::sync::OnceLock;

use crate::process::{has_rsockets, take};
use crate::{epoll, table};

/// This process has rsockets from now on; false if it can have none.
pub(crate) fn takes_rsockets() -> bool {
    static TAKEN: OnceLock<bool> = OnceLock::new();
    *TAKEN.get_or_init(|| {
        take();
        // SAFETY: functions of this library, which is never unloaded.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) == 0 }
    }) && has_rsockets()
}

unsafe extern "C" fn before() {
    epoll::hold();
}

unsafe extern "C" fn in_parent() {
    // SAFETY: held by this thread.
    unsafe { epoll::release(false) };
}

unsafe extern "C" fn in_child() {
    table::clear();
    // SAFETY: held by the thread that this one is the copy of.
    unsafe { epoll::release(true) };
    take();
}

//! A forked child has none of its parent's rsockets. Two processes cannot use one rsocket, so in the child no
//! descriptor may still stand for the parent's.

use std::sync::OnceLock;

use crate::process::{has_rsockets, take};
use crate::{epoll, table};

/// This process may have rsockets from now on. False if it can have none.
pub(crate) fn takes_rsockets() -> bool {
    static TAKEN: OnceLock<bool> = OnceLock::new();
    *TAKEN.get_or_init(|| {
        take();
        // SAFETY: the functions belong to this library, which is never unloaded.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) == 0 }
    }) && has_rsockets()
}

unsafe extern "C" fn before() {
    epoll::hold();
}

unsafe extern "C" fn in_parent() {
    // SAFETY: `before` has locked them in this thread.
    unsafe { epoll::release(false) };
}

unsafe extern "C" fn in_child() {
    table::clear();
    // SAFETY: `before` has locked them in the thread whose copy this one is.
    unsafe { epoll::release(true) };
    take();
}

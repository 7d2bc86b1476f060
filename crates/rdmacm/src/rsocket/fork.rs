//! A forked child has none of its parent's sockets.
//!
//! Other threads of the parent do not exist in the child, and what they had locked at the fork stays locked
//! there: so the child leaves its parent's sockets alone, and ends none at its exit.

use std::sync::Once;

use super::socket::SOCKETS;

/// Children leave the sockets alone from now on.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: three functions that live as long as this library, which the C library forgets when the
        // library is unloaded. It fails for want of memory only, and a child has its parent's sockets then.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
}

unsafe extern "C" fn before() {
    SOCKETS.hold();
}

unsafe extern "C" fn in_parent() {
    // SAFETY: held by `before`, in this thread.
    unsafe { SOCKETS.release() };
}

unsafe extern "C" fn in_child() {
    // SAFETY: held by `before`, in the thread that this one is the copy of.
    unsafe { SOCKETS.leave_to_parent() };
}

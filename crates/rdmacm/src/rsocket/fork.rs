//! A forked child has none of its parent's sockets.
//!
//! The parent's other threads do not exist in the child, and locks that they held at the fork stay locked there. So the
//! child does not touch its parent's sockets, and ends none at its exit.

use std::sync::Once;

use super::socket::SOCKETS;

/// From now on, forked children do not touch the sockets.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the functions live as long as this library, and the C library drops them when the library is
        // unloaded. The call fails only without memory. Then a child has its parent's sockets.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
}

unsafe extern "C" fn before() {
    SOCKETS.hold();
}

unsafe extern "C" fn in_parent() {
    // SAFETY: `before` has locked it in this thread.
    unsafe { SOCKETS.release() };
}

unsafe extern "C" fn in_child() {
    // SAFETY: `before` has locked it in the thread whose copy this one is.
    unsafe { SOCKETS.leave_to_parent() };
}

//! What a forked child has of its parent's: no socket that it could use, and no device. It opens its own.
//!
//! Other threads of the parent do not exist in the child, and what they had locked at the fork stays locked
//! there: so the child leaves sockets and devices alone, and ends none at its exit.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::rsocket::SOCKETS;

/// How many forks lie between this process and the first that used this library.
static DEPTH: AtomicU64 = AtomicU64::new(0);

/// A number that differs from process to process along a line of forks, once [`watch`] was called.
pub(crate) fn depth() -> u64 {
    DEPTH.load(Relaxed)
}

/// Forks are told from now on.
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
    DEPTH.fetch_add(1, Relaxed);
    // SAFETY: held by `before`, in the thread that this one is the copy of.
    unsafe { SOCKETS.leave_to_parent() };
}

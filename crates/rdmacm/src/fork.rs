//! How many forks there were: a forked child has no device of its parent's that it could use, and opens its own.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How many forks lie between this process and the first that used this library.
static DEPTH: AtomicU64 = AtomicU64::new(0);

/// A number that differs from process to process along a line of forks, once [`watch`] was called.
pub(crate) fn depth() -> u64 {
    DEPTH.load(Relaxed)
}

/// Forks are counted from now on.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    unsafe extern "C" fn in_child() {
        DEPTH.fetch_add(1, Relaxed);
    }
    ONCE.call_once(|| {
        // SAFETY: a function that lives as long as this library, which the C library forgets when the library is
        // unloaded. It fails for want of memory only, and a child has its parent's devices then.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

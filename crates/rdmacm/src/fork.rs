//! Counts forks. A forked child cannot use its parent's devices, and opens its own.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The number of forks between the first process that used this library and this one.
static DEPTH: AtomicU64 = AtomicU64::new(0);

/// The number of forks so far. A child's number differs from its ancestors' once [`watch`] has been called.
pub(crate) fn depth() -> u64 {
    DEPTH.load(Relaxed)
}

/// Counts forks from now on.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    unsafe extern "C" fn in_child() {
        DEPTH.fetch_add(1, Relaxed);
    }
    ONCE.call_once(|| {
        // SAFETY: the function lives as long as this library, and the C library drops it when the library is unloaded.
        // The call fails only without memory. Then a child has its parent's devices.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

//! Panics of others' code: of wakers, and of buffers when they are dropped.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Makes such a call with nothing locked; `None` if it panicked, which the panic hook has said then.
///
/// Whoever happens to make the call has nothing to do with it, and others are still to be woken.
pub(crate) fn outlive<T>(call: impl FnOnce() -> T) -> Option<T> {
    // What a panic carries may panic when it is dropped.
    catch_unwind(AssertUnwindSafe(call)).map_err(std::mem::forget).ok()
}

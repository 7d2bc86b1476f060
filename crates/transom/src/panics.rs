//! Panics of others' code: of wakers, and of buffers when they are dropped.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Makes such a call with nothing locked. If it panics, the panic hook has said so, and that is all.
///
/// Whoever happens to make the call has nothing to do with it, and others are still to be woken.
pub(crate) fn outlive(call: impl FnOnce()) {
    // What a panic carries may panic when it is dropped.
    let _ = catch_unwind(AssertUnwindSafe(call)).map_err(std::mem::forget);
}

//! Panics in foreign code: in wakers, and in the drop of buffers.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls foreign code with nothing locked, and stops a panic there. The panic hook has already reported it.
///
/// The thread that happens to make the call has nothing to do with the panic, and must still wake others.
pub(crate) fn outlive(call: impl FnOnce()) {
    // The payload of a panic may panic when it is dropped, so it is never dropped.
    let _ = catch_unwind(AssertUnwindSafe(call)).map_err(std::mem::forget);
}

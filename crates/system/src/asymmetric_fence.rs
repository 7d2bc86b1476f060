//! A memory barrier in the threads of other processes, `membarrier(2)`.
//!
//! Two sides that each store and then load what the other stores need a barrier between the two, on both
//! sides. Where one side does so all the time and the other seldom, the seldom one has the system put
//! barriers into the threads of both, and the other needs none.

use std::sync::atomic::{Ordering::SeqCst, compiler_fence};

use rustix::thread::{MembarrierCommand, membarrier};

/// Has barriers of other processes reach the threads of this one from now on; false where the system
/// has no such thing, or forbids it.
pub fn register() -> bool {
    membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
}

/// A barrier in all threads of all processes that [`register`] them, this one's too. It takes a system call
/// of a few microseconds.
pub fn heavy() {
    // It cannot fail where `register` did not.
    let done = membarrier(MembarrierCommand::GlobalExpedited);
    debug_assert!(done.is_ok());
}

/// Between a store and a load of a side that leaves the barrier to the other: the compiler keeps them in
/// order.
#[inline]
pub fn light() {
    compiler_fence(SeqCst);
}

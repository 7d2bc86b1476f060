//! The adapter itself, without I/O. Packets and posted work come in as values. Segments, packets, completions of
//! receives, events and the next deadline come out ([`Effects`](execution::Effects)). It has no threads, no sockets, no
//! clock, no unsafe. The trait [`Process`](execution::Process) gives it what it needs at once, such as memory and the
//! time, and takes completions of the send queue and notes of refusals.
//!
//! | room | holds |
//! |---|---|
//! | [`operation`] | the table of operations and their needs |
//! | [`protection`] | the key table, the functions that decide whether an access is allowed, windows and regions |
//! | [`queue`] | completion queues and the rings of posted work |
//! | [`qp`] | queue pair numbers, states and their table, the summary that others may read |
//! | [`execution`] | the effect of a request at its target, and of posting and completing at its origin; retries, the send window |
//! | [`transport`] | for links that carry packets: bursts of them, answers, congestion |
//!
//! Rule ids in the documentation (`RA-33`, `INV-23`) are those of `spec/rules.md`.
#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod access;
pub mod execution;
mod numbered;
pub mod operation;
pub mod protection;
pub mod qp;
pub mod queue;
pub mod transport;

pub use access::Access;

/// Atomics that a model checker can stand in for.
mod sync {
    #[cfg(not(loom))]
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    #[cfg(loom)]
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    /// Orders what precedes before what follows, for every thread.
    ///
    /// The announcement of a key and its revocation are each a sequentially consistent
    /// read-modify-write followed by sequentially consistent loads, which is ordered by itself.
    /// The model checker takes such accesses for acquire and release only, so it gets the fence.
    #[inline]
    pub(crate) fn total_order() {
        #[cfg(loom)]
        fence(Ordering::SeqCst);
    }
}

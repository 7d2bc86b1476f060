//! The adapter itself, without I/O: packets and posted work come in as values; segments, packets,
//! completions of receives, events and the next deadline come out ([`Effects`](execution::Effects)). No threads,
//! no sockets, no clock, no unsafe; what it must have at once, memory and the time among it, and what is done at
//! once, completions of the send queue and notes of refusals, goes by the trait [`Process`](execution::Process).
//!
//! | room | holds |
//! |---|---|
//! | [`operation`] | the table of operations: what each one needs |
//! | [`protection`] | the key table, the functions that decide what is allowed, windows and regions |
//! | [`queue`] | completion queues and the rings of posted work |
//! | [`qp`] | queue pair numbers, states and their table, the summary that others may read |
//! | [`execution`] | what a request does at its target, and what posting and completing mean at its origin; retries, the send window |
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
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    #[cfg(loom)]
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    /// Orders what precedes before what follows, for every thread.
    ///
    /// The announcement of a key and its revocation are each a sequentially consistent
    /// read-modify-write followed by sequentially consistent loads, which is ordered by itself.
    /// The model checker takes such accesses for acquire and release only, so it gets the fence.
    #[inline]
    pub(crate) fn total_order() {
        #[cfg(loom)]
        loom::sync::atomic::fence(Ordering::SeqCst);
    }
}

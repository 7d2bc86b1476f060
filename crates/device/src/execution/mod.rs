//! Execution: what a request does at its target, and what posting and completing mean at its
//! origin. Every link ends here.
//!
//! ```text
//!   post ─► Requester ──Request (a segment)──► link ──► Responder ─► memory, receive, completion
//!               ▲                                           │
//!   completion ─┴────────────Reply──────────── link ◄───────┘
//!
//!   Requester ──one_sided──► the target's memory, if its key table and queue pair allow it
//! ```
//!
//! [`one_sided`] is both the responder's way to carry out WRITE and READ and the initiator's direct
//! way; whatever it declines there goes to the responder as a message, which decides by itself.
//! [`retry`] counts and times retries, for every link. Where a link carries packets, the requester
//! numbers them and keeps to a window; how they look is for [`transport`](crate::transport).

mod counted;
mod local;
pub mod one_sided;
mod origin;
mod rendezvous;
mod request;
mod requester;
mod responder;
pub mod retry;
mod segmentation;

pub use counted::Counted;
pub use local::{Bytes, CopyError, LocalBuffers, Sink, Source};
pub use origin::{Direct, Origin, Payload, Sent};
pub use rendezvous::Rendezvous;
pub use request::{Injection, Part, Reply, Request};
pub use requester::{Requester, RequesterLimits};
pub use responder::{Receives, Responder};
pub use segmentation::{MAX_TRAIN, packets};

pub use crate::protection::MAX_MESSAGE;

use crate::protection::{Announcer, Grant, KeyTable, Refusal, Waiter};
use crate::qp::{QpNumber, QpSummary, QpTable};
use crate::queue::{Completion, Receive, Take};

/// Longest datagram, in bytes: one packet of the largest MTU there is (rules UD-03, PK-11).
pub const MAX_DATAGRAM: u64 = 4096;

/// Which of a queue pair's two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueSide {
    /// The send queue.
    Send,
    /// The receive queue.
    Receive,
}

/// Asynchronous events about a queue pair (rules G.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpEvent {
    /// The first request arrived before the program moved to RTS.
    Established,
    /// A peer's request was refused access (rule RA-45).
    AccessError,
    /// A peer's request was invalid (rule RA-51).
    RequestError,
    /// The send queue has drained in SQD (rule ST-16).
    SendQueueDrained,
    /// The queue pair is in error and takes no more from its shared receive queue (rule ST-22).
    LastWqeReached,
}

/// What taking from a shared receive queue found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeShared {
    /// What the queue said.
    Found(Take),
    /// There is no such shared queue for this queue pair.
    Unknown,
}

/// Memory that cannot be reached any more, or not in this way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the memory cannot be reached any more")]
pub struct MemoryGone;

/// What a queue pair needs of the process around it.
pub trait Services {
    /// The process's own key table.
    fn keys(&self) -> KeyTable<'_>;
    /// The process's own queue pairs.
    fn qps(&self) -> QpTable<'_>;
    /// As whom this process announces.
    fn announcer(&self) -> Announcer;
    /// How to wait.
    fn waiter(&self) -> &dyn Waiter;
    /// Nanoseconds of a steady clock.
    fn now(&self) -> u64;
    /// The number of this queue pair.
    fn number(&self) -> QpNumber;
    /// The summary of this queue pair.
    fn summary(&self) -> &QpSummary;
    /// Writes `bytes` to the process's own memory at `at`.
    fn store(&self, at: &Grant<'_>, bytes: &[u8]) -> Result<(), MemoryGone>;
    /// Writes pieces one after the other from `at` on; together they are as long as it. A link that
    /// can do that in one step does.
    fn store_pieces(&self, at: &Grant<'_>, pieces: &[&[u8]]) -> Result<(), MemoryGone>;
    /// Replaces the eight bytes at `at` by what `update` makes of them, as one step among all
    /// atomics of this device; answers the old value (rule AT-09).
    fn atomic(&self, at: &Grant<'_>, update: &mut dyn FnMut(u64) -> u64)
    -> Result<u64, MemoryGone>;
    /// A message is done, and its completion is about to be seen: a link whose answer could be lost
    /// if the program ended right then sends it now. [`Responder::execute`] returns it as well.
    fn acknowledge(&self, reply: Reply) {
        let _ = reply;
    }
    /// Hands a completion to the queue's completion queue.
    fn complete(&self, side: QueueSide, completion: Completion, solicited: bool);
    /// Takes a receive for a message from the shared queue that the queue pair was created with, or,
    /// for XRC, from the one of its domain that the message names by `srq`. `tag` is the tag that a
    /// queue with tag matching matches.
    fn take_shared(
        &self,
        srq: Option<u32>,
        tag: Option<u64>,
        least: u64,
        receive: &mut Receive,
    ) -> TakeShared;
    /// A message that was noted as unexpected by [`Services::take_shared`] has failed.
    fn forget_unexpected(&self);
    /// A rendezvous waits in [`Responder::next_rendezvous`], or there is room for another in
    /// [`Requester::rendezvous`]: bring them together, when no lock is held.
    fn rendezvous(&self);
    /// The protection domain of a shared receive queue of the queue pair's XRC domain, by number.
    fn shared_pd(&self, srq: u32) -> Option<u32>;
    /// Hands the completion of a receive taken from an XRC shared queue to that queue's completion
    /// queue.
    fn complete_shared(&self, srq: u32, completion: Completion, solicited: bool);
    /// An operation that completion counters may count has ended: well, with so many bytes, or with
    /// `None` in error. A completion that it has is seen after that.
    fn count(&self, operation: Counted, bytes: Option<u64>) {
        let _ = (operation, bytes);
    }
    /// Raises an asynchronous event.
    fn event(&self, event: QpEvent);
    /// The answer to a request that has just arrived, if somebody wants it not to be carried out.
    fn injected(&self, request: &Request) -> Option<Injection> {
        let _ = request;
        None
    }
    /// Notes a refusal for whoever asks why.
    fn refused(&self, refusal: &Refusal);
    /// The queue pair fell into error from one side: flush the other side's queue, now or soon.
    fn flush_other(&self, fallen: QueueSide);
}

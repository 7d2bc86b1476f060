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
//! way, one of the [`Shortcuts`]; whatever it declines there goes to the responder as a message, which decides by
//! itself.
//! Neither calls anybody but for memory and for what is told of the send queue ([`Process`]): what else is to be
//! done comes out as values ([`Effects`]), and the next segment when it is asked for
//! ([`Requester::next_segment`]).
//! [`retry`] counts and times retries, for every link. Where a link carries packets, the requester
//! numbers them and keeps to a window; how they look, and which answers count, is for
//! [`transport`](crate::transport), which stands over this.

mod copy;
mod counted;
mod effects;
mod failure;
mod link;
mod local;
pub mod one_sided;
mod process;
mod rendezvous;
mod request;
mod requester;
mod responder;
pub mod retry;
mod segmentation;
mod shortcuts;

pub use copy::{CopyError, Sink, Source};
pub use counted::Counted;
pub use effects::{Effect, Effects};
pub use failure::{Failure, Unheard, Why};
pub use link::{Direct, OneSided, Payload, Segmentation, Sent};
pub use local::{Bytes, LocalBuffers};
pub use process::{Context, MemoryGone, Process, TakeShared};
pub use rendezvous::Rendezvous;
pub use request::{Injection, Part, PlainSend, Reply, Request};
pub use requester::{Connection, Requester, RequesterLimits};
pub(crate) use requester::{SendWqe, status_of};
pub use responder::{RanDry, Receives, Responder};
pub use segmentation::{MAX_BURST, packets};
pub use shortcuts::Shortcuts;

pub use crate::protection::MAX_MESSAGE;

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

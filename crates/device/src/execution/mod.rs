//! Execution: the effect of a request at its target, and of posting and completing at its origin. Every link ends here.
//!
//! ```text
//!   post ─► Requester ──Request (a segment)──► link ──► Responder ─► memory, receive, completion
//!               ▲                                           │
//!   completion ─┴────────────Reply──────────── link ◄───────┘
//!
//!   Requester ──one_sided──► the target's memory, if its key table and queue pair allow it
//! ```
//!
//! [`one_sided`] carries out WRITE and READ, both for the responder and for the initiator's direct path, one of the
//! [`Shortcuts`]. If it declines a request there, the request goes to the responder as a message, and the responder
//! decides. Neither calls anybody except for memory and for notes about the send queue ([`Process`]). Everything else
//! comes out as values ([`Effects`]), and the next segment comes when the caller asks for it
//! ([`Requester::next_segment`]). [`retry`] counts and times retries, for every link. On a link that carries packets,
//! the requester numbers them and keeps to a window. [`transport`](crate::transport), a layer above, decides their form
//! and which answers count.

mod access_log;
mod copy;
mod counted;
mod effects;
mod failure;
mod link;
mod local;
pub mod one_sided;
mod pieces;
mod process;
mod rendezvous;
mod request;
mod requester;
mod responder;
pub mod retry;
mod segmentation;
mod shortcuts;
mod tally;
mod watched;

pub use access_log::{AccessLog, Logged};
pub use copy::{CopyError, Sink, Source};
pub use counted::Counted;
pub use effects::{Effect, Effects};
pub use failure::{Failure, Unheard, Why};
pub use link::{Direct, OneSided, Payload, Segmentation, Sent};
pub use local::{Bytes, LocalBuffers};
pub use pieces::Pieces;
pub use process::{Context, MemoryGone, Process, TakeShared};
pub use rendezvous::Rendezvous;
pub use request::{Injection, Part, PlainSend, Reply, Request};
pub use requester::{Connection, Ending, Requester, RequesterLimits};
pub(crate) use requester::{SendWqe, status_of};
pub use responder::{RanDry, Receives, Responder};
pub use segmentation::{MAX_BURST, packets};
pub use shortcuts::Shortcuts;
pub use tally::Tally;
pub use watched::{Awaited, Ended, Posted};

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

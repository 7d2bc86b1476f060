//! Queues: completion queues, and the rings of posted work.

mod completion;
mod receive;
mod work;

pub use completion::{
    Completion, CompletionOptions, CompletionQueue, Flags, Moderation, Notify, Opcode, Pending,
    Status, TooSmall,
};
pub use receive::{OutOfRange, Receive, ReceiveQueue, Take};
pub use work::{
    Address, Datagram, Placement, PostError, ReceiveRequest, Remote, SendFlags, SendOp,
    SendRequest, Sge, WorkRing,
};

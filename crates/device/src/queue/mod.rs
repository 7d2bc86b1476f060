//! Queues: completion queues, and the rings of posted work.

mod completion;
mod work;

pub use completion::{
    Completion, CompletionOptions, CompletionQueue, Flags, Moderation, Notify, Opcode, Pending,
    Status, TooSmall,
};
pub use work::{
    Address, Datagram, Placement, PostError, ReceiveRequest, Remote, SendFlags, SendOp,
    SendRequest, Sge, WorkRing,
};

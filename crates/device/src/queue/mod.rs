//! Queues: completion queues, and the rings of posted work.

mod completion;
mod receive;
mod work;

pub use completion::{
    Completion, CompletionQueue, Flags, Notify, Opcode, Pushed, Status, TooSmall,
};
pub use receive::{OutOfRange, Receive, ReceiveQueue, Take};
pub use work::{
    Address, Datagram, Placement, PostError, ReceiveRequest, Remote, SendFlags, SendOp,
    SendRequest, Sge, WorkRing,
};

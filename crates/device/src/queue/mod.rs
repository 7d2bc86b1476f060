//! Queues: completion queues, and the rings of posted work.

mod completion;
mod work;

pub use completion::{
    Completion, CompletionQueue, Flags, Notify, Opcode, Pushed, Status, TooSmall,
};
pub use work::{
    Address, Datagram, Placement, PostError, ReceiveRequest, Remote, SendFlags, SendOp,
    SendRequest, Sge, WorkRing,
};

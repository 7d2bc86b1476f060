//! Queues: completion queues, and the rings of posted work.

mod completion;
mod completion_queue;
mod moderation;
mod operation;
mod places;
mod receive;
mod size;
mod tag_matching;
mod work;

pub use crate::operation::Opcode;
pub use completion::{Completion, Feeder, Flags, Status};
pub use completion_queue::{CompletionOptions, CompletionQueue, Notify, Pending};
pub use moderation::Moderation;
pub use operation::{Body, LocalOp, Placement, SendOp};
pub use places::{Places, Returned};
pub use receive::{Receive, ReceiveQueue, TagPart, Take};
pub use size::SizeError;
pub(crate) use size::{filled, room_for};
pub use tag_matching::{TAG_MAX_SGE, TagChange, TagDone, TagList, TagRequest};
pub use work::{
    Address, Datagram, PostError, ReceiveRequest, Remote, SendFlags, SendRequest, Sge, Work,
    WorkRing,
};

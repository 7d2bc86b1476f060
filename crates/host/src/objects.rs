//! The objects a program makes on a device.

mod cq;
mod events;
mod multicast;
mod pd;
mod qp;
mod region;
mod srq;
mod window;
mod xrc;

pub use cq::{Cq, CqConfig};
pub use events::{AsyncEvent, EventPipe};
pub(crate) use multicast::Groups;
pub use multicast::{GroupGid, JoinError, NotAMember, is_multicast};
pub use pd::{Busy, ProtectionDomain};
pub use qp::{Destination, ModifyFailure, PostOne, QpAttributes, QpConfig, QpReceives, QueuePair};
pub use region::{MemoryRegion, RegisterError, Registration};
pub(crate) use srq::SharedQueues;
pub use srq::{SharedReceiveQueue, SrqAttributes, SrqConfig, XrcConfig};
pub use window::MemoryWindow;
pub(crate) use xrc::XrcDomains;
pub use xrc::{XrcDomain, XrcFile, XrcOpenError};

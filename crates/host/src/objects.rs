//! The objects a program makes on a device.

mod completion_counter;
mod cq;
mod dependents;
mod device_memory;
mod dma_buf;
mod empty_polls;
mod events;
mod foreign_target;
mod multicast;
mod pd;
mod prefetch;
mod qp;
mod region;
mod srq;
mod td;
mod window;
mod xrc;

pub use completion_counter::{AttachError, CompletionCounter, CounterUnit};
pub use cq::{Cq, CqConfig};
pub use dependents::Busy;
pub use device_memory::{AllocateError, DeviceMemory};
pub use dma_buf::{DmaBuf, DmaBufError};
pub use events::{AsyncEvent, CompletionEvent, EventQueue, EventSource};
pub(crate) use foreign_target::ForeignTargets;
pub(crate) use multicast::{Groups, Recipient};
pub use multicast::{JoinError, NotAMember};
pub use pd::ProtectionDomain;
pub use prefetch::{Prefetch, PrefetchError};
pub use qp::{Destination, ModifyFailure, PostOne, QpAttributes, QpConfig, QpReceives, QueuePair};
pub use region::{Backing, MemoryRegion, RegisterError, Registration};
pub(crate) use srq::SharedQueues;
pub use srq::{SharedReceiveQueue, SrqAttributes, SrqConfig, TagMatchingConfig, XrcConfig};
pub use td::ThreadDomain;
pub use window::MemoryWindow;
pub(crate) use xrc::XrcDomains;
pub use xrc::{XrcDomain, XrcFile, XrcOpenError};

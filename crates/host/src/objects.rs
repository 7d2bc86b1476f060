//! The objects a program makes on a device.

mod adapter;
mod completion_counter;
mod cq;
mod deferred;
mod dependents;
mod device_memory;
mod dma_buf;
mod driver;
mod empty_polls;
mod foreign_target;
mod holders;
mod link;
mod multicast;
mod pd;
mod prefetch;
mod qp;
mod queue_pairs;
mod region;
mod seldom;
mod srq;
mod td;
mod window;
mod xrc;

pub use adapter::Adapter;
pub use completion_counter::{AttachError, CompletionCounter, CounterUnit};
pub use cq::{Cq, CqConfig};
pub(crate) use deferred::Deferred;
pub use dependents::Busy;
pub use device_memory::{AllocateError, DeviceMemory};
pub use dma_buf::{DmaBuf, DmaBufError};
pub(crate) use driver::Driver;
pub(crate) use foreign_target::ForeignTargets;
pub use holders::BoundWindows;
pub(crate) use link::Link;
pub(crate) use multicast::{Groups, Recipient};
pub use multicast::{JoinError, NotAMember};
pub use pd::ProtectionDomain;
pub use prefetch::{Prefetch, PrefetchError};
pub(crate) use qp::Taken;
pub use qp::{
    Destination, ModifyFailure, More, PostOne, QpAttributes, QpConfig, QpReceives, QueuePair,
};
pub use region::{Backing, MemoryRegion, RegisterError, Registration};
pub(crate) use srq::SharedQueues;
pub use srq::{SharedReceiveQueue, SrqAttributes, SrqConfig, TagMatchingConfig, XrcConfig};
pub use td::ThreadDomain;
pub use window::MemoryWindow;
pub(crate) use xrc::XrcDomains;
pub use xrc::{XrcDomain, XrcFile, XrcOpenError};

//! The objects a program makes on a device.

mod cq;
mod dependents;
mod device_memory;
mod dma_buf;
mod events;
mod pd;
mod prefetch;
mod qp;
mod region;
mod td;
mod window;

pub use cq::{CompletionTarget, Cq};
pub use dependents::Busy;
pub use device_memory::{AllocateError, DeviceMemory};
pub use dma_buf::{DmaBuf, DmaBufError};
pub use events::{AsyncEvent, EventPipe};
pub use pd::ProtectionDomain;
pub use prefetch::{Prefetch, PrefetchError};
pub use qp::{Destination, ModifyFailure, QpAttributes, QpConfig, QueuePair};
pub use region::{Backing, MemoryRegion, RegisterError, Registration};
pub use td::ThreadDomain;
pub use window::MemoryWindow;

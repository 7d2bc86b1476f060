//! The objects a program makes on a device.

mod cq;
mod events;
mod pd;
mod qp;
mod region;
mod window;

pub use cq::{Cq, CqConfig};
pub use events::{AsyncEvent, EventPipe};
pub use pd::{Busy, ProtectionDomain};
pub use qp::{Destination, ModifyFailure, QpAttributes, QpConfig, QueuePair};
pub use region::{MemoryRegion, RegisterError, Registration};
pub use window::MemoryWindow;

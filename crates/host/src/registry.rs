//! The processes of this user that run a device, their last refusals, and what became of their packets.
//!
//! One small file per user, network and PID namespace, in memory, mode 0600 in a directory of mode
//! 0700. Each live process holds a lock on the byte of its slot; the kernel drops the lock when the
//! process ends, however it ends, so what a killed process leaves can be told and cleaned up.

mod call;
mod counters;
mod file;
pub(crate) mod record;

pub use call::{CallFault, CallRecord, CallRefusal, Name};
pub use counters::{Counters, Dropped};
pub use file::{Claim, Process, Registry};
pub use record::{RefusalRecord, Role};

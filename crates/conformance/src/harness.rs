//! Helpers for all rule tests: queue pairs connected over each link, and verbs that panic with a sentence instead of
//! returning a code.
//!
//! You write a test once inside [`on_each_link!`](crate::on_each_link). It runs over
//!
//! * loopback: both ends on one device,
//! * local: each end on a device of its own, as in two processes; data goes straight into the other's memory,
//! * rings: the same through rings, as if the kernel forbade the straight copy,
//! * shared: as local, with shared memory,
//! * wire: two devices that send each other packets.
//!
//! Tests never sleep: they poll until the completion is there, with a limit that is reached only in a
//! failure.

mod buffer;
mod connect;
mod end;
mod link;
mod memory_pair;
mod region;
mod waiting;
mod window;
mod work;

pub use self::buffer::*;
pub use self::connect::*;
pub use self::end::*;
pub use self::link::*;
pub use self::memory_pair::*;
pub use self::region::*;
pub use self::waiting::*;
pub use self::window::*;
pub use self::work::*;

/// This thread's errno.
pub fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

//! What the rule tests share: queue pairs connected over each link, and verbs that panic with a
//! sentence instead of returning a code.
//!
//! A test is written once inside [`on_each_link!`](crate::on_each_link) and runs over
//!
//! * loopback: both ends on one device,
//! * local: each end on a device of its own, as two processes have; data goes straight into the
//!   other's memory,
//! * shared: the same where the kernel would forbid that, so everything travels as messages.
//!
//! Tests never sleep: they poll until the completion is there, with a limit that only a failure
//! meets.

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

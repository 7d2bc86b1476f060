//! The wire link: RoCEv2 packets over UDP, for whoever is not reached otherwise.
//!
//! Sockets are in [`udp`](super::udp): bytes in, bytes out. Here bytes become packets of queue pairs
//! and back.

mod counters;
mod path;
mod receive;
mod train;

use std::sync::Arc;

use parking_lot::Mutex;
use transom_device::execution::Sent;

pub(crate) use counters::Counters;
pub use path::Path;
pub(crate) use receive::Route;
pub(crate) use train::{Filling, PAYLOAD, TrainBuffer};

use super::udp::{Port, PortError};

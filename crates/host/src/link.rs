//! Links: how a queue pair's requests reach the one at the other end.
//!
//! | link | between | how |
//! |---|---|---|
//! | loopback | queue pairs of one process | executed at once, on the caller's thread |
//! | local | processes of one user on one host, in the same namespaces | one-sided operations straight into the target's memory; the rest as messages in shared rings |
//! | wire | anything else | RoCEv2 packets over UDP |

mod copy;
pub(crate) mod message;
mod peer;
pub(crate) mod ring;
mod stalled;
pub mod udp;
pub(crate) mod wire;

use std::sync::Arc;

pub(crate) use copy::{Gather, RingBytes, Scatter, Where};
pub(crate) use message::{Answer, Arrival};
pub(crate) use peer::Arrived;
pub use peer::Peer;
pub(crate) use ring::MAX_PAYLOAD;
pub use wire::Path;
pub(crate) use wire::{Filling, Instruments, Taken, TrainBuffer, Wire, is_of};

/// Where a queue pair's requests go.
#[derive(Clone, Default)]
pub enum Link {
    /// Nowhere: not connected, or to an address that is not here.
    #[default]
    None,
    /// To a queue pair of this process.
    Loopback,
    /// To a queue pair of another process of this user.
    Local(Arc<Peer>),
    /// To a queue pair anywhere, by packets.
    Wire(Path),
}

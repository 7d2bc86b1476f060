//! Where a queue pair's requests go.
//!
//! | link | between | how |
//! |---|---|---|
//! | loopback | queue pairs of one process | executed at once, on the caller's thread |
//! | local | processes of one user on one host, in the same namespaces | one-sided operations straight into the target's memory; the rest as messages in shared rings |
//! | wire | anything else | RoCEv2 packets over UDP |

use std::sync::Arc;

use transom_net::{Path, Peer};

/// Where a queue pair's requests go.
#[derive(Clone, Default)]
pub(crate) enum Link {
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

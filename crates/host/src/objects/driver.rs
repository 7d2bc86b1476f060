//! Carries out the work that objects leave.

use std::sync::Arc;

use transom_net::Peer;

use super::Adapter;

/// Carries out the work that objects leave, and the requests that arrive for them.
pub(crate) trait Driver: Sync {
    /// Carries out everything that has arrived until now, over the wire and from this peer.
    fn take_all(&self, adapter: &Adapter, from: Option<&Arc<Peer>>);
}

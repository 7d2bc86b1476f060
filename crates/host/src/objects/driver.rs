//! Who carries out what objects leave to be done.

use std::sync::Arc;

use transom_net::Peer;

use super::Adapter;

/// Carries out what objects leave to be done, and what arrives for them.
pub(crate) trait Driver: Sync {
    /// Carries out all that has arrived until now over the wire, and from this peer.
    fn take_all(&self, adapter: &Adapter, from: Option<&Arc<Peer>>);
}

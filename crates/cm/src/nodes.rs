//! The connections with other nodes, found by the peers' numbers.

use std::collections::BTreeMap;
use std::net::IpAddr;

use transom_wire::cm::{CommId, Qpn};

/// A remote device, as this end can distinguish it. Any device may claim the same GUID. At another address, it counts
/// as another device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Node {
    pub(crate) guid: u64,
    pub(crate) address: IpAddr,
}

/// The ids of the connections with other nodes. Each connection is in both tables.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    /// By node and communication id of the peer (rule CM-17).
    ids: BTreeMap<(Node, CommId), CommId>,
    /// By node and queue pair of the peer (rule CM-19).
    qpns: BTreeMap<(Node, Qpn), CommId>,
}

impl Nodes {
    /// Adds the connection `id`, to be found by its peer's numbers.
    pub(crate) fn add(&mut self, node: Node, (peer_id, peer_qpn): (CommId, Qpn), id: CommId) {
        self.ids.insert((node, peer_id), id);
        self.qpns.insert((node, peer_qpn), id);
    }

    /// Undoes [`Nodes::add`], so that the peer may connect the same queue pair again.
    pub(crate) fn remove(&mut self, node: Node, (peer_id, peer_qpn): (CommId, Qpn)) {
        self.ids.remove(&(node, peer_id));
        self.qpns.remove(&(node, peer_qpn));
    }

    /// The connection that has this id at a node.
    pub(crate) fn called(&self, node: Node, peer_id: CommId) -> Option<CommId> {
        self.ids.get(&(node, peer_id)).copied()
    }

    /// The connection with a node that has this id or this queue pair there.
    pub(crate) fn connected(&self, node: Node, peer_id: CommId, peer_qpn: Qpn) -> Option<CommId> {
        self.called(node, peer_id).or_else(|| self.qpns.get(&(node, peer_qpn)).copied())
    }

    /// Whether no connection is found by a peer's numbers.
    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.qpns.is_empty()
    }
}

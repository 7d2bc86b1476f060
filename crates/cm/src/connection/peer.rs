//! The peer of a connection: its address, its id of the connection, and the timeouts of its answers.

use std::net::IpAddr;

use transom_wire::Psn;
use transom_wire::cm::{Bits, CommId, Mad, Message, Qpn, Req};

use crate::attributes::AddressVector;
use crate::nodes::Node;
use crate::retransmission::Retransmission;
use crate::shared::Shared;
use crate::timing::MILLISECOND;

/// The other end of a connection.
#[derive(Debug)]
pub(super) struct Peer {
    /// The address vector to it. Its messages come by the same route.
    pub(super) address: AddressVector,
    /// Its id of the connection. Like its queue pair and PSN, it is zero until its first message has come.
    pub(super) id: CommId,
    pub(super) qpn: Qpn,
    /// SQ_PSN here.
    pub(super) psn: Psn,
    /// Its node, while the connection can be found by the node and the numbers above.
    noted: Option<Node>,
    /// The transaction of answers to it.
    pub(super) transaction: u64,
    patience: Patience,
}

/// The timing of repeated messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// The nanoseconds until a message is repeated.
    pub(super) wait: u64,
    /// The number of repeats.
    pub(super) retries: Bits<4>,
}

impl Peer {
    /// The peer that a REQ goes to. Only its address is known.
    pub(super) fn asked(address: AddressVector, transaction: u64, patience: Patience) -> Self {
        Self {
            address,
            id: CommId::default(),
            qpn: Qpn::default(),
            psn: Psn::default(),
            noted: None,
            transaction,
            patience,
        }
    }

    /// The peer that a REQ came from. `id` is this end's id of the connection.
    pub(super) fn asking(
        address: AddressVector,
        transaction: u64,
        req: &Req,
        id: CommId,
        shared: &mut Shared,
    ) -> Self {
        let wait = req.local_response_timeout.milliseconds() * MILLISECOND;
        let patience = Patience { wait, retries: req.max_cm_retries };
        let mut peer = Self::asked(address, transaction, patience);
        let end = (req.local_id, req.qpn, req.starting_psn);
        peer.introduce(req.ca_guid, end, id, shared);
        peer
    }

    /// Its first message gives the numbers of its end. From now on, the connection `id` can be found by them.
    pub(super) fn introduce(
        &mut self,
        guid: u64,
        end: (CommId, Qpn, Psn),
        id: CommId,
        shared: &mut Shared,
    ) {
        let node = Node { guid, address: self.address.route.destination };
        (self.id, self.qpn, self.psn) = end;
        shared.nodes.add(node, (self.id, self.qpn), id);
        self.noted = Some(node);
    }

    /// The connection cannot be found by the peer's numbers any more, so the peer may connect the same queue pair
    /// again.
    pub(super) fn forget(&mut self, shared: &mut Shared) {
        if let Some(node) = self.noted.take() {
            shared.nodes.remove(node, (self.id, self.qpn));
        }
    }

    /// Whether it is at this address.
    pub(super) fn is_at(&self, address: IpAddr) -> bool {
        self.address.route.destination == address
    }

    /// Sends a message of its latest transaction.
    pub(super) fn answer(&self, message: Message, shared: &mut Shared) {
        self.send(Mad { transaction: self.transaction, message }, shared);
    }

    /// Sends a message.
    pub(super) fn send(&self, mad: Mad, shared: &mut Shared) {
        shared.transmit(&self.address, mad);
    }

    /// Sends a message that is repeated until the peer answers.
    pub(super) fn begin(&self, mad: Mad, now: u64, shared: &mut Shared) -> Retransmission {
        let Patience { wait, retries } = self.patience;
        let retransmission = Retransmission::new(mad, wait, retries, now, shared);
        self.send(retransmission.mad(), shared);
        retransmission
    }
}

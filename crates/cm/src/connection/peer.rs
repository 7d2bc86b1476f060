//! The peer of a connection: where it is, what it calls the connection, and how long its answers may take.

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
    /// The way to it, by which its messages come too.
    pub(super) address: AddressVector,
    /// What it calls the connection. Zero, like its queue pair and PSN, until its first message has come.
    pub(super) id: CommId,
    pub(super) qpn: Qpn,
    /// SQ_PSN here.
    pub(super) psn: Psn,
    /// Its node, as long as the connection is found by that and the numbers above.
    noted: Option<Node>,
    /// The transaction of the messages that answer it.
    pub(super) transaction: u64,
    patience: Patience,
}

/// When messages are sent again that are not answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Nanoseconds until then.
    pub(super) wait: u64,
    /// How often.
    pub(super) retries: Bits<4>,
}

impl Peer {
    /// The one that a REQ goes to. Nothing more is known of it.
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

    /// The one that a REQ came from, about the connection that is `id` here.
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

    /// Its first message says what its end is. Has the connection that is `id` here found by that.
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

    /// It may connect the same queue pair again.
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

    /// Sends what is sent again until it answers.
    pub(super) fn begin(&self, mad: Mad, now: u64, shared: &mut Shared) -> Retransmission {
        let Patience { wait, retries } = self.patience;
        let retransmission = Retransmission::new(mad, wait, retries, now, shared);
        self.send(retransmission.mad(), shared);
        retransmission
    }
}

//! The record of a connection that other processes keep, in case its own process dies.

use std::net::IpAddr;

use transom_wire::cm::{CommId, Dreq, Mad, Message, Qpn, Rej, RejectReason, Rejected};

use super::{Connection, State};
use crate::attributes::{AddressVector, HOP_LIMIT};
use crate::cause::Cause;
use crate::shared::Transmit;

/// The record of a connection whose process has died. A process that notices tells the peer, which would wait for ever
/// otherwise. A host keeps records where other processes find them, and removes them when an id is destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The dead end's id of the connection.
    pub id: CommId,
    /// The peer's id of it.
    pub peer_id: CommId,
    /// The peer's queue pair.
    pub peer_qpn: Qpn,
    /// The transaction of its final message.
    pub transaction: u64,
    /// The message that it refuses. `None` if it is a DREQ.
    pub rejected: Option<Rejected>,
    /// The address here.
    pub source: IpAddr,
    /// The peer's.
    pub destination: IpAddr,
    /// Traffic class.
    pub traffic_class: u8,
}

impl Record {
    /// The message that the dead end would have sent if its program had destroyed the id (rule CM-28).
    pub fn final_message(&self) -> Transmit {
        let (local_id, remote_id) = (self.id, self.peer_id);
        let message = match self.rejected {
            Some(rejected) => Message::Rej(Rej {
                local_id,
                remote_id,
                rejected,
                reason: RejectReason::Consumer,
                information: Cause::Ended.information(),
                private_data: [0; _],
            }),
            None => {
                let (remote_qpn, private_data) = (self.peer_qpn, [0; _]);
                Message::Dreq(Dreq { local_id, remote_id, remote_qpn, private_data })
            }
        };
        Transmit {
            source: self.source,
            destination: self.destination,
            traffic_class: self.traffic_class,
            hop_limit: HOP_LIMIT,
            mad: Mad { transaction: self.transaction, message },
        }
    }
}

impl Connection {
    /// The record of it, in case its process dies. `None` if the peer stops waiting after its own retries.
    pub(crate) fn record(&self) -> Option<Record> {
        let rejected = match self.state {
            State::RequestReceived => Some(Rejected::Req),
            State::ReplyReceived => Some(Rejected::Rep),
            State::ReplySent(_) => Some(Rejected::Other),
            State::Established => None,
            _ => return None,
        };
        let AddressVector { route, traffic_class, .. } = self.peer.address;
        Some(Record {
            id: self.id,
            peer_id: self.peer.id,
            peer_qpn: self.peer.qpn,
            transaction: self.peer.transaction,
            rejected,
            source: route.source,
            destination: route.destination,
            traffic_class,
        })
    }
}

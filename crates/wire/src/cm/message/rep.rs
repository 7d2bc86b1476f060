//! REP answers a REQ, and RTU answers a REP.

use super::{Ece, ids, set_ids};
use crate::Psn;
use crate::cm::MESSAGE_BYTES;
use crate::cm::body::Body;
use crate::cm::fields::{Bits, CommId, Qpn, TimeCode};

/// REP, the answer to a REQ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rep {
    /// The sender's id of the connection.
    pub local_id: CommId,
    /// The receiver's id of the connection.
    pub remote_id: CommId,
    /// The vendor options that the sender's adapter agrees to.
    pub ece: Ece,
    /// Q_Key; of no use here.
    pub qkey: u32,
    /// The sender's queue pair, unless it is of XRC.
    pub qpn: Qpn,
    /// The sender's queue pair, if it is of XRC.
    pub eecn: Bits<24>,
    /// The PSN with which the receiver begins.
    pub starting_psn: Psn,
    /// READs and atomics that the sender will answer at once.
    pub responder_resources: u8,
    /// READs and atomics that the sender will have under way.
    pub initiator_depth: u8,
    /// How long the sender's adapter may take for an acknowledgement.
    pub target_ack_delay: TimeCode,
    /// Whether the alternate path was taken; 0 says yes.
    pub failover: Bits<2>,
    /// The sender's adapter has end-to-end flow control.
    pub flow_control: bool,
    /// Retries of a message that found no receive.
    pub rnr_retry_count: Bits<3>,
    /// The sender's queue pair has a shared receive queue.
    pub srq: bool,
    /// The sender's node GUID.
    pub ca_guid: u64,
    /// Private data.
    pub private_data: [u8; Self::PRIVATE],
}

/// RTU: the sender of a REQ has the REP, and is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rtu {
    /// The sender's id of the connection.
    pub local_id: CommId,
    /// The receiver's id of the connection.
    pub remote_id: CommId,
    /// Private data.
    pub private_data: [u8; Self::PRIVATE],
}

impl Rep {
    /// Bytes of private data.
    pub const PRIVATE: usize = 196;

    pub(super) fn read(options: u32, body: &Body<MESSAGE_BYTES>) -> Self {
        let (local_id, remote_id) = ids(body);
        let vendor = u32::from_be_bytes([0, body.u8(15), body.u8(19), body.u8(23)]);
        Self {
            local_id,
            remote_id,
            ece: Ece { vendor: Bits::low(vendor), options },
            qkey: body.u32(8),
            qpn: body.u24(12),
            eecn: body.u24(16),
            starting_psn: Psn::new(body.u24(20).get()),
            responder_resources: body.u8(24),
            initiator_depth: body.u8(25),
            target_ack_delay: TimeCode::of(body.bits(26, 3)),
            failover: body.bits(26, 1),
            flow_control: body.bit(26, 0),
            rnr_retry_count: body.bits(27, 5),
            srq: body.bit(27, 4),
            ca_guid: body.u64(28),
            private_data: body.bytes(36),
        }
    }

    pub(super) fn write(&self, body: &mut Body<MESSAGE_BYTES>) -> u32 {
        let [_, high, middle, low] = self.ece.vendor.get().to_be_bytes();
        set_ids(body, self.local_id, self.remote_id);
        body.set(8, self.qkey.to_be_bytes());
        body.set_u24(12, self.qpn);
        body.set(15, [high]);
        body.set_u24(16, self.eecn);
        body.set(19, [middle]);
        body.set_u24(20, Bits::low(self.starting_psn.value()));
        body.set(23, [low]);
        body.set(24, [self.responder_resources, self.initiator_depth]);
        body.set_bits(26, 3, self.target_ack_delay.bits());
        body.set_bits(26, 1, self.failover);
        body.set_bit(26, 0, self.flow_control);
        body.set_bits(27, 5, self.rnr_retry_count);
        body.set_bit(27, 4, self.srq);
        body.set(28, self.ca_guid.to_be_bytes());
        body.set(36, self.private_data);
        self.ece.options
    }
}

impl Rtu {
    /// Bytes of private data.
    pub const PRIVATE: usize = 224;

    pub(super) fn read(body: &Body<MESSAGE_BYTES>) -> Self {
        let (local_id, remote_id) = ids(body);
        Self { local_id, remote_id, private_data: body.bytes(8) }
    }

    pub(super) fn write(&self, body: &mut Body<MESSAGE_BYTES>) {
        set_ids(body, self.local_id, self.remote_id);
        body.set(8, self.private_data);
    }
}

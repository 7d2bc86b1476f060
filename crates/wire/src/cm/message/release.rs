//! DREQ and DREP: the end of a connection.

use super::{ids, set_ids};
use crate::cm::MESSAGE_BYTES;
use crate::cm::body::Body;
use crate::cm::fields::{CommId, Qpn};

/// DREQ: the connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dreq {
    /// The sender's id of the connection.
    pub local_id: CommId,
    /// The receiver's id of the connection.
    pub remote_id: CommId,
    /// The receiver's queue pair.
    pub remote_qpn: Qpn,
    /// Private data.
    pub private_data: [u8; Self::PRIVATE],
}

/// DREP: it has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drep {
    /// The sender's id of the connection.
    pub local_id: CommId,
    /// The receiver's id of the connection.
    pub remote_id: CommId,
    /// Private data.
    pub private_data: [u8; Self::PRIVATE],
}

impl Dreq {
    /// Bytes of private data.
    pub const PRIVATE: usize = 220;

    pub(super) fn read(body: &Body<MESSAGE_BYTES>) -> Self {
        let (local_id, remote_id) = ids(body);
        Self { local_id, remote_id, remote_qpn: body.u24(8), private_data: body.bytes(12) }
    }

    pub(super) fn write(&self, body: &mut Body<MESSAGE_BYTES>) {
        set_ids(body, self.local_id, self.remote_id);
        body.set_u24(8, self.remote_qpn);
        body.set(12, self.private_data);
    }
}

impl Drep {
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

//! SIDR_REQ asks for the queue pair of a datagram service, and SIDR_REP answers.

use super::{Ece, Unread, information};
use crate::cm::MESSAGE_BYTES;
use crate::cm::body::Body;
use crate::cm::fields::{Bits, CommId, Information, Qpn};
use crate::cm::reason::SidrStatus;
use crate::cm::service::ServiceId;

/// SIDR_REQ asks for the queue pair of a datagram service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidrReq {
    /// The sender's id of the request.
    pub request_id: CommId,
    /// Partition.
    pub pkey: u16,
    /// The service whose queue pair it asks for.
    pub service: ServiceId,
    /// Private data. It begins with the header with the IP addresses.
    pub private_data: [u8; Self::PRIVATE],
}

/// SIDR_REP names the queue pair of a datagram service, or says why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidrRep {
    /// The receiver's id of the request.
    pub request_id: CommId,
    /// How it went.
    pub status: SidrStatus,
    /// More about the status.
    pub information: Information,
    /// The vendor options that the sender's adapter offers.
    pub ece: Ece,
    /// The queue pair.
    pub qpn: Qpn,
    /// The service that was asked for.
    pub service: ServiceId,
    /// The queue pair's Q_Key.
    pub qkey: u32,
    /// Private data.
    pub private_data: [u8; Self::PRIVATE],
}

impl SidrReq {
    /// Bytes of private data.
    pub const PRIVATE: usize = 216;

    pub(super) fn read(body: &Body<MESSAGE_BYTES>) -> Self {
        Self {
            request_id: CommId(body.u32(0)),
            pkey: body.u16(4),
            service: ServiceId(body.u64(8)),
            private_data: body.bytes(16),
        }
    }

    pub(super) fn write(&self, body: &mut Body<MESSAGE_BYTES>) {
        body.set(0, self.request_id.0.to_be_bytes());
        body.set(4, self.pkey.to_be_bytes());
        body.set(8, self.service.0.to_be_bytes());
        body.set(16, self.private_data);
    }
}

impl SidrRep {
    /// Bytes of private data.
    pub const PRIVATE: usize = 136;

    pub(super) fn read(options: u32, body: &Body<MESSAGE_BYTES>) -> Result<Self, Unread> {
        let vendor = u32::from(body.u16(6)) << 8 | u32::from(body.u8(11));
        Ok(Self {
            request_id: CommId(body.u32(0)),
            status: SidrStatus::from_code(body.u8(4)),
            information: information(body.u8(5).into(), body.bytes(24))?,
            ece: Ece { vendor: Bits::low(vendor), options },
            qpn: body.u24(8),
            service: ServiceId(body.u64(12)),
            qkey: body.u32(20),
            private_data: body.bytes(96),
        })
    }

    pub(super) fn write(&self, body: &mut Body<MESSAGE_BYTES>) -> u32 {
        let [_, high, middle, low] = self.ece.vendor.get().to_be_bytes();
        body.set(0, self.request_id.0.to_be_bytes());
        body.set(4, [self.status.code(), self.information.length(), high, middle]);
        body.set_u24(8, self.qpn);
        body.set(11, [low]);
        body.set(12, self.service.0.to_be_bytes());
        body.set(20, self.qkey.to_be_bytes());
        body.set(24, self.information.room());
        body.set(96, self.private_data);
        self.ece.options
    }
}

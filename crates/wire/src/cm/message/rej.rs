//! REJ: the refusal.

use super::{Unread, ids, information, set_ids};
use crate::cm::MESSAGE_BYTES;
use crate::cm::body::Body;
use crate::cm::fields::{Bits, CommId, Information};
use crate::cm::reason::RejectReason;

/// REJ: no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rej {
    /// The sender's id of the connection. Zero if it has none.
    pub local_id: CommId,
    /// The receiver's id of the connection. Zero if that is unknown.
    pub remote_id: CommId,
    /// The message that is refused.
    pub rejected: Rejected,
    /// Why.
    pub reason: RejectReason,
    /// More about the reason, such as a value that the sender would accept, or the sender's GUID.
    pub information: Information,
    /// Private data.
    pub private_data: [u8; Self::PRIVATE],
}

/// The message that a REJ refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are those of the messages")]
pub enum Rejected {
    Req,
    Rep,
    /// No message, or one that the sender no longer knows.
    Other,
}

impl Rej {
    /// Bytes of private data.
    pub const PRIVATE: usize = 148;

    pub(super) fn read(body: &Body<MESSAGE_BYTES>) -> Result<Self, Unread> {
        let (local_id, remote_id) = ids(body);
        let rejected = match body.bits::<2>(8, 6).get() {
            0 => Rejected::Req,
            1 => Rejected::Rep,
            2 => Rejected::Other,
            _ => return Err(Unread::Reserved),
        };
        Ok(Self {
            local_id,
            remote_id,
            rejected,
            reason: RejectReason::from_code(body.u16(10)),
            information: information(body.bits::<7>(9, 1).get(), body.bytes(12))?,
            private_data: body.bytes(84),
        })
    }

    pub(super) fn write(&self, body: &mut Body<MESSAGE_BYTES>) {
        set_ids(body, self.local_id, self.remote_id);
        let rejected = match self.rejected {
            Rejected::Req => 0,
            Rejected::Rep => 1,
            Rejected::Other => 2,
        };
        body.set_bits(8, 6, Bits::<2>::low(rejected));
        body.set_bits(9, 1, Bits::<7>::low(self.information.length().into()));
        body.set(10, self.reason.code().to_be_bytes());
        body.set(12, self.information.room());
        body.set(84, self.private_data);
    }

    /// The sender's node GUID, if it says that it gave up waiting.
    pub fn timed_out(&self) -> Option<u64> {
        if self.reason != RejectReason::Timeout {
            return None;
        }
        self.information.as_bytes().first_chunk().map(|guid| u64::from_be_bytes(*guid))
    }
}

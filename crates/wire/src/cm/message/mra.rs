//! MRA: the request for more time.

use super::{Unread, ids, set_ids};
use crate::cm::MESSAGE_BYTES;
use crate::cm::body::Body;
use crate::cm::fields::{Bits, CommId, TimeCode};

/// MRA: the receiver of a message needs more time to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mra {
    /// The sender's id of the connection.
    pub local_id: CommId,
    /// The receiver's id of the connection.
    pub remote_id: CommId,
    /// The message that is not answered yet.
    pub answered: Answered,
    /// How long the answer may take.
    pub service_timeout: TimeCode,
    /// Private data.
    pub private_data: [u8; Self::PRIVATE],
}

/// The message that an MRA is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are those of the messages")]
pub enum Answered {
    Req,
    Rep,
    Lap,
}

impl Mra {
    /// Bytes of private data.
    pub const PRIVATE: usize = 222;

    pub(super) fn read(body: &Body<MESSAGE_BYTES>) -> Result<Self, Unread> {
        let (local_id, remote_id) = ids(body);
        let answered = match body.bits::<2>(8, 6).get() {
            0 => Answered::Req,
            1 => Answered::Rep,
            2 => Answered::Lap,
            _ => return Err(Unread::Reserved),
        };
        let service_timeout = TimeCode::of(body.bits(9, 3));
        Ok(Self { local_id, remote_id, answered, service_timeout, private_data: body.bytes(10) })
    }

    pub(super) fn write(&self, body: &mut Body<MESSAGE_BYTES>) {
        set_ids(body, self.local_id, self.remote_id);
        let answered = match self.answered {
            Answered::Req => 0,
            Answered::Rep => 1,
            Answered::Lap => 2,
        };
        body.set_bits(8, 6, Bits::<2>::low(answered));
        body.set_bits(9, 3, self.service_timeout.bits());
        body.set(10, self.private_data);
    }
}

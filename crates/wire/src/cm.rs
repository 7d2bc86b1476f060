//! The messages of connection management (rules H.7): datagrams for queue pair 1 that carry a management
//! datagram (MAD) of 256 bytes each.
//!
//! | module | holds |
//! |---|---|
//! | [`fields`] | numbers of a fixed width, times, path MTUs, information of a limited length |
//! | [`service`] | what a request is for: service ids, port spaces, and the header with IP addresses |
//! | [`reason`] | why a request was refused |
//! | [`message`] | the messages, field by field |
//!
//! [`Mad`] is a message with its header: [`Mad::parse`] reads one, [`Mad::write`] writes one. A message that its type
//! cannot hold is refused. Reserved bits are ignored when read, and zero when written.
//!
//! | reserved | where |
//! |---|---|
//! | MAD | status and class-specific bytes 4 to 7, bytes 18 and 19; the modifier of all but REQ, REP, SIDR_REP |
//! | REQ | 4; 24 to 27; of a path: 6 bits before the rate, the low 3 of the service level's byte and of the timeout's |
//! | MRA | the low 6 bits of 8, the low 3 of 9 |
//! | REJ | the low 6 bits of 8, the low bit of 9; information beyond its length |
//! | REP | the low 4 bits of 27 |
//! | DREQ | 11 |
//! | SIDR_REQ | 6 and 7 |
//! | SIDR_REP | information beyond its length |

mod body;
pub mod fields;
pub mod message;
pub mod reason;
pub mod service;

pub use fields::{Bits, CommId, Information, PathMtu, Qpn, TimeCode};
pub use message::{
    Answered, Drep, Dreq, Ece, Message, Mra, Path, Receiver, Rej, Rejected, Rep, Req, Rtu, SidrRep,
    SidrReq, Transport,
};
pub use reason::{RejectReason, SidrStatus};
pub use service::{IpHeader, PortSpace, ServiceId};

use body::Body;

/// Bytes of a management datagram, which is the whole payload.
pub const MAD_BYTES: usize = HEADER_BYTES + MESSAGE_BYTES;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 24;
/// The offset of the attribute that names the message.
pub const ATTRIBUTE_AT: usize = 16;
/// Bytes of the message behind the header.
const MESSAGE_BYTES: usize = 232;

/// The queue pair that sends and receives the messages (rule CM-01).
pub const GSI_QPN: u32 = 1;
/// Their Q_Key (rule CM-01).
pub const GSI_QKEY: u32 = 0x8001_0000;

/// The beginning of every header: base version, class, class version, method (rule CM-02).
const KIND: [u8; 4] = [1, 0x07, 2, 0x03];

/// A message and the transaction that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mad {
    /// Transaction id. Answers repeat it, and receivers ignore it (rule CM-11).
    pub transaction: u64,
    /// The message.
    pub message: Message,
}

/// Why bytes are no valid message. Only the last kind gets an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ignored {
    /// Not 256 bytes.
    #[error("not of 256 bytes")]
    Length,
    /// It has another version, class or method (rule CM-02).
    #[error("of another version, class or method")]
    Kind,
    /// An attribute that connection management does not have.
    #[error("of an unknown attribute, {0:#x}")]
    Attribute(u16),
    /// About an alternate path (LAP, APR). RoCE has none (rule CM-12).
    #[error("about an alternate path")]
    AlternatePath,
    /// A field has a value that is reserved.
    #[error("a field of it has a reserved value")]
    Reserved,
    /// A REQ that asks for an MTU or a service that does not exist. A REJ refuses it (rule CM-13).
    #[error("asks for what does not exist: {reason:?}")]
    Impossible {
        /// Its transaction.
        transaction: u64,
        /// The sender's communication id.
        local_id: CommId,
        /// The reason for the REJ.
        reason: RejectReason,
    },
}

impl Mad {
    /// Reads a message.
    pub fn parse(bytes: &[u8]) -> Result<Self, Ignored> {
        let bytes: &[u8; MAD_BYTES] = bytes.try_into().map_err(|_| Ignored::Length)?;
        let mut header = Body([0; HEADER_BYTES]);
        let mut body = Body([0; MESSAGE_BYTES]);
        header.0.copy_from_slice(&bytes[..HEADER_BYTES]);
        body.0.copy_from_slice(&bytes[HEADER_BYTES..]);
        if header.bytes(0) != KIND {
            return Err(Ignored::Kind);
        }
        let transaction = header.u64(8);
        let message = match Message::read(header.u16(ATTRIBUTE_AT), header.u32(20), &body) {
            Ok(message) => message,
            Err(message::Unread::Attribute(attribute)) => {
                return Err(Ignored::Attribute(attribute));
            }
            Err(message::Unread::AlternatePath) => return Err(Ignored::AlternatePath),
            Err(message::Unread::Reserved) => return Err(Ignored::Reserved),
            Err(message::Unread::Impossible(local_id, reason)) => {
                return Err(Ignored::Impossible { transaction, local_id, reason });
            }
        };
        Ok(Self { transaction, message })
    }

    /// The message's bytes.
    pub fn write(&self) -> [u8; MAD_BYTES] {
        let mut header = Body([0; HEADER_BYTES]);
        let mut body = Body([0; MESSAGE_BYTES]);
        header.set(0, KIND);
        header.set(8, self.transaction.to_be_bytes());
        header.set(ATTRIBUTE_AT, self.message.attribute().to_be_bytes());
        header.set(20, self.message.write(&mut body).to_be_bytes());
        let mut bytes = [0; MAD_BYTES];
        bytes[..HEADER_BYTES].copy_from_slice(&header.0);
        bytes[HEADER_BYTES..].copy_from_slice(&body.0);
        bytes
    }
}

#[cfg(test)]
mod tests;

//! The messages, field by field. `local` is the sender's own, `remote` the receiver's.

mod mra;
mod path;
mod rej;
mod release;
mod rep;
mod req;
mod sidr;

use super::body::Body;
use super::fields::{Bits, CommId, Information};
use super::reason::RejectReason;
use super::service::ServiceId;
use super::{MESSAGE_BYTES, Mad};

pub use mra::{Answered, Mra};
pub use path::Path;
pub use rej::{Rej, Rejected};
pub use release::{Drep, Dreq};
pub use rep::{Rep, Rtu};
pub use req::{Req, Transport};
pub use sidr::{SidrRep, SidrReq};

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Asks for a connection.
    Req(Req),
    /// Asks for more time.
    Mra(Mra),
    /// Refuses, or ends a connection that was not complete yet.
    Rej(Rej),
    /// Answers a REQ.
    Rep(Rep),
    /// Answers a REP: the connection stands.
    Rtu(Rtu),
    /// Ends a connection.
    Dreq(Dreq),
    /// Answers a DREQ.
    Drep(Drep),
    /// Asks for the queue pair of a datagram service.
    SidrReq(SidrReq),
    /// Answers a SIDR_REQ.
    SidrRep(SidrRep),
}

/// Extended connection establishment: options that adapters of one vendor agree on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ece {
    /// The vendor.
    pub vendor: Bits<24>,
    /// Its options.
    pub options: u32,
}

/// Why a message cannot be read.
pub(super) enum Unread {
    Attribute(u16),
    AlternatePath,
    Reserved,
    Impossible(CommId, RejectReason),
}

/// The attributes that name the messages (rule CM-02).
#[expect(missing_docs, reason = "the names are those of the messages")]
pub mod attribute {
    pub const REQ: u16 = 0x10;
    pub const MRA: u16 = 0x11;
    pub const REJ: u16 = 0x12;
    pub const REP: u16 = 0x13;
    pub const RTU: u16 = 0x14;
    pub const DREQ: u16 = 0x15;
    pub const DREP: u16 = 0x16;
    pub const SIDR_REQ: u16 = 0x17;
    pub const SIDR_REP: u16 = 0x18;
    pub const LAP: u16 = 0x19;
    pub const APR: u16 = 0x1a;
}

use attribute::*;

impl Message {
    /// The attribute that names it (rule CM-02).
    pub const fn attribute(&self) -> u16 {
        match self {
            Self::Req(_) => REQ,
            Self::Mra(_) => MRA,
            Self::Rej(_) => REJ,
            Self::Rep(_) => REP,
            Self::Rtu(_) => RTU,
            Self::Dreq(_) => DREQ,
            Self::Drep(_) => DREP,
            Self::SidrReq(_) => SIDR_REQ,
            Self::SidrRep(_) => SIDR_REP,
        }
    }

    /// Its name in the specification.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Req(_) => "REQ",
            Self::Mra(_) => "MRA",
            Self::Rej(_) => "REJ",
            Self::Rep(_) => "REP",
            Self::Rtu(_) => "RTU",
            Self::Dreq(_) => "DREQ",
            Self::Drep(_) => "DREP",
            Self::SidrReq(_) => "SIDR_REQ",
            Self::SidrRep(_) => "SIDR_REP",
        }
    }

    /// Reads the message of an attribute with its modifier.
    pub(super) fn read(
        attribute: u16,
        modifier: u32,
        body: &Body<MESSAGE_BYTES>,
    ) -> Result<Self, Unread> {
        Ok(match attribute {
            REQ => Self::Req(Req::read(modifier, body)?),
            MRA => Self::Mra(Mra::read(body)?),
            REJ => Self::Rej(Rej::read(body)?),
            REP => Self::Rep(Rep::read(modifier, body)),
            RTU => Self::Rtu(Rtu::read(body)),
            DREQ => Self::Dreq(Dreq::read(body)),
            DREP => Self::Drep(Drep::read(body)),
            SIDR_REQ => Self::SidrReq(SidrReq::read(body)),
            SIDR_REP => Self::SidrRep(SidrRep::read(modifier, body)?),
            LAP | APR => return Err(Unread::AlternatePath),
            attribute => return Err(Unread::Attribute(attribute)),
        })
    }

    /// Writes it into zeroes, and returns the attribute's modifier.
    pub(super) fn write(&self, body: &mut Body<MESSAGE_BYTES>) -> u32 {
        match self {
            Self::Req(req) => return req.write(body),
            Self::Mra(mra) => mra.write(body),
            Self::Rej(rej) => rej.write(body),
            Self::Rep(rep) => return rep.write(body),
            Self::Rtu(rtu) => rtu.write(body),
            Self::Dreq(dreq) => dreq.write(body),
            Self::Drep(drep) => drep.write(body),
            Self::SidrReq(request) => request.write(body),
            Self::SidrRep(reply) => return reply.write(body),
        }
        0
    }
}

/// The two ids that most messages begin with.
fn ids(body: &Body<MESSAGE_BYTES>) -> (CommId, CommId) {
    (CommId(body.u32(0)), CommId(body.u32(4)))
}

fn set_ids(body: &mut Body<MESSAGE_BYTES>, local: CommId, remote: CommId) {
    body.set(0, local.0.to_be_bytes());
    body.set(4, remote.0.to_be_bytes());
}

fn information(length: u32, room: [u8; Information::MAX]) -> Result<Information, Unread> {
    let bytes = room.get(..length as usize).ok_or(Unread::Reserved)?;
    Information::new(bytes).ok_or(Unread::Reserved)
}

/// For which end a message is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// The server of this service.
    Service(ServiceId),
    /// The end that calls the connection or request by this id.
    Id(CommId),
    /// The end whose peer has this node GUID, and calls the connection by this id. The sender has not learned the
    /// receiver's own id (rule CM-27).
    Peer(u64, CommId),
}

impl Mad {
    /// For which end it is meant.
    pub fn receiver(&self) -> Receiver {
        match &self.message {
            Message::Req(req) => Receiver::Service(req.service),
            Message::SidrReq(request) => Receiver::Service(request.service),
            Message::Rej(rej) => match rej.timed_out() {
                Some(guid) => Receiver::Peer(guid, rej.local_id),
                None => Receiver::Id(rej.remote_id),
            },
            Message::Mra(Mra { remote_id, .. })
            | Message::Rep(Rep { remote_id, .. })
            | Message::Rtu(Rtu { remote_id, .. })
            | Message::Dreq(Dreq { remote_id, .. })
            | Message::Drep(Drep { remote_id, .. }) => Receiver::Id(*remote_id),
            Message::SidrRep(reply) => Receiver::Id(reply.request_id),
        }
    }
}

//! Requests and replies as the words of a ring's record header.
//!
//! They come from another process. So all of them are checked here, once, on a copy that nobody else can write. A
//! message from here has lengths that fit each other, its record, and the record of the answer.

mod answer;
mod plain;
mod request;

use transom_device::execution::{PlainSend, Reply, Request};
use transom_device::qp::QpNumber;
use transom_system::segment::RingKind;
use transom_wire::Psn;

pub(crate) use self::answer::{ANSWER_WORDS, decode_answer, encode_answer};
use self::plain::decode_plain_send;
pub(crate) use self::plain::{
    PLAIN_SEND_RESERVES, PLAIN_SEND_WORDS, encode_acknowledgement, encode_plain_send,
};
pub(crate) use self::request::{answer_data, decode_request, encode_request, reservation};
use super::Reference;
use super::ring::{Garbled, Header};

/// A reply, and the message that it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The requester.
    pub to: QpNumber,
    /// The number of the message it answers.
    pub message: Psn,
    /// The attempt it answers.
    pub attempt: u64,
    /// Bytes that the requester kept free for it.
    pub reserved: u64,
    /// The answer.
    pub reply: Reply,
}

/// Something that came from the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A plain SEND, with its data in the record.
    Send(PlainSend),
    /// Any other segment of a request. If the data is not in the record, also where its sender has it.
    Request(Request, Option<Reference>),
    /// An answer to one.
    Answer(Answer),
}

impl Arrival {
    /// Parses the header of a record that has room for so many bytes behind it. `Err` if it is malformed.
    pub(crate) fn parse(kind: RingKind, header: &Header, room: u64) -> Result<Self, Garbled> {
        let arrival = match kind {
            RingKind::Requests => decode_plain_send(header)
                .map(Self::Send)
                .or_else(|| decode_request(header).map(|(request, at)| Self::Request(request, at))),
            RingKind::Replies => decode_answer(header).map(Self::Answer),
        };
        arrival.filter(|arrival| arrival.payload() <= room).ok_or(Garbled)
    }

    /// Bytes that come behind the header.
    pub(crate) fn payload(&self) -> u64 {
        match self {
            Self::Send(send) => send.length,
            Self::Request(request, None) if request.body.carries_data() => request.length,
            Self::Answer(Answer { reply: Reply::Data { length }, .. }) => *length,
            _ => 0,
        }
    }
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

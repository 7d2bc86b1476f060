//! Work that comes to nothing though no access is refused here, with everything known about it, to explain it.

use std::net::IpAddr;

use super::retry::Retry;
use crate::protection::Reason;
use crate::qp::{QpNumber, QpState};
use crate::queue::{Opcode, Status};

/// A work request of the send queue that ends in error.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    /// The consumer's number of the work request.
    pub wr_id: u64,
    /// The operation.
    pub opcode: Opcode,
    /// How it ends.
    pub status: Status,
    /// Why.
    pub why: Why,
    /// How often it may be sent again, and when.
    pub retry: Retry,
}

/// Why a work request ends in error: what its requester knows by itself. The host adds what it sees of the other end,
/// for `transom explain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// No answer came.
    Unanswered,
    /// The network says that nobody is there any more.
    Deserted,
    /// The peer had no receive for it.
    NotReady,
    /// The answer does not fit the request.
    BadResponse,
    /// The peer has refused it with this code. Zero if its answer has no room for one.
    Refused(u8),
    /// It does not fit its queue pair. The reason has a value and a limit.
    Unfit(Reason, u64, u64),
    /// A rehearsal wants it to fail.
    Meant,
}

impl Why {
    /// The code of the reason, zero if none is known: `vendor_err`.
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Unanswered
            | Self::Deserted
            | Self::NotReady
            | Self::BadResponse
            | Self::Meant => 0,
            Self::Refused(code) => code,
            Self::Unfit(reason, ..) => reason.code(),
        }
    }
}

/// Why a message that has come is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unheard {
    /// The queue pair receives nothing in this state.
    Deaf(QpState),
    /// The message is of another service.
    OtherService,
    /// The queue pair is connected to this one.
    OtherPeer(QpNumber),
    /// The first message has another PSN than the queue pair awaits.
    OtherPsn {
        /// That which it awaits.
        awaited: u32,
        /// That which came.
        came: u32,
    },
    /// The datagram has another Q_Key.
    OtherQkey {
        /// That of the queue pair.
        own: u32,
        /// That of the datagram.
        came: u32,
    },
    /// No receive is posted.
    NoReceive,
    /// The receive is too small for the datagram and the 40 bytes of the header before it.
    TooSmall {
        /// The room that it needs.
        needed: u64,
        /// The room that there is.
        room: u64,
    },
    /// No queue pair has the number.
    NoQueuePair,
    /// It comes from an address that the queue pair is not connected to.
    OtherAddress(IpAddr),
}

impl Unheard {
    /// How many reasons there are.
    pub const KINDS: usize = 9;

    /// Which of them it is, from 0 on; it stays the same from version to version.
    pub const fn kind(self) -> u8 {
        match self {
            Self::Deaf(_) => 0,
            Self::OtherService => 1,
            Self::OtherPeer(_) => 2,
            Self::OtherPsn { .. } => 3,
            Self::OtherQkey { .. } => 4,
            Self::NoReceive => 5,
            Self::TooSmall { .. } => 6,
            Self::NoQueuePair => 7,
            Self::OtherAddress(_) => 8,
        }
    }
}

//! Requests and replies as segments: what every link carries.

use transom_wire::{NakCode, Psn, RnrTimer};

use crate::qp::{QpNumber, Service};
use crate::queue::{Body, Remote};

/// One segment of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Target queue pair.
    pub to: QpNumber,
    /// Origin queue pair.
    pub from: QpNumber,
    /// Transport service of the origin.
    pub service: Service,
    /// The shared receive queue it is for (XRC), or its address (UD).
    pub remote: Remote,
    /// Its number, counted from the sender's `sq_psn`. On a link without packets it is that of the message. On a link
    /// with packets it is that of the segment's first packet, and there a segment of a READ is a request of its own,
    /// for its part of the range.
    pub message: Psn,
    /// Counts the origin's restarts, so that answers to abandoned attempts are told apart.
    pub attempt: u64,
    /// The operation of the message.
    pub body: Body,
    /// The offset of this segment in the message.
    pub offset: u64,
    /// Bytes of this segment.
    pub length: u64,
    /// Bytes of the whole message. [`Request::OPEN`] for a SEND that has more to come, on a link that does not tell how
    /// much.
    pub total: u64,
    /// Raise a solicited event when it is received.
    pub solicited: bool,
}

impl Request {
    /// The length of a message whose end has not come yet.
    pub const OPEN: u64 = u64::MAX;

    /// Bytes of the whole message, as far as known.
    pub fn known(&self) -> u64 {
        if self.total == Self::OPEN { self.offset.saturating_add(self.length) } else { self.total }
    }

    /// Which part of its message it is.
    pub const fn part(&self) -> Part {
        Part { offset: self.offset, length: self.length, total: self.total }
    }

    /// Whether the message ends with this segment.
    pub fn is_last(&self) -> bool {
        self.offset.checked_add(self.length) == Some(self.total)
    }

    /// Whether more messages may leave in one burst with this segment: it is a whole message, which is
    /// acknowledged, and its answer brings nothing.
    pub fn may_be_joined(&self) -> bool {
        let whole = self.offset == 0 && self.is_last();
        whole && self.service.is_reliable() && !self.body.uses_read_resources()
    }
}

/// A SEND that is a message of one segment between reliably connected queue pairs, with some data and nothing
/// beside it: what most messages are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainSend {
    /// Target queue pair.
    pub to: QpNumber,
    /// Origin queue pair.
    pub from: QpNumber,
    /// Its number, as [`Request::message`].
    pub message: Psn,
    /// As [`Request::attempt`].
    pub attempt: u64,
    /// Bytes of it; not zero.
    pub length: u64,
    /// Raise a solicited event when it is received.
    pub solicited: bool,
}

impl PlainSend {
    /// The request that it is.
    pub fn request(&self) -> Request {
        let Self { to, from, message, attempt, length, solicited } = *self;
        Request {
            to,
            from,
            service: Service::Rc,
            remote: Remote::Connected,
            message,
            attempt,
            body: Body::Send,
            offset: 0,
            length,
            total: length,
            solicited,
        }
    }
}

/// Which part of a message a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where in the message it begins.
    pub offset: u64,
    /// Its bytes.
    pub length: u64,
    /// Bytes of the whole message.
    pub total: u64,
}

impl Part {
    /// All of a message of this length.
    pub const fn whole(length: u64) -> Self {
        Self { offset: 0, length, total: length }
    }
}

/// A target's answer to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nothing yet, or nothing ever (UC).
    Silence,
    /// The message is done.
    Ack,
    /// An atomic is done; the old value.
    Atomic(u64),
    /// The data of a READ segment comes with this, or has been placed already.
    Data {
        /// Bytes.
        length: u64,
    },
    /// No receive was posted; try again after the timer.
    NotReady(RnrTimer),
    /// Refused; the target is in error.
    Nak {
        /// The code in a packet.
        code: NakCode,
        /// Why, where the link can carry it: the code of a [`Reason`](crate::protection::Reason),
        /// zero if it cannot.
        reason: u8,
    },
    /// Nothing will come: a network would have lost it (rules RA-03, INV-35).
    Dropped,
    /// The origin's own buffers failed while the target copied from or to them.
    OriginFailed,
}

/// An answer that a user wants to a request instead of its being carried out, to see how a program
/// copes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injection {
    /// Refused: the access is not allowed.
    RemoteAccess,
    /// Refused: the request is wrong.
    InvalidRequest,
    /// Refused: it could not be carried out.
    RemoteOperational,
    /// No receive is there; to be tried again after the timer.
    NotReady,
    /// None: a network lost the request.
    Lost,
}

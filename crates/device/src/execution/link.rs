//! The interface between a requester and its link.

use super::Reply;
use super::one_sided::CHUNK;
use crate::operation::Operation;
use crate::protection::{Refusal, RemoteAddress};
use crate::queue::{Body, Sge};

/// The local data of a send work request.
#[derive(Clone, Copy)]
pub enum Payload<'a> {
    /// Captured when posted.
    Inline(&'a [u8]),
    /// Read from, or written to, when carried out.
    Buffers(&'a [Sge]),
}

/// A WRITE, READ or atomic, as the direct way carries it out.
#[derive(Clone, Copy)]
pub enum OneSided<'a> {
    /// RDMA WRITE without immediate data.
    Write {
        /// The peer's memory.
        to: RemoteAddress,
        /// The data to write.
        data: Payload<'a>,
    },
    /// RDMA READ.
    Read {
        /// The peer's memory.
        from: RemoteAddress,
        /// Where it is read to.
        buffers: &'a [Sge],
    },
    /// Fetch-and-add or compare-and-swap.
    Atomic {
        /// The peer's word.
        at: RemoteAddress,
        /// Which of them.
        body: &'a Body,
        /// Where the old value goes.
        buffers: &'a [Sge],
    },
}

impl<'a> OneSided<'a> {
    /// The operation.
    pub fn operation(&self) -> Operation {
        match self {
            Self::Write { .. } => Operation::Write,
            Self::Read { .. } => Operation::Read,
            Self::Atomic { body, .. } => body.operation(),
        }
    }

    /// Its place in the memory of the target.
    pub fn remote(&self) -> RemoteAddress {
        match *self {
            Self::Write { to, .. } => to,
            Self::Read { from, .. } => from,
            Self::Atomic { at, .. } => at,
        }
    }

    /// The operation of a message of this length, if the direct path can take it.
    pub fn of(body: &'a Body, payload: Payload<'a>, length: u64) -> Option<Self> {
        Some(match (body, payload) {
            (&Body::Write { address, key, immediate: None }, data) => {
                Self::Write { to: RemoteAddress { address, key }, data }
            }
            (&Body::Read { address, key }, Payload::Buffers(buffers)) => {
                Self::Read { from: RemoteAddress { address, key }, buffers }
            }
            (
                &(Body::FetchAdd { address, key, .. } | Body::CompareSwap { address, key, .. }),
                Payload::Buffers(buffers),
            ) if length == 8 => Self::Atomic { at: RemoteAddress { address, key }, body, buffers },
            _ => return None,
        })
    }
}

/// The result of a one-sided operation on the direct path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direct {
    /// Carried out.
    Done,
    /// Not possible or not allowed: ask the responder.
    Declined,
    /// The local buffers are refused or gone.
    Near(Refusal),
}

/// How much a link takes as one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// The path MTU in bytes, if the link carries packets. Then messages are numbered by packets, else one by one.
    pub mtu: Option<u64>,
    /// Messages up to this length go as a whole.
    pub whole: u64,
    /// How much of anything longer goes at once; a multiple of the path MTU, if there is one.
    pub part: u64,
    /// Messages up to this length are copied as they are handed over, before any of it is sent. So their buffers need
    /// not be checked before.
    pub copied: u64,
}

impl Segmentation {
    /// Segments of so many bytes at most, and no packets.
    pub const fn of_messages(most: u64) -> Self {
        Self { mtu: None, whole: most, part: most, copied: 0 }
    }

    /// How many of the `rest` bytes of a message are its next segment.
    #[inline]
    pub const fn segment_of(&self, rest: u64) -> u64 {
        if rest <= self.whole { rest } else { self.part }
    }
}

impl Default for Segmentation {
    /// The segmentation of a link within a process.
    fn default() -> Self {
        Self::of_messages(CHUNK)
    }
}

/// The result of handing a segment to the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// On its way; a reply will come.
    Queued,
    /// No room now; the link will have the queue pair advanced when there is.
    Busy,
    /// Carried out at once.
    Answered(Reply),
    /// The local buffers are refused or gone.
    Near(Refusal),
    /// Nobody is there.
    Unreachable,
}

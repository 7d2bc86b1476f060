//! A work request of the send queue.

use transom_wire::Psn;

use crate::operation::Data;
use crate::queue::{Opcode, SendFlags, SendOp, Work};

/// How far a work request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Waiting,
    /// `sent` bytes are on their way, `answered` bytes of a READ have come.
    Started {
        sent: u64,
        answered: u64,
    },
}

/// Whose work it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The program has posted it.
    Program,
    /// The same, and its end is told of ([`Process::has_ended`](super::super::Process::has_ended)).
    Watched,
    /// It reads the data of a rendezvous.
    RendezvousRead,
    /// It tells the sender, right after that.
    RendezvousEnd,
}

#[derive(Clone, Copy)]
pub(crate) struct SendWqe {
    pub(super) wr_id: u64,
    pub(super) op: SendOp,
    pub(super) flags: SendFlags,
    pub(super) num_sge: usize,
    pub(crate) length: u64,
    pub(crate) message: Psn,
    pub(super) progress: Progress,
    pub(super) part: Part,
}

impl Work for SendWqe {
    fn blank() -> &'static Self {
        const {
            &Self {
                wr_id: 0,
                op: SendOp::Unsupported,
                flags: SendFlags::empty(),
                num_sge: 0,
                length: 0,
                message: Psn::new(0),
                progress: Progress::Waiting,
                part: Part::Program,
            }
        }
    }
}

impl SendWqe {
    /// Whether it takes one of the target's responder resources until it is answered.
    pub(crate) fn uses_read_resources(&self) -> bool {
        self.op.operation().is_some_and(|operation| operation.needs().responder_resources)
    }

    /// The data that it sends, or that its answer brings.
    pub(crate) fn data(&self) -> Data {
        self.op.operation().map_or(Data::None, |operation| operation.needs().data)
    }

    /// How many of its bytes have come or are acknowledged, once it has been started.
    pub(crate) fn answered(&self) -> Option<u64> {
        match self.progress {
            Progress::Started { answered, .. } => Some(answered),
            Progress::Waiting => None,
        }
    }

    /// Whether its answer brings data for its buffers.
    pub(crate) fn returns_data(&self) -> bool {
        matches!(self.data(), Data::Fetched | Data::OldValue)
    }
}

/// The opcode of its completion. An operation that the service does not have completes in error, as a SEND would.
#[inline]
pub(super) fn opcode(op: &SendOp) -> Opcode {
    op.operation().and_then(|operation| operation.needs().completion).unwrap_or(Opcode::Send)
}

//! A work request of the send queue.

use transom_wire::Psn;

use crate::queue::{Body, LocalOp, Opcode, SendFlags, SendOp};

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
    /// It reads the data of a rendezvous.
    RendezvousRead,
    /// It tells the sender, right after that.
    RendezvousEnd,
}

#[derive(Clone, Copy)]
pub(super) struct SendWqe {
    pub(super) wr_id: u64,
    pub(super) op: SendOp,
    pub(super) flags: SendFlags,
    pub(super) pieces: usize,
    pub(super) length: u64,
    pub(super) message: Psn,
    pub(super) progress: Progress,
    pub(super) part: Part,
}

impl SendWqe {
    pub(super) const BLANK: Self = Self {
        wr_id: 0,
        op: SendOp::Unsupported,
        flags: SendFlags::empty(),
        pieces: 0,
        length: 0,
        message: Psn::new(0),
        progress: Progress::Waiting,
        part: Part::Program,
    };

    /// Whether it takes one of the target's READ resources until it is answered.
    pub(super) fn uses_read_resources(&self) -> bool {
        matches!(self.op, SendOp::Message(body) if body.uses_read_resources())
    }

    /// Whether its answer brings data for its buffers.
    pub(super) fn returns_data(&self) -> bool {
        matches!(self.op, SendOp::Message(body) if body.returns_data())
    }
}

/// What its completion is called.
pub(super) fn opcode(op: &SendOp) -> Opcode {
    match op {
        SendOp::Message(body) => match body {
            Body::Send | Body::SendImmediate(_) | Body::SendInvalidate(_) => Opcode::Send,
            Body::Write { .. } => Opcode::Write,
            Body::Read { .. } => Opcode::Read,
            Body::CompareSwap { .. } => Opcode::CompareSwap,
            Body::FetchAdd { .. } => Opcode::FetchAdd,
            Body::AtomicWrite { .. } => Opcode::AtomicWrite,
            Body::Flush { .. } => Opcode::Flush,
        },
        SendOp::Local(LocalOp::BindType1(_) | LocalOp::BindType2(_)) => Opcode::BindWindow,
        SendOp::Local(LocalOp::Invalidate(_)) => Opcode::LocalInvalidate,
        SendOp::Unsupported => Opcode::Send,
    }
}

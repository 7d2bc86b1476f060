//! A work request of the send queue.

use transom_wire::Psn;

use super::super::Body;
use crate::queue::{Opcode, SendFlags, SendOp};

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

    /// Whether it takes one of the target's READ resources until it is answered, and a fence waits
    /// for it (rules ORD-10, RN-11).
    pub(super) fn uses_read_resources(&self) -> bool {
        let no_answer_data = matches!(self.op, SendOp::AtomicWrite { .. } | SendOp::Flush { .. });
        no_answer_data || self.returns_data()
    }

    /// Whether its answer brings data for its buffers.
    pub(super) fn returns_data(&self) -> bool {
        matches!(
            self.op,
            SendOp::Read { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }
        )
    }

    /// What the message does at its target; nothing if it stays here.
    pub(super) fn body(&self) -> Option<Body> {
        let send = |immediate, invalidate| Body::Send { immediate, invalidate };
        Some(match self.op {
            SendOp::Send => send(None, None),
            SendOp::SendImmediate(immediate) => send(Some(immediate), None),
            SendOp::SendInvalidate(key) => send(None, Some(key)),
            SendOp::Write { address, key, immediate } => Body::Write { address, key, immediate },
            SendOp::Read { address, key } => Body::Read { address, key },
            SendOp::CompareSwap { address, key, swap, compare } => {
                Body::CompareSwap { address, key, swap, compare }
            }
            SendOp::FetchAdd { address, key, add } => Body::FetchAdd { address, key, add },
            SendOp::AtomicWrite { address, key } => Body::AtomicWrite { address, key },
            SendOp::Flush { address, key, length, placement, whole } => {
                Body::Flush { address, key, length, placement, whole }
            }
            _ => return None,
        })
    }
}

/// What its completion is called.
pub(super) fn opcode(op: &SendOp) -> Opcode {
    match op {
        SendOp::Send
        | SendOp::SendImmediate(_)
        | SendOp::SendInvalidate(_)
        | SendOp::Unsupported => Opcode::Send,
        SendOp::Write { .. } => Opcode::Write,
        SendOp::Read { .. } => Opcode::Read,
        SendOp::CompareSwap { .. } => Opcode::CompareSwap,
        SendOp::FetchAdd { .. } => Opcode::FetchAdd,
        SendOp::AtomicWrite { .. } => Opcode::AtomicWrite,
        SendOp::Flush { .. } => Opcode::Flush,
        SendOp::BindType1(_) | SendOp::BindType2(_) => Opcode::BindWindow,
        SendOp::LocalInvalidate(_) => Opcode::LocalInvalidate,
    }
}

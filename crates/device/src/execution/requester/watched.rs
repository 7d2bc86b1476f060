//! Work requests that somebody watches.

use super::super::watched::{Awaited, Ended, Posted};
use super::super::{Context, Process};
use super::wqe::{Part, Progress};
use super::{Pause, Requester};
use crate::qp::{QpState, QpSummary};
use crate::queue::{SendFlags, SendOp, Status};

impl Requester {
    /// Has the end of the work request at a position told of, if it has not ended.
    pub fn watch(&mut self, position: u64) -> Posted {
        if position < self.ring.head() || position >= self.ring.tail() {
            return Posted::Ended;
        }
        let wqe = self.ring.at_mut(position);
        if wqe.part == Part::Program {
            wqe.part = Part::Watched;
        }
        match wqe.progress {
            Progress::Waiting => Posted::Waits,
            Progress::Started { .. } => Posted::Sent(wqe.message),
        }
    }

    /// What the next work request waits for, if there is one that cannot go on now.
    pub fn next_awaits(&self, summary: &QpSummary) -> Option<Awaited> {
        if self.under_way.next == self.ring.tail() {
            return None;
        }
        if self.pause != Pause::No {
            return Some(Awaited::Time);
        }
        let wqe = self.ring.at(self.under_way.next);
        if summary.gate().state != QpState::Rts {
            return Some(Awaited::State);
        }
        if wqe.progress != Progress::Waiting || self.may_start(wqe) {
            return Some(Awaited::Window);
        }
        Some(match wqe.op {
            _ if wqe.flags.contains(SendFlags::FENCE) => Awaited::Fence,
            SendOp::Message(body) if body.uses_read_resources() => Awaited::Reads,
            _ => Awaited::Turn,
        })
    }

    /// The head ends, and somebody watches it.
    #[cold]
    pub(super) fn tell_end<P: Process>(&self, cx: &Context<'_, P>, status: Status, length: u64) {
        let position = self.ring.head();
        let head = self.ring.at(position);
        let (wr_id, operation) = (head.wr_id, head.op.operation());
        cx.process.has_ended(&Ended { position, wr_id, operation, status, length });
    }
}

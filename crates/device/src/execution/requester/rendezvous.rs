//! Rendezvous in the send queue: a READ of the data, then a SEND that tells the sender. They take no room from the
//! program, and complete once, on the receiving side, with the SEND. Its acknowledgement means that the sender has been
//! told, so the program may end as soon as it sees the completion.

use transom_wire::Psn;
use transom_wire::tmh::{TMH_BYTES, TagHeader, TagOperation};

use super::super::rendezvous::{MAX_RENDEZVOUS, Rendezvous};
use super::super::{Context, Effect, Process};
use super::Requester;
use super::wqe::{Part, Progress, SendWqe};
use crate::qp::QpState;
use crate::queue::{Body, Completion, Flags, Opcode, SendFlags, SendOp, Status};

/// Work requests of a rendezvous.
const WORK: usize = 2;
/// Room that a send queue has for rendezvous.
pub(super) const ROOM: usize = WORK * MAX_RENDEZVOUS;
/// Inline bytes that they need.
pub(super) const INLINE: usize = TMH_BYTES;

/// The rendezvous work of a send queue.
pub(super) struct RendezvousWork {
    /// Room in the ring that is for them only.
    room: usize,
    /// How much of the ring is theirs now.
    pub(super) work: usize,
    /// The message about the rendezvous whose READ has ended.
    ended_read: Option<EndedRead>,
}

impl RendezvousWork {
    /// None yet, and room for them.
    pub(super) fn with_room(room: usize) -> Self {
        Self { room, work: 0, ended_read: None }
    }

    /// The effects of all that may end at once: as many as their work requests, because each completes a receive and
    /// makes room for another.
    pub(super) fn most_effects(&self) -> usize {
        self.room
    }

    /// There are none any more.
    pub(super) fn clear(&mut self) {
        self.work = 0;
        self.ended_read = None;
    }
}

/// How the READ of a rendezvous has ended.
#[derive(Clone, Copy)]
struct EndedRead {
    status: Status,
    reason: u8,
    length: u64,
    solicited: bool,
}

impl Requester {
    /// Whether another rendezvous can begin.
    pub fn has_rendezvous_room(&self) -> bool {
        self.rendezvous.work + WORK <= self.rendezvous.room
    }

    /// Begins a rendezvous, for which there is room; [`Requester::next_segment`] begins it.
    pub fn rendezvous<P: Process>(&mut self, rendezvous: &Rendezvous, cx: &mut Context<'_, P>) {
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SOLICITED, rendezvous.solicited);
        let read = SendWqe {
            wr_id: rendezvous.wr_id,
            op: SendOp::Message(Body::Read { address: rendezvous.address, key: rendezvous.key }),
            flags,
            num_sge: rendezvous.num_sge,
            length: u64::from(rendezvous.length),
            message: Psn::default(),
            progress: Progress::Waiting,
            part: Part::RendezvousRead,
        };
        let told = TagHeader { operation: TagOperation::Finished, ..rendezvous.header }.write();
        let tell = SendWqe {
            op: SendOp::Message(Body::Send),
            flags: SendFlags::INLINE | SendFlags::FENCE,
            num_sge: 0,
            length: told.len() as u64,
            part: Part::RendezvousEnd,
            ..read
        };
        self.ring.push(read, &rendezvous.sges[..rendezvous.num_sge], &[]);
        self.ring.push(tell, &[], &[&told]);
        self.rendezvous.work += WORK;
        if matches!(cx.summary.gate().state, QpState::Error | QpState::Sqe) {
            self.flush(cx);
        }
    }

    /// Ends the half of a rendezvous that is at the head. The SEND ends next, and tells how the READ ended: done,
    /// flushed because the READ failed, or failed by itself.
    pub(super) fn end_rendezvous<P: Process>(
        &mut self,
        cx: &mut Context<'_, P>,
        status: Status,
        length: u64,
        reason: u8,
    ) {
        let head = *self.ring.at(self.ring.head());
        self.pop();
        self.rendezvous.work -= 1;
        if head.part == Part::RendezvousRead {
            let solicited = head.flags.contains(SendFlags::SOLICITED);
            self.rendezvous.ended_read = Some(EndedRead { status, reason, length, solicited });
            return;
        }
        let Some(read) = self.rendezvous.ended_read.take() else { return };
        let qp = cx.number.bits();
        let mut completion = Completion::new(head.wr_id, read.status, Opcode::TagReceive, qp);
        completion.vendor_error = read.reason;
        if read.status == Status::Success {
            (completion.status, completion.vendor_error) = (status, reason);
        }
        if completion.status == Status::Success {
            completion.byte_length = read.length as u32;
            completion.flags = Flags::TAG_DATA_VALID;
            // There is room for another.
            cx.effects.push(Effect::Rendezvous);
        }
        cx.effects.complete(completion, read.solicited);
    }
}

//! WRITE and READ at their target, by whoever may reach its memory: the responder itself, or the
//! initiator directly.

use transom_wire::Psn;

use super::{CopyError, Part, Sink, Source};
use crate::protection::{
    Announcer, Attempt, Grant, KeyTable, Operation, Reason, Refusal, RemoteAddress, Waiter, admit,
};
use crate::qp::{Gate, Peering, QpNumber, QpState, QpSummary, Service, SrqSummary};

/// Bytes copied under one announcement: a revocation waits for one chunk, not for a gigabyte.
pub const CHUNK: u64 = 256 << 10;

/// Who goes around the responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Initiator {
    /// Its queue pair.
    pub from: QpNumber,
    /// The PSN of its first message.
    pub first: Psn,
    /// Its transport service.
    pub service: Service,
}

/// The protection domain that keys are checked against.
#[derive(Clone, Copy)]
pub enum KeyDomain<'m> {
    /// The queue pair's.
    QueuePair,
    /// That of the shared receive queue that an XRC message names. It is one of the target's process.
    Shared(&'m SrqSummary),
    /// The responder knows it.
    Known(u32),
}

/// The target of a one-sided operation: its keys, its queue pair, and who is asking.
#[derive(Clone, Copy)]
pub struct Target<'m> {
    /// The target process's key table.
    pub keys: KeyTable<'m>,
    /// The target queue pair's summary.
    pub summary: &'m QpSummary,
    /// The target queue pair's number.
    pub number: QpNumber,
    /// As whom the caller announces to the target.
    pub announcer: Announcer,
    /// How to wait.
    pub waiter: &'m dyn Waiter,
    /// Who goes around the responder; `None` is the responder itself, which has looked already.
    pub initiator: Option<Initiator>,
    /// The protection domain that keys are checked against.
    pub domain: KeyDomain<'m>,
}

/// Why a one-sided operation did not finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// The target queue pair does not receive, or not from here.
    #[error("the queue pair does not receive, or not from here")]
    Closed,
    /// Refused by the target's rules.
    #[error("refused at the target: {0}")]
    Refused(#[source] Refusal),
    /// The caller's own side failed.
    #[error("refused on this side: {0}")]
    Near(#[source] Refusal),
}

/// Memory that its key still grants is not there any more.
#[cold]
#[inline(never)]
fn gone(attempt: &Attempt, keys: KeyTable<'_>) -> Stop {
    let object = keys.look_up(attempt.key);
    Stop::Refused(Refusal { reason: Reason::MemoryGone, attempt: *attempt, object })
}

impl<'m> Target<'m> {
    /// Whether the initiator, if one goes around the responder, may: the queue pair listens to it,
    /// expects its first message, and has no first message to see yet (rules PSN-02, RA-05), nor each
    /// that comes.
    #[inline]
    fn admits(self, gate: &Gate, peering: &Peering) -> bool {
        let Some(initiator) = self.initiator else { return true };
        peering.from == initiator.from
            && peering.first == initiator.first
            && gate.service == initiator.service.target()
            && !gate.by_message
            && (peering.established || gate.state != QpState::Rtr)
    }

    /// The protection domain that keys are checked against now; `None` if an XRC message names a queue that
    /// is not there, or of another XRC domain.
    #[inline]
    fn pd(self, gate: &Gate) -> Option<u32> {
        match self.domain {
            KeyDomain::QueuePair => Some(gate.pd),
            KeyDomain::Shared(srq) => self.summary.key_domain(srq),
            KeyDomain::Known(pd) => Some(pd),
        }
    }

    /// RDMA WRITE of part of a message. The range of the whole is checked before any byte is written
    /// (rule RA-35).
    pub fn write(self, to: RemoteAddress, part: Part, source: &mut dyn Source) -> Result<(), Stop> {
        self.chunks(Operation::Write, to, part, |at, grant| source.copy_to(at, grant))
    }

    /// Carries out an operation on a message of at most [`CHUNK`] bytes if it is allowed: one look at the queue
    /// pair, and no loop. False if it is refused, if the queue pair has changed meanwhile, or if `copy` answers so.
    #[inline(always)]
    pub fn try_at_once(
        self,
        operation: Operation,
        at: RemoteAddress,
        length: u64,
        copy: impl FnOnce(&Grant<'_>) -> bool,
    ) -> bool {
        let copy = |grant: &Grant<'_>| if copy(grant) { Ok(()) } else { Err(CopyError::Far) };
        let copied = self.chunk(operation, at, Part::whole(length), 0, |_, grant| copy(grant));
        matches!(copied, Some(Ok(_)))
    }

    /// RDMA READ of part of a message.
    pub fn read(self, from: RemoteAddress, part: Part, sink: &mut dyn Sink) -> Result<(), Stop> {
        self.chunks(Operation::Read, from, part, |at, grant| sink.copy_from(at, grant))
    }

    /// An atomic: `change` changes the granted word in one step, and is called at most once.
    pub fn atomic(
        self,
        operation: Operation,
        at: RemoteAddress,
        mut change: impl FnMut(&Grant<'_>) -> Result<(), CopyError>,
    ) -> Result<(), Stop> {
        self.chunks(operation, at, Part::whole(8), |_, grant| change(grant))
    }

    /// Whether an operation on `total` bytes is allowed now; touches nothing.
    ///
    /// # Errors
    ///
    /// [`Stop::Closed`] if the queue pair does not receive, [`Stop::Refused`] with the reason.
    pub fn check(self, operation: Operation, at: RemoteAddress, total: u64) -> Result<(), Stop> {
        let gate = self.summary.gate();
        let attempt = Attempt {
            operation,
            key: at.key,
            address: at.address,
            length: total,
            qp: self.number.bits(),
            pd: self.pd(&gate).ok_or(Stop::Closed)?,
        };
        self.admit(&gate, &attempt, total)?;
        if total > 0 {
            self.keys.grant(attempt, self.announcer, self.waiter).map_err(Stop::Refused)?;
        }
        Ok(())
    }

    /// Checks and copies chunk by chunk; the rest of the message is decided again for each
    /// (rules INV-23, INV-24). Offsets handed to `copy` count within this segment.
    fn chunks(
        self,
        operation: Operation,
        at: RemoteAddress,
        part: Part,
        mut copy: impl FnMut(u64, &Grant<'_>) -> Result<(), CopyError>,
    ) -> Result<(), Stop> {
        let mut done = 0;
        loop {
            if let Some(copied) = self.chunk(operation, at, part, done, &mut copy) {
                done += copied?;
                if done == part.length {
                    return Ok(());
                }
            }
        }
    }

    /// Checks all of the message behind the first `done` bytes, and copies a chunk of them: how many.
    /// `None` if the queue pair has changed meanwhile, and nothing is copied.
    #[inline(always)]
    fn chunk(
        self,
        operation: Operation,
        RemoteAddress { address, key }: RemoteAddress,
        Part { offset, length, total }: Part,
        done: u64,
        copy: impl FnOnce(u64, &Grant<'_>) -> Result<(), CopyError>,
    ) -> Option<Result<u64, Stop>> {
        let look = self.summary.look();
        let gate = look.gate();
        if !self.admits(&gate, &look.peering()) {
            return Some(Err(Stop::Closed));
        }
        let Some(pd) = self.pd(&gate) else { return Some(Err(Stop::Closed)) };
        let mut attempt = Attempt {
            operation,
            key,
            address: address.wrapping_add(offset).wrapping_add(done),
            length: total - offset - done,
            qp: self.number.bits(),
            pd,
        };
        if let Err(stop) = self.admit(&gate, &attempt, total) {
            return Some(Err(stop));
        }
        if total == 0 {
            return Some(Ok(0));
        }
        if attempt.address < address {
            attempt.length = u64::MAX;
        }
        let grant = match self.keys.grant(attempt, self.announcer, self.waiter) {
            Ok(grant) => grant,
            Err(refusal) => return Some(Err(Stop::Refused(refusal))),
        };
        // The announcement names the queue pair too: if it was open, and to this peer, after the
        // announcement, whoever changes that waits for this copy. A shared receive queue may end
        // meanwhile: that it was there after the announcement is what a responder knows of it too.
        if self.summary.look() != look || self.pd(&gate) != Some(pd) {
            return None;
        }
        let chunk = CHUNK.min(length - done);
        Some(match copy(done, &grant.narrow(chunk)) {
            Ok(()) => Ok(chunk),
            Err(CopyError::Near(refusal)) => Err(Stop::Near(refusal)),
            Err(CopyError::Far) => Err(gone(&{ attempt }, self.keys)),
        })
    }

    /// What the queue pair itself allows, before any key.
    #[inline]
    fn admit(self, gate: &Gate, attempt: &Attempt, total: u64) -> Result<(), Stop> {
        if !gate.receives() {
            return Err(Stop::Closed);
        }
        admit(gate, attempt, total)
            .map_err(|reason| Stop::Refused(Refusal::without_object(reason, *attempt)))
    }
}

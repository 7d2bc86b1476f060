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

impl<'m> Target<'m> {
    /// Whether the initiator, if one goes around the responder, may: the queue pair listens to it,
    /// expects its first message, and has no first message to see yet (rules PSN-02, RA-05), nor each
    /// that comes.
    #[inline]
    fn admits(&self, gate: &Gate, peering: &Peering) -> bool {
        let Some(initiator) = &self.initiator else { return true };
        peering.from == initiator.from
            && peering.first == initiator.first
            && gate.service == initiator.service.target()
            && !gate.by_message
            && (peering.established || gate.state != QpState::Rtr)
    }

    /// The protection domain that keys are checked against now; `None` if an XRC message names a queue that
    /// is not there, or of another XRC domain.
    #[inline]
    fn pd(&self, gate: &Gate) -> Option<u32> {
        match self.domain {
            KeyDomain::QueuePair => Some(gate.pd),
            KeyDomain::Shared(srq) => self.summary.key_domain(srq),
            KeyDomain::Known(pd) => Some(pd),
        }
    }

    /// RDMA WRITE of part of a message. The range of the whole is checked before any byte is written
    /// (rule RA-35).
    pub fn write(
        &self,
        to: RemoteAddress,
        part: Part,
        source: &mut dyn Source,
    ) -> Result<(), Stop> {
        self.chunks(Operation::Write, to, part, |at, grant| source.copy_to(at, grant))
    }

    /// RDMA READ of part of a message.
    pub fn read(&self, from: RemoteAddress, part: Part, sink: &mut dyn Sink) -> Result<(), Stop> {
        self.chunks(Operation::Read, from, part, |at, grant| sink.copy_from(at, grant))
    }

    /// An atomic: `change` changes the granted word in one step, and is called at most once.
    pub fn atomic(
        &self,
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
    pub fn check(&self, operation: Operation, at: RemoteAddress, total: u64) -> Result<(), Stop> {
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
    #[inline]
    fn chunks(
        &self,
        operation: Operation,
        RemoteAddress { address, key }: RemoteAddress,
        Part { offset, length, total }: Part,
        mut copy: impl FnMut(u64, &Grant<'_>) -> Result<(), CopyError>,
    ) -> Result<(), Stop> {
        let mut done = 0;
        loop {
            let look = self.summary.look();
            let gate = look.gate();
            if !self.admits(&gate, &look.peering()) {
                return Err(Stop::Closed);
            }
            let pd = self.pd(&gate).ok_or(Stop::Closed)?;
            let mut attempt = Attempt {
                operation,
                key,
                address: address.wrapping_add(offset).wrapping_add(done),
                length: total - offset - done,
                qp: self.number.bits(),
                pd,
            };
            self.admit(&gate, &attempt, total)?;
            if total == 0 {
                return Ok(());
            }
            if attempt.address < address {
                attempt.length = u64::MAX;
            }
            let grant =
                self.keys.grant(attempt, self.announcer, self.waiter).map_err(Stop::Refused)?;
            // The announcement names the queue pair too: if it was open, and to this peer, after the
            // announcement, whoever changes that waits for this copy. A shared receive queue may end
            // meanwhile: that it was there after the announcement is what a responder knows of it too.
            if self.summary.look() != look || self.pd(&gate) != Some(pd) {
                continue;
            }
            let chunk = CHUNK.min(length - done);
            let grant = grant.narrow(chunk);
            copy(done, &grant).map_err(|error| match error {
                CopyError::Near(refusal) => Stop::Near(refusal),
                CopyError::Far => Stop::Refused(Refusal {
                    reason: Reason::MemoryGone,
                    attempt,
                    object: self.keys.look_up(key),
                }),
            })?;
            done += chunk;
            if done == length {
                return Ok(());
            }
        }
    }

    /// What the queue pair itself allows, before any key.
    fn admit(&self, gate: &Gate, attempt: &Attempt, total: u64) -> Result<(), Stop> {
        if !gate.receives() {
            return Err(Stop::Closed);
        }
        admit(gate, attempt, total)
            .map_err(|reason| Stop::Refused(Refusal::without_object(reason, *attempt)))
    }
}

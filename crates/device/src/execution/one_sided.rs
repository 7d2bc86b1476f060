//! WRITE and READ at their target. The responder itself carries them out, or an initiator that can reach the memory
//! directly.

use transom_wire::Psn;

use super::{AccessLog, CopyError, Part, Sink, Source};
use crate::protection::{
    Announcer, Attempt, Grant, KeyTable, Operation, Reason, Refusal, RemoteAddress, Waiter, admit,
};
use crate::qp::{Bypass, Gate, Look, QpNumber, QpState, QpSummary, Service, SrqSummary};

/// Bytes copied under one announcement: a revocation waits for one chunk, not for a gigabyte.
pub const CHUNK: u64 = 256 << 10;

/// An initiator that bypasses the responder.
#[derive(Clone, Copy, Debug)]
pub struct Initiator<'m> {
    /// Its queue pair.
    pub from: QpNumber,
    /// The PSN of its first message.
    pub first: Psn,
    /// Its transport service.
    pub service: Service,
    /// The target process's log.
    pub log: &'m AccessLog,
}

/// The protection domain that keys are checked against.
#[derive(Clone, Copy)]
pub enum KeyDomain<'m> {
    /// The queue pair's.
    QueuePair,
    /// The summary of the shared receive queue that an XRC message names. The queue belongs to the target's process.
    Shared(&'m SrqSummary),
    /// The responder knows it.
    Known(u32),
}

/// The target of a one-sided operation: its keys, its queue pair, and the caller.
#[derive(Clone, Copy)]
pub struct Target<'m> {
    /// The target process's key table.
    pub keys: KeyTable<'m>,
    /// The target queue pair's summary.
    pub summary: &'m QpSummary,
    /// The target queue pair's number.
    pub number: QpNumber,
    /// The name under which the caller announces to the target.
    pub announcer: Announcer,
    /// How to wait.
    pub waiter: &'m dyn Waiter,
    /// The initiator that bypasses the responder. `None` for the responder itself, which has checked already.
    pub initiator: Option<Initiator<'m>>,
    /// The protection domain that keys are checked against.
    pub domain: KeyDomain<'m>,
}

/// How a queue pair looked when it let an initiator in. Kept from one operation to the next: it is let in again as
/// long as the queue pair looks the same behind the announcement, and need not be asked in full each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    look: Look,
    gate: Gate,
}

impl Admission {
    /// How the queue pair looks now, if it receives, and the initiator, if one goes around the responder, may do
    /// that: the queue pair listens to it, expects its first message, and has no first message to see yet
    /// (rules PSN-02, RA-05), nor each that comes before it is carried out.
    #[inline]
    fn ask(summary: &QpSummary, initiator: Option<Initiator<'_>>) -> Option<Self> {
        let look = summary.look();
        let (gate, peering) = (look.gate(), look.peering());
        let listens = initiator.is_none_or(|initiator| {
            peering.from == initiator.from
                && peering.first == initiator.first
                && gate.service == initiator.service.target()
                && gate.bypass != Bypass::Forbidden
                && (peering.established || gate.state != QpState::Rtr)
        });
        (listens && gate.receives()).then_some(Self { look, gate })
    }

    /// Keeps this for the next time, unless each access is logged, which [`Target::try_at_once`] does not do. It is a
    /// function of its own, so that most operations need not put it in memory.
    #[cold]
    #[inline(never)]
    fn renew(kept: &mut Option<Self>, summary: &QpSummary, initiator: Option<Initiator<'_>>) {
        *kept = Self::ask(summary, initiator).filter(|it| it.gate.bypass == Bypass::Free);
    }

    /// The log for what this initiator does now, if there is one.
    fn log<'m>(&self, initiator: Option<Initiator<'m>>) -> Option<&'m AccessLog> {
        initiator.filter(|_| self.gate.bypass == Bypass::Logged).map(|it| it.log)
    }
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

/// Why a chunk was not copied.
enum Undone {
    Copy(CopyError),
    /// It has to be logged, and that is impossible now.
    Unlogged,
}

/// Memory that its key still grants is not there any more.
#[cold]
#[inline(never)]
fn gone(attempt: &Attempt, keys: KeyTable<'_>) -> Stop {
    let object = keys.look_up(attempt.key);
    Stop::Refused(Refusal { reason: Reason::MemoryGone, attempt: *attempt, object })
}

impl<'m> Target<'m> {
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

    /// An attempt of this operation from there on; for those who hear of it.
    pub(super) fn attempt(self, operation: Operation, at: RemoteAddress, length: u64) -> Attempt {
        let RemoteAddress { address, key } = at;
        Attempt { operation, key, address, length, qp: self.number.bits(), pd: 0 }
    }

    /// RDMA WRITE of part of a message. The range of the whole is checked before any byte is written
    /// (rule RA-35).
    pub fn write(self, to: RemoteAddress, part: Part, source: &mut dyn Source) -> Result<(), Stop> {
        self.chunks(Operation::Write, to, part, |at, grant| source.copy_to(at, grant))
    }

    /// Carries out an operation on a message of at most [`CHUNK`] bytes if it is allowed: one look at the queue
    /// pair, and no loop. False if it is refused, if the queue pair does not look as in `kept`, or if `copy`
    /// answers so. `kept` is the same initiator's at the same queue pair, and is renewed for the next time.
    #[inline(always)]
    pub fn try_at_once(
        self,
        kept: &mut Option<Admission>,
        operation: Operation,
        at: RemoteAddress,
        length: u64,
        copy: impl FnOnce(&Grant<'_>) -> bool,
    ) -> bool {
        if let Some(admission) = kept {
            let copy = |_, grant: &Grant<'_>, _: &Attempt| match copy(grant) {
                true => Ok(()),
                false => Err(Undone::Copy(CopyError::Far)),
            };
            let copied = self.chunk(admission, operation, at, Part::whole(length), 0, copy);
            if let Some(copied) = copied {
                return copied.is_ok();
            }
        }
        Admission::renew(kept, self.summary, self.initiator);
        false
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
    /// [`Stop::Closed`] if the queue pair does not receive, or not from here, [`Stop::Refused`] with the reason.
    pub fn check(self, operation: Operation, at: RemoteAddress, total: u64) -> Result<(), Stop> {
        let gate = Admission::ask(self.summary, self.initiator).ok_or(Stop::Closed)?.gate;
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
            let admission = Admission::ask(self.summary, self.initiator).ok_or(Stop::Closed)?;
            let log = admission.log(self.initiator);
            let copy = |done, grant: &Grant<'_>, attempt: &Attempt| {
                let is_write = operation == Operation::Write;
                if is_write && done == 0 && log.is_some_and(|log| !log.add(attempt)) {
                    return Err(Undone::Unlogged);
                }
                copy(done, grant).map_err(Undone::Copy)?;
                log.filter(|_| !is_write).inspect(|log| log.add_done(attempt));
                Ok(())
            };
            if let Some(copied) = self.chunk(&admission, operation, at, part, done, copy) {
                done += copied?;
                if done == part.length {
                    return Ok(());
                }
            }
        }
    }

    /// Checks all of the message behind the first `done` bytes, and copies a chunk of them: how many.
    /// `None` if the queue pair has changed since it let the initiator in, and nothing is copied.
    #[inline(always)]
    fn chunk(
        self,
        admission: &Admission,
        operation: Operation,
        RemoteAddress { address, key }: RemoteAddress,
        Part { offset, length, total }: Part,
        done: u64,
        copy: impl FnOnce(u64, &Grant<'_>, &Attempt) -> Result<(), Undone>,
    ) -> Option<Result<u64, Stop>> {
        let Admission { look, gate } = admission;
        let Some(pd) = self.pd(gate) else { return Some(Err(Stop::Closed)) };
        let mut attempt = Attempt {
            operation,
            key,
            address: address.wrapping_add(offset).wrapping_add(done),
            length: total - offset - done,
            qp: self.number.bits(),
            pd,
        };
        if let Err(stop) = self.admit(gate, &attempt, total) {
            return Some(Err(stop));
        }
        if total == 0 {
            return (self.summary.look() == *look).then_some(Ok(0));
        }
        if attempt.address < address {
            attempt.length = u64::MAX;
        }
        let grant = match self.keys.grant(attempt, self.announcer, self.waiter) {
            Ok(grant) => grant,
            Err(refusal) => return Some(Err(Stop::Refused(refusal))),
        };
        // The announcement names the queue pair too. If that was open, and to this peer, after the announcement, a
        // thread that changes it waits for this copy. A shared receive queue may end meanwhile: a responder too knows
        // only that it was there after the announcement.
        if self.summary.look() != *look || self.pd(gate) != Some(pd) {
            return None;
        }
        let chunk = CHUNK.min(length - done);
        Some(match copy(done, &grant.narrow(chunk), &attempt) {
            Ok(()) => Ok(chunk),
            Err(Undone::Copy(CopyError::Near(refusal))) => Err(Stop::Near(refusal)),
            Err(Undone::Copy(CopyError::Far)) => Err(gone(&{ attempt }, self.keys)),
            Err(Undone::Unlogged) => Err(Stop::Closed),
        })
    }

    /// Checks the queue pair itself, before any key.
    #[inline]
    fn admit(self, gate: &Gate, attempt: &Attempt, total: u64) -> Result<(), Stop> {
        admit(gate, attempt, total)
            .map_err(|reason| Stop::Refused(Refusal::without_object(reason, *attempt)))
    }
}

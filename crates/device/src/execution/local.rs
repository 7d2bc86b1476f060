//! Local buffers: walking a scatter/gather list, each checked by its L_Key as it is used.

use super::{CopyError, Process, Source};
use crate::protection::{Announcer, Attempt, Grant, KeyTable, Operation, Reason, Refusal, Waiter};
use crate::queue::Sge;

/// Bytes that the process holds itself: inline data, an atomic's result.
pub struct Bytes<'a, P> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// How to store them.
    pub process: &'a P,
}

impl<P> Bytes<'_, P> {
    fn part(&self, offset: u64, length: usize) -> Result<&[u8], CopyError> {
        let start = usize::try_from(offset).map_err(|_| CopyError::Far)?;
        let bytes = self.bytes.get(start..).unwrap_or_default();
        bytes.get(..length).ok_or(CopyError::Far)
    }
}

impl<P: Process> Source for Bytes<'_, P> {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), CopyError> {
        bytes.copy_from_slice(self.part(offset, bytes.len())?);
        Ok(())
    }

    fn copy_to(&mut self, offset: u64, at: &Grant<'_>) -> Result<(), CopyError> {
        if at.is_null() {
            return Ok(());
        }
        let bytes = self.part(offset, at.length() as usize)?;
        self.process.store(at, &[bytes]).map_err(|_| CopyError::Far)
    }
}

/// A scatter/gather list with everything needed to check it.
#[derive(Clone, Copy)]
pub struct LocalBuffers<'a> {
    /// The entries, in order; empty ones are skipped unexamined (rules LA-15, LA-25).
    pub sges: &'a [Sge],
    /// The process's own key table.
    pub keys: KeyTable<'a>,
    /// The name under which this process announces.
    pub announcer: Announcer,
    /// How to wait.
    pub waiter: &'a dyn Waiter,
    /// Number of the queue pair the work was posted to.
    pub qp: u32,
    /// That queue pair's protection domain.
    pub pd: u32,
}

impl<'a> LocalBuffers<'a> {
    /// Bytes of all entries together.
    pub fn length(sges: &[Sge]) -> u64 {
        match sges {
            // As nearly all are.
            [sge] => u64::from(sge.length),
            _ => sges.iter().map(|sge| u64::from(sge.length)).sum(),
        }
    }

    /// Checks all entries in full and touches none: nothing is sent of a message that would fail
    /// half-way (rule LA-06).
    pub fn check(self, operation: Operation) -> Result<(), Refusal> {
        self.sges.iter().filter(|sge| sge.length > 0).try_for_each(|sge| {
            let whole = self.attempt(operation, sge, 0, u64::from(sge.length));
            self.grant(whole).map(|_| ())
        })
    }

    /// Grants part of a buffer.
    #[inline(always)]
    fn grant(self, attempt: Attempt) -> Result<Grant<'a>, Refusal> {
        self.keys.grant(attempt, self.announcer, self.waiter)
    }

    /// Grants all of a buffer that is not empty, if it is there and may be used.
    #[inline(always)]
    pub fn grant_whole(self, operation: Operation, sge: &Sge) -> Option<Grant<'a>> {
        self.grant_first(operation, sge, u64::from(sge.length))
    }

    /// Grants the first bytes of a buffer, as many as there are, under the same conditions.
    #[inline(always)]
    pub fn grant_first(self, operation: Operation, sge: &Sge, length: u64) -> Option<Grant<'a>> {
        let grant = self.grant(self.attempt(operation, sge, 0, length)).ok();
        grant.filter(|grant| !grant.is_null())
    }

    /// Grants the parts of the entries that make up `length` bytes from `offset` on, one after the other. Hands each to
    /// `copy` with its place in that range. Bytes past the last entry are not handed out: the caller has compared
    /// lengths.
    #[inline]
    pub fn each(
        self,
        operation: Operation,
        offset: u64,
        length: u64,
        mut copy: impl FnMut(u64, &Grant<'_>) -> Result<(), CopyError>,
    ) -> Result<(), CopyError> {
        let (mut skip, mut done) = (offset, 0);
        for sge in self.sges {
            let size = u64::from(sge.length);
            if skip >= size {
                skip -= size;
                continue;
            }
            let part = (size - skip).min(length - done);
            if part == 0 {
                break;
            }
            let attempt = self.attempt(operation, sge, skip, part);
            let grant = self.grant(attempt).map_err(CopyError::Near)?;
            copy(done, &grant)?;
            done += part;
            skip = 0;
        }
        Ok(())
    }

    /// The refusal for memory that its key still grants but that is not there any more.
    #[inline]
    pub fn gone(self, operation: Operation) -> Refusal {
        self.gone_at(operation, 0)
    }

    /// The same, for the entry with the byte at this offset of all.
    #[cold]
    #[inline(never)]
    pub fn gone_at(self, operation: Operation, offset: u64) -> Refusal {
        let mut end = 0;
        let holds = |sge: &&Sge| {
            end += u64::from(sge.length);
            offset < end
        };
        let sge = self.sges.iter().find(holds).copied().unwrap_or_default();
        let attempt = self.attempt(operation, &sge, 0, u64::from(sge.length));
        Refusal { reason: Reason::MemoryGone, attempt, object: self.keys.look_up(attempt.key) }
    }

    #[inline]
    fn attempt(self, operation: Operation, sge: &Sge, skip: u64, length: u64) -> Attempt {
        let (address, wrapped) = sge.address.overflowing_add(skip);
        // An address beyond 2^64 must not wrap to the bottom, so ask for a length that is refused.
        let length = if wrapped { u64::MAX } else { length };
        let key = self.keys.local_key(sge.key);
        Attempt { operation, key, address, length, qp: self.qp, pd: self.pd }
    }
}

//! Pieces of a WRITE or READ on the direct path, in a rehearsal.

use std::ops::Range;

use transom_device::Access;
use transom_device::execution::one_sided::Stop;
use transom_device::execution::{
    Direct, LocalBuffers, OneSided, Part, Payload, Process as _, Request,
};
use transom_device::protection::{Key, KeyTable, Operation};

use super::At;
use super::direct::answer;

/// Whether atomics may act on what a key names. A WRITE there must be as one step for them (man ibv_wr_post).
fn takes_atomics(keys: KeyTable<'_>, key: Key) -> bool {
    keys.look_up(key).access.contains(Access::REMOTE_ATOMIC)
}

impl At<'_> {
    /// Whether an atomic may come between two pieces of a WRITE or READ.
    pub(in super::super) fn meets_atomics(
        &self,
        operation: &OneSided<'_>,
        srq: Option<u32>,
    ) -> bool {
        match *operation {
            OneSided::Write { to, .. } => self
                .direct_target(srq)
                .is_some_and(|(target, _)| takes_atomics(target.keys, to.key)),
            OneSided::Read { buffers, .. } => {
                buffers.iter().any(|sge| takes_atomics(self.keys(), Key(sge.key)))
            }
            OneSided::Atomic { .. } => true,
        }
    }

    /// The same of a message that has arrived. Nobody has atomics act on a posted receive.
    pub(super) fn message_meets_atomics(&self, request: &Request) -> bool {
        request.body.remote().is_some_and(|remote| takes_atomics(self.keys(), remote.key))
    }

    /// What a rehearsal makes of an operation on the direct path, if it is not carried out as others are.
    #[cold]
    pub(super) fn carry_out_rehearsed(
        &self,
        position: u64,
        operation: &OneSided<'_>,
        srq: Option<u32>,
        length: u64,
    ) -> Option<Direct> {
        if let Some(pieces) = self.qp.take_begun(operation, length) {
            return Some(self.carry_out_pieces(operation, srq, length, pieces.late()));
        }
        if self.qp.goes_by_message() {
            return Some(Direct::Declined);
        }
        let OneSided::Write { to, data } = *operation else { return None };
        // Only what may land is taken: else it goes as a message.
        let (target, place) = self.direct_target(srq)?;
        target.check(Operation::Write, to, length).ok()?;
        let torn = self.qp.take_torn(self, position, data)?;
        let data = Payload::Inline(&torn);
        Some(self.carry_out_whole(OneSided::Write { to, data }, target, place, length))
    }

    /// Carries out pieces of a WRITE or READ of so many bytes on the direct path. All of it is checked first, and again
    /// for each piece.
    pub(in super::super) fn carry_out_pieces(
        &self,
        operation: &OneSided<'_>,
        srq: Option<u32>,
        length: u64,
        mut pieces: impl Iterator<Item = Range<u64>>,
    ) -> Direct {
        let Some((target, place)) = self.direct_target(srq) else { return Direct::Declined };
        let part = |piece: &Range<u64>| {
            let (offset, end) = (piece.start, piece.end);
            Part { offset, length: end - offset, total: length }
        };
        let checked = |local: LocalBuffers<'_>, needed| local.check(needed).map_err(Stop::Near);
        answer(match *operation {
            OneSided::Write { to, data } => {
                let local = match data {
                    Payload::Inline(_) => Ok(()),
                    Payload::Buffers(sges) => checked(self.local(sges), Operation::LocalRead),
                };
                local.and_then(|()| target.check(Operation::Write, to, length)).and_then(|()| {
                    pieces.try_for_each(|piece| {
                        let mut source = self.gather(data, piece.start, place);
                        target.write(to, part(&piece), &mut source)
                    })
                })
            }
            OneSided::Read { from, buffers } => {
                let local = checked(self.local(buffers), Operation::LocalWrite);
                local.and_then(|()| target.check(Operation::Read, from, length)).and_then(|()| {
                    pieces.try_for_each(|piece| {
                        let mut sink = self.scatter(buffers, piece.start, place);
                        target.read(from, part(&piece), &mut sink)
                    })
                })
            }
            // A word is no pieces.
            OneSided::Atomic { .. } => Err(Stop::Closed),
        })
    }
}

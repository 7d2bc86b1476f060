//! Pieces of a WRITE or READ on the direct path, in a rehearsal.

use std::ops::Range;

use transom_device::execution::one_sided::Stop;
use transom_device::execution::{Direct, LocalBuffers, OneSided, Part, Payload};
use transom_device::protection::Operation;

use super::At;
use super::direct::answer;

impl At<'_> {
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

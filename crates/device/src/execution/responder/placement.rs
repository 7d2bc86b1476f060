//! Placement: the bytes of a message, on their way into a receive or to the memory of a key.

use core::ops::Range;

use transom_wire::grh::{GRH_BYTES, Route, UNDEFINED_BYTES, mapped_ipv4};

use super::super::copy::{Behind, Told};
use super::super::one_sided::Stop;
use super::super::{
    Bytes, Context, CopyError, LocalBuffers, Part, Pieces, Process, Request, Source,
};
use super::Responder;
use super::held_back::HeldBack;
use crate::protection::{Operation, Refusal, RemoteAddress};
use crate::queue::Datagram;

/// Why a message could not be placed.
pub(super) enum Misplaced {
    /// The origin's own buffers failed.
    Process,
    /// The receive's.
    Here(Refusal),
}

impl Responder {
    /// Writes a segment of a WRITE to where it belongs.
    pub(super) fn place_write<P: Process>(
        &self,
        request: &Request,
        at: RemoteAddress,
        source: &mut dyn Source,
        cx: &mut Context<'_, P>,
    ) -> Result<(), Stop> {
        let target = self.target(request, cx).map_err(Stop::Refused)?;
        let part = request.part();
        let mut held = HeldBack { request, process: cx.process, source };
        let source: &mut dyn Source =
            if held.process.decides_when() { &mut held } else { held.source };
        let mut told;
        let source: &mut dyn Source = match cx.process.witness() {
            Some(witness) => {
                let attempt = target.attempt(request.body.operation(), at, part.length);
                told = Told { data: source, witness, attempt, offset: part.offset, again: false };
                &mut told
            }
            None => source,
        };
        let Some(pieces) = cx.process.lands_in_pieces(request, part.length) else {
            return target.write(at, part, source);
        };
        // The range of the whole comes before any byte (rule RA-35).
        target.check(Operation::Write, at, part.total)?;
        let mut write = |piece: Range<u64>| {
            let (skip, length) = (piece.start, piece.end - piece.start);
            let part = Part { offset: part.offset + skip, length, ..part };
            target.write(at, part, &mut Behind { skip, source })
        };
        pieces.early().try_for_each(&mut write)?;
        cx.process.wait_between_pieces();
        pieces.late().try_for_each(write)
    }

    /// Puts the datagram's header into the first 40 bytes of the receive.
    pub(super) fn place_grh<P: Process>(
        &self,
        datagram: Option<&Datagram>,
        length: u64,
        cx: &mut Context<'_, P>,
    ) -> Result<(), Misplaced> {
        let Some(datagram) = datagram else { return Ok(()) };
        let mut bytes = Route {
            source: datagram.address.source,
            destination: datagram.address.gid,
            traffic_class: datagram.address.traffic_class,
            hop_limit: datagram.address.hop_limit,
            flow_label: datagram.address.flow_label,
        }
        .write(length);
        let ends = [&datagram.address.source, &datagram.address.gid];
        if ends.into_iter().all(|gid| mapped_ipv4(gid).is_some()) {
            cx.process.fill_undefined(&mut bytes[..UNDEFINED_BYTES]);
        }
        let mut header = Bytes { bytes: &bytes, process: cx.process };
        let buffers = self.buffers(cx);
        let placed = buffers.each(Operation::LocalWrite, 0, GRH_BYTES as u64, |at, grant| {
            header.copy_to(at, grant)
        });
        placed.map_err(|error| match error {
            CopyError::Near(refusal) => Misplaced::Here(refusal),
            CopyError::Far => Misplaced::Here(buffers.gone(Operation::LocalWrite)),
        })
    }

    /// Puts the segment's bytes into the receive, but for the first `skip` bytes of the message, and
    /// `front` bytes further on.
    pub(super) fn place<P: Process>(
        &self,
        front: u64,
        skip: u64,
        request: &Request,
        source: &mut dyn Source,
        cx: &mut Context<'_, P>,
    ) -> Result<(), Misplaced> {
        // The part of this segment that is skipped.
        let skipped = skip.saturating_sub(request.offset).min(request.length);
        let length = request.length - skipped;
        let offset = front + (request.offset + skipped).saturating_sub(skip);
        match cx.process.lands_in_pieces(request, length) {
            None => self.place_piece(offset, skipped, 0..length, source, cx),
            Some(pieces) => self.place_pieces(offset, skipped, pieces, source, cx),
        }
    }

    /// The same in pieces, which a rehearsal wants.
    #[cold]
    fn place_pieces<P: Process>(
        &self,
        offset: u64,
        skipped: u64,
        pieces: Pieces,
        source: &mut dyn Source,
        cx: &Context<'_, P>,
    ) -> Result<(), Misplaced> {
        let mut place = |piece: Range<u64>| self.place_piece(offset, skipped, piece, source, cx);
        pieces.early().try_for_each(&mut place)?;
        cx.process.wait_between_pieces();
        pieces.late().try_for_each(place)
    }

    /// Puts some bytes of a segment into the receive. They are counted behind the part that is skipped, which goes to
    /// `offset`.
    #[inline]
    fn place_piece<P: Process>(
        &self,
        offset: u64,
        skipped: u64,
        piece: Range<u64>,
        source: &mut dyn Source,
        cx: &Context<'_, P>,
    ) -> Result<(), Misplaced> {
        let buffers = self.buffers(cx);
        let (mut origin_failed, mut failed_at) = (false, 0);
        let (first, length) = (piece.start, piece.end - piece.start);
        let placed = buffers.each(Operation::LocalWrite, offset + first, length, |at, grant| {
            match source.copy_to(skipped + first + at, grant) {
                Err(CopyError::Near(refusal)) => {
                    origin_failed = true;
                    Err(CopyError::Near(refusal))
                }
                Err(CopyError::Far) => {
                    failed_at = at;
                    Err(CopyError::Far)
                }
                Ok(()) => Ok(()),
            }
        });
        match placed {
            Ok(()) => Ok(()),
            Err(CopyError::Near(_)) if origin_failed => Err(Misplaced::Process),
            Err(CopyError::Near(refusal)) => Err(Misplaced::Here(refusal)),
            Err(CopyError::Far) => {
                let gone = buffers.gone_at(Operation::LocalWrite, offset + first + failed_at);
                Err(Misplaced::Here(gone))
            }
        }
    }

    pub(super) fn buffers<'a, P: Process>(&'a self, cx: &Context<'a, P>) -> LocalBuffers<'a> {
        LocalBuffers {
            sges: &self.message.taken.sges,
            keys: cx.process.keys(),
            announcer: cx.process.announcer(),
            waiter: cx.process.waiter(),
            qp: cx.number.bits(),
            pd: self.message.taken.pd,
        }
    }
}

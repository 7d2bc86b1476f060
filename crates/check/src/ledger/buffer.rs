//! The buffers of a work request, and their content while only the device may change it.
//!
//! A program posts millions of requests per second. So what most of them have takes no memory of its own: few buffers,
//! and a short content. A longer one leaves its memory to a later request.

use std::num::NonZeroU64;
use std::ops::{Deref, Range};

/// A buffer that a work request names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffer {
    /// The L_Key.
    pub key: u32,
    /// The address, counted from the region's base.
    pub address: u64,
    /// The length in bytes.
    pub length: u64,
    /// The registration that the key named when it was posted.
    pub(super) region: Option<NonZeroU64>,
    /// Its address in the program's memory.
    at: Option<NonZeroU64>,
    /// Its place, as the device reads it, if the address is known.
    place: u64,
}

impl Buffer {
    /// A buffer as a work request names it.
    pub const fn new(key: u32, address: u64, length: u64) -> Self {
        Self { key, address, length, region: None, at: None, place: 0 }
    }

    /// It is there in the program's memory, and the device reads it at a place.
    pub(super) fn is_at(&mut self, at: u64, place: u64) {
        (self.at, self.place) = (NonZeroU64::new(at), place);
    }

    pub(super) fn range(&self) -> Option<Range<u64>> {
        let start = self.at.filter(|_| self.length > 0)?.get();
        Some(start..start.saturating_add(self.length))
    }
}

/// The most buffers that take no memory of their own.
const FEW: usize = 2;

/// The buffers of a work request.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    count: usize,
    few: [Buffer; FEW],
    /// All of them, if they are more than a few.
    many: Vec<Buffer>,
}

impl Buffers {
    /// It has these from now on, and none of those that it had.
    pub fn set(&mut self, all: impl ExactSizeIterator<Item = Buffer>) {
        self.count = all.len();
        if self.count <= FEW {
            self.few.iter_mut().zip(all).for_each(|(place, buffer)| *place = buffer);
        } else {
            self.many.clear();
            self.many.extend(all);
        }
    }

    /// It has none from now on.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    pub(super) fn as_mut(&mut self) -> &mut [Buffer] {
        match self.few.get_mut(..self.count) {
            Some(few) => few,
            None => &mut self.many,
        }
    }
}

impl Deref for Buffers {
    type Target = [Buffer];

    fn deref(&self) -> &[Buffer] {
        self.few.get(..self.count).unwrap_or(&self.many)
    }
}

impl PartialEq for Buffers {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Buffers {}

impl FromIterator<Buffer> for Buffers {
    fn from_iter<I: IntoIterator<Item = Buffer>>(all: I) -> Self {
        let mut buffers = Self::default();
        buffers.set(all.into_iter().collect::<Vec<_>>().into_iter());
        buffers
    }
}

/// A part of a request's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<T> {
    /// Its address in the program's memory.
    pub at: u64,
    /// Its place, as the device reads it.
    pub place: u64,
    /// Its offset in the data of the request, in bytes.
    pub offset: u64,
    /// Its content.
    pub bytes: T,
}

/// The most bytes of a request that are compared. A longer one is compared in its first and last 2048 bytes.
pub const WATCHED: u64 = 4096;

/// The parts of buffers that are compared, with their lengths. It is an iterator of its own, because each request has
/// its parts gone through several times.
#[derive(Clone, Debug)]
struct Parts<'a> {
    rest: &'a [Buffer],
    /// The bytes of the request's data that are not compared.
    gap: Range<u64>,
    /// The offset of the first of the rest.
    behind: u64,
    /// Of the first of the rest, the part before the gap is done.
    is_half: bool,
}

impl<'a> Parts<'a> {
    fn of(rest: &'a [Buffer]) -> Self {
        let total: u64 = rest.iter().map(|it| it.length).sum();
        let is_short = total <= WATCHED;
        let gap = if is_short { total..total } else { WATCHED / 2..total - WATCHED / 2 };
        Self { rest, gap, behind: 0, is_half: false }
    }
}

impl Iterator for Parts<'_> {
    type Item = Piece<usize>;

    #[inline]
    fn next(&mut self) -> Option<Piece<usize>> {
        loop {
            let buffer = self.rest.first()?;
            let whole = self.behind..self.behind + buffer.length;
            let part = match self.is_half {
                false => whole.start..whole.end.min(self.gap.start),
                true => whole.start.max(self.gap.end)..whole.end,
            };
            if self.is_half {
                (self.rest, self.behind) = (&self.rest[1..], whole.end);
            }
            self.is_half = !self.is_half;
            if let Some(first) = buffer.at.filter(|_| part.start < part.end) {
                let inside = part.start - whole.start;
                let (at, place) = (first.get() + inside, buffer.place + inside);
                let bytes = (part.end - part.start) as usize;
                return Some(Piece { at, place, offset: part.start, bytes });
            }
        }
    }
}

/// The longest content that takes no memory of its own.
const SHORT: usize = 64;

/// The content of a request's buffers at some time, which only the device may change from then on. It may be none.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The length of the compared parts of the buffers together.
    length: usize,
    short: [u8; SHORT],
    /// Their content, one after the other, if it is not short.
    long: Vec<u8>,
    /// The first so many bytes of the request's data are not compared.
    left_out: u64,
    /// The count of written targets at the time of the sample.
    pub(super) since: u64,
    /// The counts at which the request's own targets were among them.
    pub(super) own: Range<u64>,
}

impl Default for Sample {
    fn default() -> Self {
        let (length, short, long) = (0, [0; SHORT], Vec::new());
        Self { length, short, long, left_out: 0, since: 0, own: 0..0 }
    }
}

impl PartialEq for Sample {
    fn eq(&self, other: &Self) -> bool {
        let all = |it: &Self| (it.left_out, it.since, it.own.clone());
        self.content() == other.content() && all(self) == all(other)
    }
}

impl Eq for Sample {}

impl Sample {
    /// It is of these buffers from now on. It has room for their content, and the content is still any.
    pub(super) fn begin(&mut self, buffers: &[Buffer], since: u64) {
        self.length = Parts::of(buffers).map(|it| it.bytes).sum();
        if self.length > SHORT {
            self.long.resize(self.length, 0);
        }
        (self.left_out, self.since, self.own) = (0, since, 0..0);
    }

    /// There is none from now on.
    pub fn clear(&mut self) {
        self.length = 0;
    }

    /// Whether there is one.
    pub fn is_there(&self) -> bool {
        self.length > 0
    }

    /// The first so many bytes of the request's data are not compared.
    pub(super) fn leave_out(&mut self, bytes: u64) {
        self.left_out = self.left_out.max(bytes);
    }

    fn content(&self) -> &[u8] {
        self.short.get(..self.length).unwrap_or(&self.long)
    }

    fn content_mut(&mut self) -> &mut [u8] {
        match self.short.get_mut(..self.length) {
            Some(short) => short,
            None => &mut self.long,
        }
    }
}

/// The pieces of a sample.
#[derive(Clone, Debug)]
pub(super) struct Pieces<'a> {
    parts: Parts<'a>,
    rest: &'a [u8],
    left_out: u64,
}

impl<'a> Pieces<'a> {
    /// Those of a sample of these buffers.
    pub(super) fn of(buffers: &'a [Buffer], sample: &'a Sample) -> Self {
        let buffers = if sample.is_there() { buffers } else { &[] };
        let (rest, left_out) = (sample.content(), sample.left_out);
        Self { parts: Parts::of(buffers), rest, left_out }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<&'a [u8]>;

    #[inline]
    fn next(&mut self) -> Option<Piece<&'a [u8]>> {
        loop {
            let Piece { at, place, offset, bytes } = self.parts.next()?;
            let (bytes, rest) = self.rest.split_at(bytes);
            self.rest = rest;
            let out = self.left_out.saturating_sub(offset).min(bytes.len() as u64);
            let bytes = &bytes[out as usize..];
            if !bytes.is_empty() {
                return Some(Piece {
                    at: at + out,
                    place: place + out,
                    offset: offset + out,
                    bytes,
                });
            }
        }
    }
}

/// The same, with room for what is there now.
#[derive(Debug)]
pub(super) struct PiecesMut<'a> {
    parts: Parts<'a>,
    rest: &'a mut [u8],
}

impl<'a> PiecesMut<'a> {
    /// Those of a sample of these buffers.
    pub(super) fn of(buffers: &'a [Buffer], sample: &'a mut Sample) -> Self {
        let buffers = if sample.is_there() { buffers } else { &[] };
        Self { parts: Parts::of(buffers), rest: sample.content_mut() }
    }
}

impl<'a> Iterator for PiecesMut<'a> {
    type Item = Piece<&'a mut [u8]>;

    #[inline]
    fn next(&mut self) -> Option<Piece<&'a mut [u8]>> {
        let Piece { at, place, offset, bytes } = self.parts.next()?;
        let (bytes, rest) = std::mem::take(&mut self.rest).split_at_mut(bytes);
        self.rest = rest;
        Some(Piece { at, place, offset, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_kept_in_order_however_many_they_are() {
        for count in 0..2 * FEW + 1 {
            let all = (0..count).map(|nth| Buffer::new(nth as u32, nth as u64, nth as u64));
            let buffers: Buffers = all.clone().collect();
            assert!(all.eq(buffers.iter().copied()), "{buffers:?}");
        }
    }

    #[test]
    fn a_sample_has_the_length_of_its_buffers_however_long_they_are() {
        let mut sample = Sample::default();
        for length in [0, 1, SHORT, 4096, SHORT + 1, SHORT, 0] {
            let mut buffer = Buffer::new(9, 0, length as u64);
            buffer.is_at(0x1000, 0x1000);
            sample.begin(&[buffer], 0);
            PiecesMut::of(&[buffer], &mut sample).for_each(|piece| piece.bytes.fill(7));
            assert_eq!((sample.content(), sample.is_there()), (&vec![7; length][..], length > 0));
        }
    }
}

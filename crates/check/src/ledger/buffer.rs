//! The buffers of a work request, and their content while only the device may change it.
//!
//! A program posts millions of requests per second. So what most of them need takes no memory of its own: few buffers,
//! and a short content.

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
#[derive(Clone, Debug)]
pub struct Buffers(All);

#[derive(Clone, Debug)]
enum All {
    Few { count: u8, first: [Buffer; FEW] },
    Many(Vec<Buffer>),
}

impl Default for Buffers {
    fn default() -> Self {
        Self(All::Few { count: 0, first: [Buffer::default(); FEW] })
    }
}

impl Buffers {
    pub(super) fn as_mut(&mut self) -> &mut [Buffer] {
        match &mut self.0 {
            All::Few { count, first } => &mut first[..usize::from(*count)],
            All::Many(all) => all,
        }
    }
}

impl Deref for Buffers {
    type Target = [Buffer];

    fn deref(&self) -> &[Buffer] {
        match &self.0 {
            All::Few { count, first } => &first[..usize::from(*count)],
            All::Many(all) => all,
        }
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
        let mut all = all.into_iter();
        let (mut first, mut count) = ([Buffer::default(); FEW], 0);
        for place in &mut first {
            let Some(buffer) = all.next() else { break };
            (*place, count) = (buffer, count + 1);
        }
        match all.next() {
            None => Self(All::Few { count, first }),
            Some(next) => Self(All::Many(first.into_iter().chain([next]).chain(all).collect())),
        }
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
const SHORT: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    Short { length: u8, bytes: [u8; SHORT] },
    Long(Box<[u8]>),
}

impl Content {
    fn zeros(length: usize) -> Self {
        match u8::try_from(length) {
            Ok(short) if length <= SHORT => Self::Short { length: short, bytes: [0; SHORT] },
            _ => Self::Long(vec![0; length].into()),
        }
    }

    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Short { length, bytes } => &mut bytes[..usize::from(*length)],
            Self::Long(bytes) => bytes,
        }
    }
}

impl Deref for Content {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Short { length, bytes } => &bytes[..usize::from(*length)],
            Self::Long(bytes) => bytes,
        }
    }
}

/// The content of a request's buffers at some time, which only the device may change from then on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// That of the compared parts of the buffers, one after the other.
    content: Content,
    /// The first so many bytes of the request's data are not compared.
    left_out: u64,
    /// The count of written targets at the time of the sample.
    pub(super) since: u64,
    /// The counts at which the request's own targets were among them.
    pub(super) own: Range<u64>,
}

impl Sample {
    /// One of these buffers, of zeros. None if there is nothing to compare.
    pub(super) fn of(buffers: &[Buffer], since: u64) -> Option<Self> {
        let length = Parts::of(buffers).map(|it| it.bytes).sum();
        if length == 0 {
            return None;
        }
        Some(Self { content: Content::zeros(length), left_out: 0, since, own: 0..0 })
    }

    /// The first so many bytes of the request's data are not compared.
    pub(super) fn leave_out(&mut self, bytes: u64) {
        self.left_out = self.left_out.max(bytes);
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
    /// Those of a sample of these buffers, if there is one.
    pub(super) fn of(buffers: &'a [Buffer], sample: Option<&'a Sample>) -> Self {
        let Some(sample) = sample else {
            return Self { parts: Parts::of(&[]), rest: &[], left_out: 0 };
        };
        Self { parts: Parts::of(buffers), rest: &sample.content, left_out: sample.left_out }
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
    /// Those of a sample of these buffers, if there is one.
    pub(super) fn of(buffers: &'a [Buffer], sample: Option<&'a mut Sample>) -> Self {
        match sample {
            Some(sample) => Self { parts: Parts::of(buffers), rest: sample.content.as_mut() },
            None => Self { parts: Parts::of(&[]), rest: &mut [] },
        }
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
        for count in 0..2 * FEW as u64 + 1 {
            let all = (0..count).map(|nth| Buffer::new(nth as u32, nth, nth));
            let buffers: Buffers = all.clone().collect();
            assert!(all.eq(buffers.iter().copied()), "{buffers:?}");
        }
    }

    #[test]
    fn a_content_has_its_length_however_long_it_is() {
        for length in [0, 1, SHORT, SHORT + 1, 4096] {
            let mut content = Content::zeros(length);
            content.as_mut().fill(7);
            assert_eq!(*content, vec![7; length]);
        }
    }
}

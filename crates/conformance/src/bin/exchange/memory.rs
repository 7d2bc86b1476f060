//! One registered buffer, and the places in it.

use transom_abi::*;
use transom_conformance::harness::{ALL, Buffer, reg, sge};

/// The number of posted receives.
pub(crate) const RECEIVES: u32 = 4;

/// The memory of an end. Two rounds in a row use different places, because one end may be in the next round while the
/// other still looks at this one.
pub(crate) struct Memory {
    pub(crate) buffer: Buffer,
    region: *mut ibv_mr,
    /// The length of each place in bytes.
    pub(crate) size: usize,
}

/// Places in the buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// The word that the other end changes.
    Word,
    /// The other end's word before this end's two changes.
    Before,
    /// The bytes that the other end writes.
    Inbox(u32),
    /// The bytes that the other end reads.
    Shelf(u32),
    /// The bytes that are written to the other end.
    Outbox(u32),
    /// The message to send.
    Message(u32),
    /// The bytes that were read.
    Landing,
    /// A message received.
    Received(u32),
}

impl Memory {
    /// Memory for ranges of up to `size` bytes.
    pub(crate) fn new(pd: *mut ibv_pd, size: usize) -> Self {
        let size = size.next_multiple_of(4096) + 4096;
        let buffer = Buffer::new(size * (11 + RECEIVES as usize));
        let region = reg(pd, &buffer, ALL);
        Self { buffer, region, size }
    }

    /// The offset of a place in the buffer.
    pub(crate) fn at(&self, place: Place) -> usize {
        let index = match place {
            Place::Word => 0,
            Place::Before => 1,
            Place::Inbox(round) => 2 + round % 2,
            Place::Shelf(round) => 4 + round % 2,
            Place::Outbox(round) => 6 + round % 2,
            Place::Message(round) => 8 + round % 2,
            Place::Landing => 10,
            Place::Received(round) => 11 + round % RECEIVES,
        };
        index as usize * self.size
    }

    /// An SGE of a place.
    pub(crate) fn sge(&self, place: Place, offset: usize, length: usize) -> ibv_sge {
        sge(self.buffer.addr() + (self.at(place) + offset) as u64, length as u32, self.region)
    }

    /// The key that gives the other end access to all of it.
    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: the region is live.
        unsafe { (*self.region).rkey }
    }

    /// Puts bytes into a place.
    pub(crate) fn put(&self, place: Place, offset: usize, bytes: &[u8]) {
        self.buffer.write(self.at(place) + offset, bytes);
    }

    /// Takes the whole content of a place, and leaves zeros. It must be these bytes, surrounded by zeros.
    pub(crate) fn take(&self, place: Place, offset: usize, bytes: &[u8]) -> Result<(), String> {
        let start = self.at(place);
        let found = self.buffer.read(start, self.size);
        self.buffer.fill_part(start, self.size, 0);
        let expected = |at: usize| at.checked_sub(offset).and_then(|at| bytes.get(at)).copied();
        match (0..self.size).find(|at| found[*at] != expected(*at).unwrap_or(0)) {
            None => Ok(()),
            Some(at) => Err(format!(
                "{place:?}: byte {at} is {:#04x} and not {:?}, of {} bytes from {offset} on",
                found[at],
                expected(at),
                bytes.len()
            )),
        }
    }
}

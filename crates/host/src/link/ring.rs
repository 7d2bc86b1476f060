//! Rings of records between two processes: one producer, one consumer, in the producer's segment.
//!
//! A record is a header of [`HEADER_WORDS`] words and a payload, padded to [`ALIGN`] bytes; it never
//! wraps. What does not fit before the end of the ring begins at its start, after a filler.

use std::sync::atomic::{AtomicU64, Ordering::*};

use super::message::HEADER_WORDS;
use crate::segment::{RING_BYTES, RingPositions};

const SIZE: u64 = RING_BYTES as u64;
const ALIGN: u64 = 64;
const HEADER_BYTES: u64 = HEADER_WORDS as u64 * 8;
/// Longest payload of a record.
pub(crate) const MAX_PAYLOAD: u64 = 32 << 10;
/// In the first word of a header, beside the record's length: skip to the start of the ring.
const FILLER: u64 = 1 << 32;

/// A header: the first word's low half is the record's length in bytes.
pub(crate) type Header = [u64; HEADER_WORDS];

/// Bytes a record takes.
pub(crate) const fn record_bytes(payload: u64) -> u64 {
    (HEADER_BYTES + payload).next_multiple_of(ALIGN)
}

/// The writing end. The caller keeps it under a lock.
pub(crate) struct Producer {
    tail: u64,
}

/// Room for one record: its place, to be filled and published.
pub(crate) struct Room {
    place: *mut u8,
    start: u64,
}

impl Room {
    /// Where the payload goes.
    pub(crate) fn payload(&self) -> *mut u8 {
        self.place.wrapping_add(HEADER_BYTES as usize)
    }
}

impl Producer {
    pub(crate) fn new() -> Self {
        Self { tail: 0 }
    }

    /// Finds room for a record with `payload` bytes; `None` if the ring is too full now.
    pub(crate) fn room(
        &self,
        positions: &RingPositions,
        bytes: *mut u8,
        payload: u64,
    ) -> Option<Room> {
        let need = record_bytes(payload);
        let used = self.tail.wrapping_sub(positions.head.load(Acquire));
        let to_end = SIZE - self.tail % SIZE;
        let skip = if need > to_end { to_end } else { 0 };
        // A consumer that claims to be ahead of us is not believed: nothing fits then.
        if used.checked_add(skip + need)? > SIZE {
            return None;
        }
        if skip > 0 {
            let filler = place(bytes, self.tail);
            write_word(filler, 0, skip | FILLER);
        }
        let start = self.tail + skip;
        Some(Room { place: place(bytes, start), start })
    }

    /// Whether the other end has done with every record.
    pub(crate) fn is_drained(&self, positions: &RingPositions) -> bool {
        positions.head.load(Acquire) == self.tail
    }

    /// Makes the record visible, with a payload of `payload` bytes (no more than asked for).
    pub(crate) fn publish(
        &mut self,
        positions: &RingPositions,
        room: &Room,
        header: &Header,
        payload: u64,
    ) {
        let length = record_bytes(payload);
        write_word(room.place, 0, length);
        for (index, word) in header.iter().enumerate().skip(1) {
            write_word(room.place, index, *word);
        }
        self.tail = room.start + length;
        positions.tail.store(self.tail, Release);
    }
}

/// The reading end. The caller keeps it under a lock.
pub(crate) struct Consumer {
    head: u64,
}

/// A record in place; it stays until [`Consumer::release`].
pub(crate) struct Record {
    pub(crate) header: Header,
    /// First byte of the payload, in shared memory: read it by [`crate::memory::Copier`] only.
    pub(crate) payload: *const u8,
    /// Bytes that may be read there.
    pub(crate) room: u64,
    next: u64,
}

impl Consumer {
    pub(crate) fn new() -> Self {
        Self { head: 0 }
    }

    /// The next record. Lengths from the other process are checked against the ring; `Err` means
    /// that it wrote nonsense.
    pub(crate) fn next(
        &mut self,
        positions: &RingPositions,
        bytes: *mut u8,
    ) -> Result<Option<Record>, Garbled> {
        loop {
            let ready = positions.tail.load(Acquire).wrapping_sub(self.head);
            if ready == 0 {
                return Ok(None);
            }
            let place = place(bytes, self.head);
            let first = read_word(place, 0);
            let (length, filler) = (first & 0xffff_ffff, first & FILLER != 0);
            let fits = length <= ready && length <= SIZE - self.head % SIZE;
            if ready > SIZE || !fits || length < ALIGN || !length.is_multiple_of(ALIGN) {
                return Err(Garbled);
            }
            if filler {
                self.head += length;
                positions.head.store(self.head, Release);
                continue;
            }
            if length < HEADER_BYTES {
                return Err(Garbled);
            }
            return Ok(Some(Record {
                header: std::array::from_fn(|index| read_word(place, index)),
                payload: place.wrapping_add(HEADER_BYTES as usize),
                room: length - HEADER_BYTES,
                next: self.head + length,
            }));
        }
    }

    /// Gives the record's room back to the producer.
    pub(crate) fn release(&mut self, positions: &RingPositions, record: &Record) {
        self.head = record.next;
        positions.head.store(self.head, SeqCst);
    }
}

/// The other process broke the format of the ring.
#[derive(Debug)]
pub(crate) struct Garbled;

fn place(bytes: *mut u8, position: u64) -> *mut u8 {
    bytes.wrapping_add((position % SIZE) as usize)
}

fn word(place: *mut u8, index: usize) -> *const AtomicU64 {
    place.wrapping_add(index * 8).cast::<AtomicU64>()
}

fn write_word(place: *mut u8, index: usize, value: u64) {
    // SAFETY: `place` is a record's start within the mapped ring, aligned to 64 bytes, and a header's
    // words lie before the record's end, which lies before the ring's.
    unsafe { &*word(place, index) }.store(value, Relaxed);
}

fn read_word(place: *mut u8, index: usize) -> u64 {
    // SAFETY: as in `write_word`.
    unsafe { &*word(place, index) }.load(Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> (Box<RingPositions>, Vec<u64>) {
        // SAFETY: all zeros is a valid value of atomics and bytes.
        (Box::new(unsafe { std::mem::zeroed() }), vec![0_u64; RING_BYTES / 8 + 8])
    }

    fn base(memory: &mut [u64]) -> *mut u8 {
        let start = memory.as_mut_ptr().cast::<u8>();
        start.wrapping_add(start.align_offset(64))
    }

    #[test]
    fn records_come_out_as_they_went_in_over_many_rounds() {
        let (positions, mut memory) = ring();
        let bytes = base(&mut memory);
        let (mut producer, mut consumer) = (Producer::new(), Consumer::new());
        let (mut sent, mut received) = (0_u64, 0_u64);
        while received < 10_000 {
            let size = sent * 7919 % (MAX_PAYLOAD + 1);
            if let Some(room) = producer.room(&positions, bytes, size) {
                let mut header = [0; HEADER_WORDS];
                header[1] = sent;
                header[2] = size;
                producer.publish(&positions, &room, &header, size);
                sent += 1;
                continue;
            }
            let record =
                consumer.next(&positions, bytes).unwrap().expect("a full ring has records");
            assert_eq!(record.header[1], received);
            assert!(record.room >= record.header[2]);
            consumer.release(&positions, &record);
            received += 1;
        }
    }

    #[test]
    fn nonsense_from_the_other_side_is_found_out() {
        for first in [0, 1, 63, 65, 1 << 31, SIZE + 64, 64 | FILLER << 1] {
            let (positions, mut memory) = ring();
            let bytes = base(&mut memory);
            write_word(bytes, 0, first);
            positions.tail.store(128, Release);
            assert!(Consumer::new().next(&positions, bytes).is_err(), "{first:#x}");
        }
    }
}

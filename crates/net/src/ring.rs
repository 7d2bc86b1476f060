//! Rings of records between two processes: one producer, one consumer, in the producer's segment.
//!
//! A record is a header of up to [`HEADER_WORDS`] words and a payload, padded to [`ALIGN`] bytes. It never wraps: if a
//! record does not fit before the end of the ring, a filler takes the rest and the record begins at the start.
//!
//! A record exists once its first word is not zero. So the consumer finds it at once, and needs no second cache line
//! that says where it ends. The producer clears the word behind a record before it writes the record's first word, and
//! always keeps room for it.

use std::sync::atomic::{AtomicU64, Ordering, Ordering::*};

use transom_system::segment::{RING_BYTES, RingPositions};

/// The most words of a header. The first is the ring's, the others are the message's. Zero words at its end are left
/// out, so that a small message with its header fits a cache line.
pub(crate) const HEADER_WORDS: usize = 13;

const SIZE: u64 = RING_BYTES as u64;
const ALIGN: u64 = 64;
/// Longest payload of a record.
pub const MAX_PAYLOAD: u64 = 32 << 10;

/// A header. The ring owns the first word.
pub(crate) type Header = [u64; HEADER_WORDS];

/// How many words of a header remain when zeros at its end are left out.
pub(crate) fn words_of(header: &[u64]) -> usize {
    header.iter().rposition(|word| *word != 0).map_or(1, |last| last + 1)
}

/// The bytes that a record takes with a header of so many words and a payload of up to [`MAX_PAYLOAD`].
pub(crate) const fn record_bytes(words: usize, payload: u64) -> u64 {
    (words as u64 * 8 + payload).next_multiple_of(ALIGN)
}

/// The first word of a record. It is not zero.
#[derive(Clone, Copy)]
struct First {
    what: What,
    /// Bytes to the next record.
    length: u64,
    /// How often the ring has been round before. Anything there from an earlier round is rejected.
    round: u16,
}

#[derive(Clone, Copy)]
enum What {
    /// A record with so many words of a header.
    Record { words: usize },
    /// No record, to the end of the ring.
    Filler,
}

impl First {
    /// The number of words of the header stands here, beside the length. A filler has none.
    const WORDS: u32 = 32;
    /// Where the round is.
    const ROUND: u32 = 48;

    /// That at a position.
    fn at(position: u64, what: What, length: u64) -> Self {
        Self { what, length, round: (position / SIZE) as u16 }
    }

    fn pack(self) -> u64 {
        let words = match self.what {
            What::Record { words } => words as u64,
            What::Filler => 0,
        };
        self.length | words << Self::WORDS | u64::from(self.round) << Self::ROUND
    }

    /// Parses the word that another process wrote at a position. `None` if it is malformed.
    fn parse(word: u64, position: u64) -> Option<Self> {
        let to_end = SIZE - position % SIZE;
        let length = word & 0xffff_ffff;
        let what = match (word >> Self::WORDS) as u16 as usize {
            0 => What::Filler,
            words => What::Record { words },
        };
        let first = Self::at(position, what, length);
        let fits = match what {
            What::Record { words } => words <= HEADER_WORDS && words as u64 * 8 <= length,
            What::Filler => length == to_end && to_end != SIZE,
        };
        let fits = fits && length >= ALIGN && length <= to_end && length.is_multiple_of(ALIGN);
        (fits && first.pack() == word).then_some(first)
    }
}

/// The writing end. The caller keeps it under a lock.
pub(crate) struct Producer {
    tail: u64,
    /// The consumer's position when it was last read. It is read again only when there seems to be no room.
    head: u64,
}

/// Room for one record, to be filled and published.
pub(crate) struct Room {
    /// How many bytes a filler takes, to the start of the ring.
    skip: u64,
    start: u64,
    location: *mut u8,
    /// How much it has room for.
    words: usize,
    payload: u64,
}

impl Room {
    /// Where the payload goes.
    pub(crate) fn payload(&self) -> *mut u8 {
        self.location.wrapping_add(self.words * 8)
    }
}

impl Producer {
    /// The producer of an empty ring, see [`clear`].
    pub(crate) fn new() -> Self {
        Self { tail: 0, head: 0 }
    }

    /// Finds room for a record with `words` of a header and `payload` bytes. `None` if the ring is too full now, or if
    /// no record can be that long.
    pub(crate) fn room(
        &mut self,
        positions: &RingPositions,
        bytes: *mut u8,
        words: usize,
        payload: u64,
    ) -> Option<Room> {
        if payload > MAX_PAYLOAD {
            return None;
        }
        let need = record_bytes(words, payload);
        let to_end = SIZE - self.tail % SIZE;
        let skip = if need > to_end { to_end } else { 0 };
        // The first word of the next record must fit behind it. A consumer that claims to be ahead of us is not
        // believed: then nothing fits.
        let fits = |tail: u64, head| {
            let used = tail.wrapping_sub(head).checked_add(skip + need + ALIGN);
            used.is_some_and(|used| used <= SIZE)
        };
        if !fits(self.tail, self.head) {
            // This load is in one order with the flag of a waiting sender. Once the flag is up, either this sees the
            // room or the consumer sees the flag. An acquire load could be moved before the store of the flag.
            self.head = positions.head.load(SeqCst);
            if !fits(self.tail, self.head) {
                return None;
            }
        }
        let start = self.tail + skip;
        Some(Room { skip, start, location: location(bytes, start), words, payload })
    }

    /// Whether the consumer has released every record.
    pub(crate) fn is_drained(&self, positions: &RingPositions) -> bool {
        positions.head.load(Acquire) == self.tail
    }

    /// Makes the record visible, with a payload of `payload` bytes, at most as many as asked for. Writes as many words
    /// of the header as there is room for.
    pub(crate) fn publish(&mut self, bytes: *mut u8, room: &Room, header: &[u64], payload: u64) {
        debug_assert!(words_of(header) <= room.words, "words of it are left out");
        let length = record_bytes(room.words, payload.min(room.payload));
        let end = room.start + length;
        store(location(bytes, end), 0, 0, Relaxed);
        for (index, value) in header[..room.words].iter().enumerate().skip(1) {
            store(room.location, index, *value, Relaxed);
        }
        let record = First::at(room.start, What::Record { words: room.words }, length);
        // The consumer finds the record by this store. The store is in one order with the caller's next load, which
        // decides whether to signal the consumer.
        if room.skip > 0 {
            store(room.location, 0, record.pack(), Release);
            // The consumer finds the record at the start of the ring through the filler.
            let filler = First::at(self.tail, What::Filler, room.skip);
            store(location(bytes, self.tail), 0, filler.pack(), SeqCst);
        } else {
            store(room.location, 0, record.pack(), SeqCst);
        }
        self.tail = end;
    }
}

/// Empties a ring, before its ends begin.
pub(crate) fn clear(positions: &RingPositions, bytes: *mut u8) {
    positions.head.store(0, SeqCst);
    store(bytes, 0, 0, SeqCst);
}

/// The reading end. The caller keeps it under a lock.
pub(crate) struct Consumer {
    head: u64,
}

/// A record in place. It stays until [`Consumer::release`].
pub(crate) struct Record {
    pub(crate) header: Header,
    /// The first byte of the payload, in the ring. Read it only through [`transom_system::memory::Copier`].
    pub(crate) payload: *const u8,
    /// Bytes that may be read there.
    pub(crate) room: u64,
    next: u64,
}

/// Whether there is a record or a filler that the consumer has not taken.
pub(crate) fn has_record(positions: &RingPositions, bytes: *mut u8) -> bool {
    load(location(bytes, positions.head.load(Relaxed)), 0, Acquire) != 0
}

impl Consumer {
    pub(crate) fn new() -> Self {
        Self { head: 0 }
    }

    /// How many bytes of the ring it has been through.
    pub(crate) fn position(&self) -> u64 {
        self.head
    }

    /// The next record. The other process's words are read once and checked against the ring, whatever it writes
    /// meanwhile: a record lies within the ring, and behind a filler the ring begins again. `Err` means that the words
    /// were malformed.
    pub(crate) fn next(
        &mut self,
        positions: &RingPositions,
        bytes: *mut u8,
    ) -> Result<Option<Record>, Garbled> {
        loop {
            let record = location(bytes, self.head);
            let first = match load(record, 0, Acquire) {
                0 => return Ok(None),
                first => First::parse(first, self.head).ok_or(Garbled)?,
            };
            let length = first.length;
            match first.what {
                What::Filler => {
                    self.head = self.head.wrapping_add(length);
                    positions.head.store(self.head, Release);
                }
                What::Record { words } => {
                    let mut header = [0; HEADER_WORDS];
                    for (index, value) in header[..words].iter_mut().enumerate().skip(1) {
                        *value = load(record, index, Relaxed);
                    }
                    return Ok(Some(Record {
                        header,
                        payload: record.wrapping_add(words * 8),
                        room: length - words as u64 * 8,
                        next: self.head.wrapping_add(length),
                    }));
                }
            }
        }
    }

    /// Gives the record's room back to the producer. True if the producer waits for room.
    pub(crate) fn release(&mut self, positions: &RingPositions, record: &Record) -> bool {
        self.head = record.next;
        positions.head.store(self.head, SeqCst);
        positions.full.load(SeqCst) == 1 && positions.full.swap(0, SeqCst) == 1
    }
}

/// The other process broke the format of the ring, or of a message in it.
#[derive(Debug)]
pub struct Garbled;

/// The place of the record at a position. It is within the ring, whatever position another process claims.
fn location(bytes: *mut u8, position: u64) -> *mut u8 {
    bytes.wrapping_add((position % SIZE / ALIGN * ALIGN) as usize)
}

fn word(record: *mut u8, index: usize) -> *const AtomicU64 {
    record.wrapping_add(index * 8).cast()
}

fn store(record: *mut u8, index: usize, value: u64, order: Ordering) {
    // SAFETY: `record` is a record's start within the mapped ring, aligned to 64 bytes, and a header's
    // words lie before the record's end, which lies before the ring's.
    unsafe { &*word(record, index) }.store(value, order);
}

fn load(record: *mut u8, index: usize, order: Ordering) -> u64 {
    // SAFETY: as in `store`.
    unsafe { &*word(record, index) }.load(order)
}

#[cfg(test)]
mod tests;

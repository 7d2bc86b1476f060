//! Rings of records between two processes: one producer, one consumer, in the producer's segment.
//!
//! A record is a header of [`HEADER_WORDS`] words and a payload, padded to [`ALIGN`] bytes; it never
//! wraps. What does not fit before the end of the ring begins at its start, after a filler.

use std::sync::atomic::{AtomicU64, Ordering::*};

use transom_system::asymmetric_fence;
use transom_system::segment::{RING_BYTES, RingPositions};

/// Words of a header: the first is the ring's, the others are the message's.
pub(crate) const HEADER_WORDS: usize = 13;

const SIZE: u64 = RING_BYTES as u64;
const ALIGN: u64 = 64;
const HEADER_BYTES: u64 = HEADER_WORDS as u64 * 8;
/// Longest payload of a record.
pub const MAX_PAYLOAD: u64 = 32 << 10;
/// In the first word of a header, beside the record's length: skip to the start of the ring.
const FILLER: u64 = 1 << 32;

/// A header: the first word's low half is the record's length in bytes.
pub(crate) type Header = [u64; HEADER_WORDS];

/// Bytes a record takes, with a payload of up to [`MAX_PAYLOAD`].
pub(crate) const fn record_bytes(payload: u64) -> u64 {
    (HEADER_BYTES + payload).next_multiple_of(ALIGN)
}

/// What puts in order what one end stores and then loads, and the other loads and stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fence {
    /// Each end does.
    Symmetric,
    /// The one that does so seldom, for both: [`asymmetric_fence`].
    Asymmetric,
}

/// The writing end. The caller keeps it under a lock.
pub(crate) struct Producer {
    tail: u64,
}

/// Room for one record: where it lies, to be filled and published.
pub(crate) struct Room {
    location: *mut u8,
    start: u64,
    /// Bytes of payload that it has room for.
    payload: u64,
}

impl Room {
    /// Where the payload goes.
    pub(crate) fn payload(&self) -> *mut u8 {
        self.location.wrapping_add(HEADER_BYTES as usize)
    }
}

impl Producer {
    pub(crate) fn new() -> Self {
        Self { tail: 0 }
    }

    /// Finds room for a record with `payload` bytes; `None` if the ring is too full now, or if no
    /// record is as long.
    pub(crate) fn room(
        &self,
        positions: &RingPositions,
        bytes: *mut u8,
        payload: u64,
    ) -> Option<Room> {
        if payload > MAX_PAYLOAD {
            return None;
        }
        let need = record_bytes(payload);
        // In one order with the flag of a sender that waits: after it is up, this either sees the room or
        // the consumer sees the flag. An acquire load may come before the store of the flag.
        let used = self.tail.wrapping_sub(positions.head.load(SeqCst));
        let to_end = SIZE - self.tail % SIZE;
        let skip = if need > to_end { to_end } else { 0 };
        // A consumer that claims to be ahead of us is not believed: nothing fits then.
        if used.checked_add(skip + need)? > SIZE {
            return None;
        }
        if skip > 0 {
            let filler = location(bytes, self.tail);
            write_word(filler, 0, skip | FILLER);
        }
        let start = self.tail + skip;
        Some(Room { location: location(bytes, start), start, payload })
    }

    /// Whether the other end has done with every record.
    pub(crate) fn is_drained(&self, positions: &RingPositions) -> bool {
        positions.head.load(Acquire) == self.tail
    }

    /// Makes the record visible, with a payload of `payload` bytes, but no more than asked for.
    pub(crate) fn publish(
        &mut self,
        positions: &RingPositions,
        room: &Room,
        header: &Header,
        payload: u64,
    ) {
        let length = record_bytes(payload.min(room.payload));
        write_word(room.location, 0, length);
        for (index, word) in header.iter().enumerate().skip(1) {
            write_word(room.location, index, *word);
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
    /// First byte of the payload, in shared memory: read it by [`transom_system::memory::Copier`] only.
    pub(crate) payload: *const u8,
    /// Bytes that may be read there.
    pub(crate) room: u64,
    next: u64,
}

impl Consumer {
    pub(crate) fn new() -> Self {
        Self { head: 0 }
    }

    /// The next record. What the other process wrote is read once and checked against the ring,
    /// whatever it writes meanwhile: a record lies within the ring, and behind a filler the ring
    /// begins anew. `Err` means that it wrote nonsense.
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
            let record = location(bytes, self.head);
            let first = read_word(record, 0);
            let (length, filler) = (first & 0xffff_ffff, first & FILLER != 0);
            let to_end = SIZE - self.head % SIZE;
            let fits = length <= ready && length <= to_end;
            if ready > SIZE || !fits || length < ALIGN || !length.is_multiple_of(ALIGN) {
                return Err(Garbled);
            }
            if filler {
                if length != to_end || to_end == SIZE {
                    return Err(Garbled);
                }
                self.head = self.head.wrapping_add(length);
                positions.head.store(self.head, Release);
                continue;
            }
            if length < HEADER_BYTES {
                return Err(Garbled);
            }
            return Ok(Some(Record {
                header: std::array::from_fn(|index| read_word(record, index)),
                payload: record.wrapping_add(HEADER_BYTES as usize),
                room: length - HEADER_BYTES,
                next: self.head.wrapping_add(length),
            }));
        }
    }

    /// Gives the record's room back to the producer; true if that waits for room.
    pub(crate) fn release(
        &mut self,
        positions: &RingPositions,
        record: &Record,
        order: Fence,
    ) -> bool {
        self.head = record.next;
        match order {
            Fence::Symmetric => positions.head.store(self.head, SeqCst),
            Fence::Asymmetric => {
                positions.head.store(self.head, Release);
                asymmetric_fence::light();
            }
        }
        positions.full.load(SeqCst) == 1 && positions.full.swap(0, SeqCst) == 1
    }
}

/// The other process broke the format of the ring, or of a message in it.
#[derive(Debug)]
pub struct Garbled;

fn location(bytes: *mut u8, position: u64) -> *mut u8 {
    bytes.wrapping_add((position % SIZE) as usize)
}

fn word(record: *mut u8, index: usize) -> *const AtomicU64 {
    record.wrapping_add(index * 8).cast::<AtomicU64>()
}

fn write_word(record: *mut u8, index: usize, value: u64) {
    // SAFETY: `record` is a record's start within the mapped ring, aligned to 64 bytes, and a header's
    // words lie before the record's end, which lies before the ring's.
    unsafe { &*word(record, index) }.store(value, Relaxed);
}

fn read_word(record: *mut u8, index: usize) -> u64 {
    // SAFETY: as in `write_word`.
    unsafe { &*word(record, index) }.load(Relaxed)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{Rng, SeedableRng};
    use transom_device::execution::Request;
    use transom_device::protection::Key;
    use transom_device::qp::{QpNumber, Service};
    use transom_device::queue::{Body, Remote};
    use transom_system::segment::RingKind;
    use transom_wire::Psn;

    use super::super::message::{Arrival, answer_data, encode_request};
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
        while received < if cfg!(miri) { 200 } else { 10_000 } {
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
            consumer.release(&positions, &record, Fence::Symmetric);
            received += 1;
        }
    }

    #[test]
    fn no_record_is_as_long_as_a_length_that_wraps() {
        let (positions, mut memory) = ring();
        let bytes = base(&mut memory);
        let producer = Producer::new();
        for payload in [MAX_PAYLOAD + 1, SIZE, 1 << 32, u64::MAX - 95, u64::MAX] {
            assert!(producer.room(&positions, bytes, payload).is_none(), "{payload:#x}");
        }
        assert!(producer.room(&positions, bytes, MAX_PAYLOAD).is_some());
    }

    #[test]
    fn no_more_is_published_than_there_is_room_for() {
        let (positions, mut memory) = ring();
        let bytes = base(&mut memory);
        let mut producer = Producer::new();
        let room = producer.room(&positions, bytes, 8).unwrap();
        producer.publish(&positions, &room, &[0; HEADER_WORDS], MAX_PAYLOAD);
        assert_eq!(positions.tail.load(Acquire), record_bytes(8));
    }

    #[test]
    fn a_consumer_that_claims_what_it_likes_gets_no_room_outside_of_the_ring() {
        let (positions, mut memory) = ring();
        let bytes = base(&mut memory);
        let mut producer = Producer::new();
        let mut numbers = Xoshiro256PlusPlus::seed_from_u64(1);
        for _ in 0..if cfg!(miri) { 200 } else { 20_000 } {
            let random = numbers.next_u64();
            let near = producer.tail.wrapping_sub(random >> 40);
            positions.head.store(if random & 1 == 0 { near } else { random }, Release);
            let size = (random >> 32) % (MAX_PAYLOAD + 1);
            let Some(room) = producer.room(&positions, bytes, size) else { continue };
            let begin = room.payload().addr() - bytes.addr();
            assert!(begin as u64 + size <= SIZE);
            producer.publish(&positions, &room, &[0; HEADER_WORDS], size);
        }
    }

    /// Another process writes into the ring and its position while this one reads them, whole records
    /// and single words: what is read lies within the ring, and is taken from it once.
    #[test]
    fn a_writer_that_scribbles_while_it_is_read_leads_nowhere_outside() {
        /// A pointer for another thread.
        struct Shared(*mut u8);
        // SAFETY: both threads use atomics only.
        unsafe impl Sync for Shared {}
        impl Shared {
            fn get(&self) -> *mut u8 {
                self.0
            }
        }

        let (positions, mut memory) = ring();
        let bytes = Shared(base(&mut memory));
        let (enough, done) = (if cfg!(miri) { 5 } else { 2_000 }, AtomicBool::new(false));
        let deadline = Instant::now() + Duration::from_secs(60);
        let read = Request {
            to: QpNumber::from_bits(1),
            from: QpNumber::from_bits(2),
            service: Service::Rc,
            remote: Remote::Connected,
            message: Psn::new(3),
            attempt: 0,
            body: Body::Read { address: 4, key: Key(5) },
            offset: 0,
            length: 0,
            total: 0,
            solicited: false,
        };
        let mut understood = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut numbers = Xoshiro256PlusPlus::seed_from_u64(1);
                while !done.load(Relaxed) {
                    let random = numbers.next_u64();
                    let head = positions.head.load(Relaxed);
                    let record = location(bytes.get(), head);
                    let whole =
                        [64, 128, 192, 1 << 10, 32 << 10, SIZE][(random >> 60) as usize % 6];
                    let filler = if random >> 55 & 7 == 0 { FILLER } else { 0 };
                    // A READ of a length that changes, from a requester that keeps room for it.
                    let length = [0, 8, 4096, MAX_PAYLOAD, random, u64::MAX - 95]
                        [(random >> 40) as usize % 6];
                    write_word(record, 0, whole | filler);
                    // Nobody can write behind the ring.
                    if whole.min(SIZE - head % SIZE) >= HEADER_BYTES {
                        let reserved = length.wrapping_add(HEADER_BYTES + 63) & !63;
                        let mut header = encode_request(&read, None);
                        header[1] = header[1] & 0xffff_ffff | reserved << 32;
                        (header[5], header[6]) = (length, length);
                        for (index, word) in header.into_iter().enumerate().skip(1) {
                            write_word(record, index, word);
                        }
                    }
                    let ahead = [0, 64, 128, 4096, SIZE, random][(random >> 33) as usize % 6];
                    positions.tail.store(positions.head.load(Relaxed).wrapping_add(ahead), Release);
                }
            });
            let mut consumer = Consumer::new();
            while understood < enough && Instant::now() < deadline {
                match consumer.next(&positions, bytes.get()) {
                    Ok(Some(record)) => {
                        let begin = record.payload.addr() - bytes.get().addr();
                        assert!(begin as u64 + record.room <= SIZE);
                        let parsed =
                            Arrival::parse(RingKind::Requests, &record.header, record.room);
                        if let Ok(Arrival::Request(request, _)) = parsed {
                            // It may be answered: all that it asks for has room.
                            let data = answer_data(&request);
                            assert!(data <= MAX_PAYLOAD && record_bytes(data) <= SIZE);
                            assert!(request.offset + request.length <= request.total);
                            understood += 1;
                        }
                        consumer.release(&positions, &record, Fence::Symmetric);
                    }
                    Ok(None) => std::hint::spin_loop(),
                    // Such a process is not heard any more; here it has another chance.
                    Err(Garbled) => {
                        consumer.head = consumer.head.wrapping_add(ALIGN);
                        positions.head.store(consumer.head, Release);
                    }
                }
            }
            done.store(true, Relaxed);
        });
        assert_eq!(understood, enough);
    }

    #[test]
    fn nonsense_from_the_other_side_is_found_out() {
        // A filler goes on to the end of the ring, and none is all of it.
        let fillers = [128 | FILLER, SIZE | FILLER];
        for first in [0, 1, 63, 65, 1 << 31, SIZE + 64, 64 | FILLER << 1].into_iter().chain(fillers)
        {
            let (positions, mut memory) = ring();
            let bytes = base(&mut memory);
            write_word(bytes, 0, first);
            positions.tail.store(if first == SIZE | FILLER { SIZE } else { 128 }, Release);
            assert!(Consumer::new().next(&positions, bytes).is_err(), "{first:#x}");
        }
    }
}

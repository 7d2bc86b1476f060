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

use super::super::message::{ANSWER_WORDS, Arrival, answer_data, encode_request};
use super::*;

fn ring() -> (Box<RingPositions>, Vec<u64>) {
    // SAFETY: all zeros is a valid value of atomics and bytes.
    (Box::new(unsafe { std::mem::zeroed() }), vec![0_u64; RING_BYTES / 8 + 8])
}

/// A ring's bytes, for two threads.
struct Shared(*mut u8);
// SAFETY: both threads use atomics, or what the ring's positions let them have alone.
unsafe impl Sync for Shared {}
impl Shared {
    fn get(&self) -> *mut u8 {
        self.0
    }
}

/// Ends a thread, even if the test has failed.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
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
        let mut header = [0; HEADER_WORDS];
        (header[1], header[2]) = (sent, size);
        // As many words as possible, and fewer.
        header[sent as usize % HEADER_WORDS] |= 1 << 63;
        let words = words_of(&header);
        if let Some(room) = producer.room(&positions, bytes, words, size) {
            producer.publish(bytes, &room, &header, size);
            sent += 1;
            continue;
        }
        let record = consumer.next(&positions, bytes).unwrap().expect("a full ring has records");
        assert_eq!(record.header[1] & !(1 << 63), received);
        assert!(record.room >= record.header[2] & !(1 << 63));
        consumer.release(&positions, &record);
        received += 1;
    }
}

/// Two threads act as two processes: a published record is whole when it is seen, room is not used again while it
/// is read, and a producer that waits for room is signalled when there is some.
#[test]
fn both_ends_go_on_at_once() {
    let records = if cfg!(miri) { 100 } else { 20_000 };
    let patience = Duration::from_secs(60);
    let (positions, mut memory) = ring();
    let bytes = Shared(base(&mut memory));
    // These are not atomic: the other end must have released them.
    let ends_of = |payload: *mut u8| [payload.cast::<u64>(), payload.wrapping_add(24 << 10).cast()];
    std::thread::scope(|scope| {
        let producer = scope.spawn(|| {
            let mut producer = Producer::new();
            let room =
                |producer: &mut Producer| producer.room(&positions, bytes.get(), 2, MAX_PAYLOAD);
            for number in 0..records {
                let mut found = room(&mut producer);
                while found.is_none() {
                    positions.full.store(1, SeqCst);
                    found = room(&mut producer);
                    if found.is_none() {
                        let since = Instant::now();
                        std::thread::park_timeout(patience);
                        assert!(since.elapsed() < patience, "nobody tells of room");
                        found = room(&mut producer);
                    }
                }
                let room = found.expect("it has been waited for");
                for word in ends_of(room.payload()) {
                    // SAFETY: within the room, which is this end's alone, and aligned.
                    unsafe { word.write(number) };
                }
                let mut header = [0; HEADER_WORDS];
                header[1] = number;
                producer.publish(bytes.get(), &room, &header, MAX_PAYLOAD);
            }
        });
        let mut consumer = Consumer::new();
        for number in 0..records {
            let since = Instant::now();
            let record = loop {
                let next = consumer.next(&positions, bytes.get()).expect("it is a record");
                if let Some(record) = next {
                    break record;
                }
                assert!(since.elapsed() < 2 * patience, "no record");
                std::thread::yield_now();
            };
            assert_eq!(record.header[1], number);
            for word in ends_of(record.payload.cast_mut()) {
                // SAFETY: within the record, which is read by this end alone, and aligned.
                assert_eq!(unsafe { word.read() }, number);
            }
            if consumer.release(&positions, &record) {
                producer.thread().unpark();
            }
        }
    });
}

/// The consumer that makes room sees that the producer waits for it, or the producer sees the room.
#[test]
fn who_waits_for_room_and_who_makes_it_do_not_miss_each_other() {
    for round in 0..if cfg!(miri) { 40 } else { 100 } {
        let (positions, mut memory) = ring();
        let bytes = Shared(base(&mut memory));
        let (mut producer, mut consumer) = (Producer::new(), Consumer::new());
        let room = |producer: &mut Producer| producer.room(&positions, bytes.get(), 1, MAX_PAYLOAD);
        while let Some(room) = room(&mut producer) {
            producer.publish(bytes.get(), &room, &[0; HEADER_WORDS], MAX_PAYLOAD);
        }
        let waits = || {
            positions.full.store(1, SeqCst);
            room(&mut producer).is_some()
        };
        // Release more than one record, because a filler may take the room of one.
        let makes = || {
            let mut told = false;
            while let Some(record) = consumer.next(&positions, bytes.get()).unwrap() {
                told |= consumer.release(&positions, &record);
            }
            told
        };
        let seen = std::thread::scope(|scope| {
            // Each of the two begins first in turn.
            let both = match round % 2 {
                0 => [scope.spawn(waits), scope.spawn(makes)],
                _ => [scope.spawn(makes), scope.spawn(waits)],
            };
            both.map(|it| it.join().expect("it ends"))
        });
        assert!(seen.contains(&true), "round {round}");
    }
}

#[test]
fn no_record_is_as_long_as_a_length_that_wraps() {
    let (positions, mut memory) = ring();
    let bytes = base(&mut memory);
    let mut producer = Producer::new();
    for payload in [MAX_PAYLOAD + 1, SIZE, 1 << 32, u64::MAX - 95, u64::MAX] {
        assert!(producer.room(&positions, bytes, HEADER_WORDS, payload).is_none(), "{payload:#x}");
    }
    assert!(producer.room(&positions, bytes, HEADER_WORDS, MAX_PAYLOAD).is_some());
}

#[test]
fn no_more_is_published_than_there_is_room_for() {
    let (positions, mut memory) = ring();
    let bytes = base(&mut memory);
    let mut producer = Producer::new();
    let room = producer.room(&positions, bytes, 2, 8).unwrap();
    producer.publish(bytes, &room, &[0; HEADER_WORDS], MAX_PAYLOAD);
    let record = Consumer::new().next(&positions, bytes).unwrap().expect("there is one");
    assert_eq!(record.room, record_bytes(2, 8) - 2 * 8);
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
        let Some(room) = producer.room(&positions, bytes, 1, size) else { continue };
        let begin = room.payload().addr() - bytes.addr();
        assert!(begin as u64 + size <= SIZE);
        producer.publish(bytes, &room, &[0; HEADER_WORDS], size);
    }
}

/// Another process writes into the ring and its position while this one reads them, whole records and single words.
/// Every record read lies within the ring, and is taken from it once.
#[test]
fn a_writer_that_scribbles_while_it_is_read_leads_nowhere_outside() {
    let (positions, mut memory) = ring();
    let bytes = Shared(base(&mut memory));
    let (enough, done) = (if cfg!(miri) { 5 } else { 20_000 }, AtomicBool::new(false));
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
            for round in 1_u64.. {
                if done.load(Relaxed) {
                    break;
                }
                // The reader may need this processor, and each of its looks finds one record at most.
                if round % 64 == 0 {
                    std::thread::yield_now();
                }
                let random = numbers.next_u64();
                let head = positions.head.load(Relaxed);
                let record = location(bytes.get(), head);
                let whole = [64, 128, 192, 1 << 10, 32 << 10, SIZE][(random >> 60) as usize % 6];
                // A READ whose length changes, from a requester that keeps room for it.
                let length =
                    [0, 8, 4096, MAX_PAYLOAD, random, u64::MAX - 95][(random >> 40) as usize % 6];
                // Nobody can write behind the ring.
                let words = match whole.min(SIZE - head % SIZE) {
                    64 => 8,
                    _ => HEADER_WORDS,
                };
                let reserved = length.wrapping_add(ANSWER_WORDS as u64 * 8 + 63) & !63;
                let mut header = encode_request(&read, None);
                header[1] = header[1] & 0xffff_ffff | reserved << 32;
                (header[5], header[6]) = (length, length);
                for (index, value) in header[..words].iter().enumerate().skip(1) {
                    store(record, index, *value, Relaxed);
                }
                let what = match random >> 55 & 7 {
                    0 => What::Filler,
                    _ => What::Record { words: (random >> 32) as usize % 16 },
                };
                let first = First::at(head, what, whole);
                store(record, 0, first.pack(), Release);
                if random >> 50 & 7 == 0 {
                    store(record, 0, random, Release);
                }
            }
        });
        let _over = Over(&done);
        let mut consumer = Consumer::new();
        while understood < enough && Instant::now() < deadline {
            match consumer.next(&positions, bytes.get()) {
                Ok(Some(record)) => {
                    let begin = record.payload.addr() - bytes.get().addr();
                    assert!(begin as u64 + record.room <= SIZE);
                    let parsed = Arrival::parse(RingKind::Requests, &record.header, record.room);
                    if let Ok(Arrival::Request(request, _)) = parsed {
                        // It may be answered: everything that it asks for has room.
                        let data = answer_data(&request);
                        assert!(data <= MAX_PAYLOAD && record_bytes(ANSWER_WORDS, data) <= SIZE);
                        assert!(request.offset + request.length <= request.total);
                        understood += 1;
                    }
                    consumer.release(&positions, &record);
                }
                // The writer writes here next, and may need this processor.
                Ok(None) => std::thread::yield_now(),
                // In production such a process is not heard any more. Here it gets another chance.
                Err(Garbled) => {
                    consumer.head = consumer.head.wrapping_add(ALIGN);
                    positions.head.store(consumer.head, Release);
                    std::thread::yield_now();
                }
            }
        }
    });
    assert_eq!(understood, enough);
}

#[test]
fn nonsense_from_the_other_side_is_found_out() {
    let first = |what, length| First::at(0, what, length).pack();
    let record = |length, words| first(What::Record { words }, length);
    // A filler extends to the end of the ring, and none is the whole ring.
    let fillers = [128, SIZE].map(|length| first(What::Filler, length));
    let records = [
        record(0, 1),
        record(1, 1),
        record(63, 1),
        record(65, 1),
        record(1 << 31, 1),
        record(SIZE + 64, 1),
        record(64, 9),
        record(128, HEADER_WORDS + 1),
        record(64, 1) | 1 << 40,
        record(64, 1) | 1 << 63,
    ];
    for first in records.into_iter().chain(fillers) {
        let (positions, mut memory) = ring();
        let bytes = base(&mut memory);
        store(bytes, 0, first, Release);
        assert!(Consumer::new().next(&positions, bytes).is_err(), "{first:#x}");
    }
}

/// Otherwise records would be taken for ever from a process that has filled its ring and ended.
#[test]
fn a_record_is_taken_once() {
    let (positions, mut memory) = ring();
    let bytes = base(&mut memory);
    for at in (0..SIZE).step_by(ALIGN as usize) {
        let record = First::at(at, What::Record { words: 1 }, ALIGN);
        store(location(bytes, at), 0, record.pack(), Relaxed);
    }
    let mut consumer = Consumer::new();
    for _ in 0..SIZE / ALIGN {
        let record = consumer.next(&positions, bytes).unwrap().expect("it is full of them");
        consumer.release(&positions, &record);
    }
    assert!(consumer.next(&positions, bytes).is_err());
}

/// Old content looks like records, at each place where one can begin.
#[test]
fn what_was_there_before_is_no_record() {
    let (positions, mut memory) = ring();
    let bytes = base(&mut memory);
    for at in (0..SIZE).step_by(ALIGN as usize) {
        let stale = First::at(at, What::Record { words: 1 }, ALIGN);
        store(location(bytes, at), 0, stale.pack(), Relaxed);
    }
    clear(&positions, bytes);
    let (mut producer, mut consumer) = (Producer::new(), Consumer::new());
    assert!(consumer.next(&positions, bytes).unwrap().is_none());
    for round in 0..if cfg!(miri) { 50 } else { 5_000 } {
        let size = round * 7919 % (MAX_PAYLOAD + 1);
        let Some(room) = producer.room(&positions, bytes, 3, size) else {
            unreachable!("it is empty")
        };
        // Data may look like records too. Unpublished records are not seen.
        for at in (0..size / 8 * 8).step_by(8) {
            let payload = room.payload().wrapping_add(at as usize);
            let first = First::at(producer.tail, What::Record { words: 1 }, ALIGN);
            store(payload, 0, first.pack(), Relaxed);
        }
        assert!(!has_record(&positions, bytes));
        producer.publish(bytes, &room, &[0, round, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], size / 2);
        assert!(has_record(&positions, bytes));
        let record = consumer.next(&positions, bytes).unwrap().expect("it is published");
        assert_eq!(record.header[1], round);
        consumer.release(&positions, &record);
        assert!(consumer.next(&positions, bytes).unwrap().is_none(), "{round}");
    }
}

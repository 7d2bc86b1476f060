//! Reading of data that other processes and the kernel write, for `transom-inputs`. Only in builds with debug
//! assertions.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use transom_system::segment::{RING_BYTES, RingKind, RingPositions};

use crate::message::{
    ANSWER_WORDS, Arrival, answer_data, decode_answer, decode_request, encode_answer,
    encode_request,
};
use crate::ring::{Consumer, HEADER_WORDS, Producer, Record};
use crate::udp;

/// Parses a record's header as a request and as an answer. A header that parses must encode to the same words.
pub fn ring_message(header: &[u64; HEADER_WORDS]) {
    if let Some((request, data)) = decode_request(header) {
        assert_eq!(decode_request(&encode_request(&request, data)), Some((request, data)));
    }
    if let Some(answer) = decode_answer(header) {
        assert_eq!(decode_answer(&encode_answer(&answer)), Some(answer));
    }
}

/// A ring's memory, aligned as in a segment.
struct Ring {
    positions: RingPositions,
    memory: Vec<u64>,
}

impl Ring {
    fn new(words: &[u64]) -> Self {
        // SAFETY: all zeros is a valid value of atomics and bytes.
        let positions = unsafe { std::mem::zeroed() };
        let mut ring = Self { positions, memory: vec![0_u64; RING_BYTES / 8 + 8] };
        let given = words.len().min(RING_BYTES / 8);
        let begin = ring.begin();
        ring.memory[begin..][..given].copy_from_slice(&words[..given]);
        ring
    }

    fn begin(&self) -> usize {
        self.memory.as_ptr().cast::<u8>().align_offset(64) / 8
    }

    fn bytes(&mut self) -> *mut u8 {
        let begin = self.begin();
        self.memory[begin..].as_mut_ptr().cast()
    }
}

/// A ring that begins with these words. No record may reach beyond it.
pub fn ring(words: &[u64]) {
    let mut ring = Ring::new(words);
    let bytes = ring.bytes();
    let (mut consumer, mut replies) = (Consumer::new(), Replies::new());
    while let Ok(Some(record)) = consumer.next(&ring.positions, bytes) {
        replies.answer(&record, bytes);
        ring_message(&record.header);
        consumer.release(&ring.positions, &record);
    }
}

/// A ring that another thread writes into while it is read: values and their places, word by word, its positions among
/// them, over and over. No record and no answer may reach beyond the ring.
pub fn ring_while_written(writes: &[(u16, u64)]) {
    struct Shared(*mut u8);
    // SAFETY: both threads use atomics only.
    unsafe impl Sync for Shared {}
    impl Shared {
        fn word(&self, index: usize) -> &AtomicU64 {
            // SAFETY: within the ring, whose words are only used as atomics meanwhile.
            unsafe { AtomicU64::from_ptr(self.0.cast::<u64>().add(index % (RING_BYTES / 8))) }
        }
    }

    let mut ring = Ring::new(&[]);
    let bytes = Shared(ring.bytes());
    let (positions, done) = (&ring.positions, AtomicBool::new(false));
    let mut replies = Replies::new();
    let head = &AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let write = |&(word, value): &(u16, u64)| match word {
                0..64 => head.store(value, Relaxed),
                // Most writes go to the place of the next record.
                64..0x8000 => {
                    let next = positions.head.load(Relaxed) as usize / 8;
                    bytes.word(next + usize::from(word) % 16).store(value, Relaxed);
                }
                _ => bytes.word(usize::from(word)).store(value, Relaxed),
            };
            while !done.load(Relaxed) {
                writes.iter().for_each(write);
            }
        });
        let mut consumer = Consumer::new();
        for _ in 0..1_000 {
            replies.positions.head.store(head.load(Relaxed), Relaxed);
            let Ok(Some(record)) = consumer.next(positions, bytes.0) else { continue };
            replies.answer(&record, bytes.0);
            consumer.release(positions, &record);
        }
        done.store(true, Relaxed);
    });
}

/// The answers to the requests of a ring.
struct Replies {
    positions: RingPositions,
    ring: Ring,
    producer: Producer,
}

impl Replies {
    fn new() -> Self {
        // SAFETY: all zeros is a valid value of atomics and bytes.
        let positions = unsafe { std::mem::zeroed() };
        Self { positions, ring: Ring::new(&[]), producer: Producer::new() }
    }

    /// Checks a record of the ring at `bytes`, and answers it if it is a request.
    fn answer(&mut self, record: &Record, bytes: *mut u8) {
        let within = |begin: *const u8, length: u64, ring: *mut u8| {
            let begin = (begin.addr() as u64).checked_sub(ring.addr() as u64).expect("behind it");
            assert!(begin.checked_add(length).is_some_and(|end| end <= RING_BYTES as u64));
        };
        within(record.payload, record.room, bytes);
        for kind in [RingKind::Requests, RingKind::Replies] {
            let Ok(arrival) = Arrival::parse(kind, &record.header, record.room) else { continue };
            assert!(arrival.payload() <= record.room);
            let request = match arrival {
                Arrival::Send(send) => send.request(),
                Arrival::Request(request, _) => request,
                Arrival::Answer(_) => continue,
            };
            let data = answer_data(&request);
            let ring = self.ring.bytes();
            let Some(room) = self.producer.room(&self.positions, ring, ANSWER_WORDS, data) else {
                continue;
            };
            within(room.payload(), data, ring);
            self.producer.publish(ring, &room, &[0; HEADER_WORDS], data);
        }
    }
}

/// A packet for queue pair 0. It may tell its receiver its position among the processes of the port.
pub fn probe(packet: &[u8]) {
    if let Some(probe) = udp::Probe::parse(packet) {
        assert_eq!(probe.to_bytes(), packet);
    }
}

/// A message that another process hands on. No datagram may be longer than the message says.
pub fn handed_on(message: &[u8]) {
    if let Some(datagrams) = udp::parse(message) {
        assert!(datagrams.iter().all(|datagram| datagram.len() <= datagrams.segment));
        let again = [&udp::head(&datagrams)[..], datagrams.bytes].concat();
        assert_eq!(udp::parse(&again), Some(datagrams));
    }
}

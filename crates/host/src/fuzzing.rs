//! What other processes and the kernel write and this crate reads, as the fuzz targets reach it. In
//! builds with `--cfg fuzzing` only.

use std::sync::atomic::Ordering::Relaxed;

use crate::link::message::{
    HEADER_WORDS, decode_answer, decode_request, encode_answer, encode_request,
};
use crate::link::ring::Consumer;
use crate::link::udp;
use crate::memory::parse_maps_line;
use crate::registry::RefusalRecord;
use crate::registry::record::RECORD_WORDS;
use crate::segment::{RING_BYTES, RingPositions};

/// A record's header, taken for a request and for an answer: what is read is written as the same.
pub fn ring_message(header: &[u64; HEADER_WORDS]) {
    if let Some((request, reserved)) = decode_request(header) {
        let written = encode_request(&request, reserved);
        assert_eq!(decode_request(&written), Some((request, reserved)));
    }
    if let Some(answer) = decode_answer(header) {
        assert_eq!(decode_answer(&encode_answer(&answer)), Some(answer));
    }
}

/// A ring that begins with these words and whose producer says it has written up to `tail`: no record
/// reaches beyond it.
pub fn ring(tail: u64, words: &[u64]) {
    // SAFETY: all zeros is a valid value of atomics and bytes.
    let positions: RingPositions = unsafe { std::mem::zeroed() };
    positions.tail.store(tail, Relaxed);
    let mut memory = vec![0_u64; RING_BYTES / 8 + 8];
    let align = memory.as_ptr().cast::<u8>().align_offset(64) / 8;
    let ring = &mut memory[align..][..RING_BYTES / 8];
    let given = words.len().min(ring.len());
    ring[..given].copy_from_slice(&words[..given]);
    let bytes = ring.as_mut_ptr().cast::<u8>();

    let mut consumer = Consumer::new();
    while let Ok(Some(record)) = consumer.next(&positions, bytes) {
        let begin = record.payload as u64 - bytes as u64;
        assert!(begin + record.room <= RING_BYTES as u64);
        ring_message(&record.header);
        consumer.release(&positions, &record);
    }
}

/// A record of the registry, and the sentence that `transom explain` makes of it.
pub fn registry_record(words: &[u64; RECORD_WORDS]) {
    if let Some(record) = RefusalRecord::from_words(words) {
        assert!(!record.to_string().is_empty());
        assert_eq!(RefusalRecord::from_words(&record.to_words()), Some(record));
    }
}

/// A line of `/proc/self/maps`.
pub fn maps_line(line: &[u8]) {
    parse_maps_line(line);
}

/// A packet that asks for nobody, and may tell its receiver its place among the processes of the port.
pub fn probe(packet: &[u8]) {
    if let Some(probe) = udp::Probe::parse(packet) {
        assert_eq!(probe.to_bytes(), packet);
    }
}

/// What another process hands on: no datagram is longer than it says.
pub fn handed_on(message: &[u8]) {
    if let Some(datagrams) = udp::parse(message) {
        assert!(datagrams.iter().all(|datagram| datagram.len() <= datagrams.segment));
        let again = [&udp::head(&datagrams)[..], datagrams.bytes].concat();
        assert_eq!(udp::parse(&again), Some(datagrams));
    }
}

//! A ring as another process left it: its first words, and how far it says it has written.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (words, _) = bytes.as_chunks();
    let Some((tail, words)) = words.split_first() else { return };
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    transom_net::fuzzing::ring(u64::from_le_bytes(*tail), &words);
    if let Some(header) = words.first_chunk() {
        transom_net::fuzzing::ring_message(header);
    }
});

//! A ring as another process left it: its first words.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (words, _) = bytes.as_chunks();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    transom_net::fuzzing::ring(&words);
    if let Some(header) = words.first_chunk() {
        transom_net::fuzzing::ring_message(header);
    }
});

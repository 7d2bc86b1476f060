//! A refusal in the registry, as another process left it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (words, _) = bytes.as_chunks();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    if let Some(record) = words.first_chunk() {
        transom_system::fuzzing::registry_record(record);
    }
});

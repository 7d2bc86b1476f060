//! A refusal in the registry, and a call that was refused, as another process left them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (words, _) = bytes.as_chunks();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let Some(record) = words.first_chunk() else { return };
    transom_system::fuzzing::registry_record(record);
    // Once more as a call, which has no reason.
    let mut call = *record;
    call[2] &= !0xff;
    transom_system::fuzzing::registry_record(&call);
});

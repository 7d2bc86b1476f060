//! A ring that another process writes into while it is read: what it writes where, its positions too.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (writes, _) = bytes.as_chunks::<10>();
    let writes: Vec<(u16, u64)> = writes
        .iter()
        .map(|write| {
            let (place, value) = write.split_at(2);
            let place = u16::from_le_bytes(place.try_into().expect("two bytes"));
            (place, u64::from_le_bytes(value.try_into().expect("eight bytes")))
        })
        .collect();
    if !writes.is_empty() {
        transom_net::fuzzing::ring_while_written(&writes);
    }
});

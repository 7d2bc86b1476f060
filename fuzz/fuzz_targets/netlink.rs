//! What the kernel answers about interfaces and addresses.
#![no_main]

libfuzzer_sys::fuzz_target!(|part: &[u8]| transom_system::fuzzing::netlink_answer(part));

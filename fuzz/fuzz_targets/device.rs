//! A whole device fed arbitrary packets: two of its queue pairs, and a script of what is posted to
//! them, of what comes over the wire, and of what happens to it on the way.
//!
//! Nothing is written outside of all rights, every work request completes once and in order, and none
//! is left waiting when the wire is whole again.
#![no_main]

libfuzzer_sys::fuzz_target!(|script: &[u8]| transom_simulation::script::feed(script));

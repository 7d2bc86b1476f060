//! A line of `/proc/self/maps`, which has file names in it.
#![no_main]

libfuzzer_sys::fuzz_target!(|line: &[u8]| transom_system::fuzzing::maps_line(line));

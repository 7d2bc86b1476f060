//! An entry of the file of ports, as another process left it: a port, a connection, or neither.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|words: [u64; 8]| transom_system::fuzzing::ports_entry(&words));

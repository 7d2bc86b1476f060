//! What the processes that share the port tell each other: a probe of one's place, and datagrams that
//! went astray.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    transom_net::fuzzing::probe(bytes);
    transom_net::fuzzing::handed_on(bytes);
});

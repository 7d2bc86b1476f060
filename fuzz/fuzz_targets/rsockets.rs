//! What other sockets of `rsocket(7)` send: how a stream's peer introduces itself, what it says and grants whatever
//! the rules are, and the headers of datagrams.
#![no_main]

use libfuzzer_sys::fuzz_target;
use transom_rdmacm::fuzzing::{Buffered, rsocket_datagram, rsocket_introduction, rsocket_stream};

fuzz_target!(|input: (u16, u16, Vec<(u32, Buffered, u16)>, &[u8])| {
    let (half, credits, steps, bytes) = input;
    rsocket_stream(half, credits, &steps);
    rsocket_introduction(bytes);
    rsocket_datagram(bytes);
});

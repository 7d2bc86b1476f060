//! What must hold of any bytes from outside: a function for each parser of such bytes, and for a whole device. Each takes
//! an input, and panics if something does not hold.
//!
//! The test `arbitrary` gives them some thousand inputs. The fuzz targets in `fuzz` look for inputs that nobody has found
//! yet.
//!
//! Private parsers are reached through modules `fuzzing`, which exist in builds with debug assertions only.
#![cfg(debug_assertions)]

mod cm;
pub mod commands;
mod connections;
mod headers;
mod icrc;
mod packet;

pub use cm::cm;
pub use commands::commands;
pub use connections::connections;
pub use headers::headers;
pub use icrc::icrc;
pub use packet::packet;

use transom_net::faults::Faults;
use transom_rdmacm::fuzzing::{rsocket_datagram, rsocket_introduction, rsocket_stream};

/// A whole device fed arbitrary packets: two of its queue pairs, and a script of what is posted to them, of what comes
/// over the wire, and of what happens to it on the way.
///
/// Nothing is written outside of all rights, every work request completes once and in order, and none is left waiting
/// when the wire is whole again.
pub fn device(script: &[u8]) {
    transom_simulation::script::feed(script);
}

/// The faults that a user asks for: what is refused says why.
pub fn faults(text: &[u8]) {
    let Ok(text) = str::from_utf8(text) else { return };
    if let Err(error) = text.parse::<Faults>() {
        assert!(!error.to_string().is_empty());
    }
}

/// A line of `/proc/self/maps`, which has file names in it.
pub fn maps(line: &[u8]) {
    transom_system::fuzzing::maps_line(line);
}

/// What the kernel answers about interfaces and addresses.
pub fn netlink(part: &[u8]) {
    transom_system::fuzzing::netlink_answer(part);
}

/// What the processes that share the port tell each other: a probe of one's place, and datagrams that went astray.
pub fn port(bytes: &[u8]) {
    transom_net::fuzzing::probe(bytes);
    transom_net::fuzzing::handed_on(bytes);
}

/// An entry of the file of ports, as another process left it: a port, a connection, or neither.
pub fn ports(bytes: &[u8]) {
    if let Some(entry) = words(bytes).first_chunk() {
        transom_system::fuzzing::ports_entry(entry);
    }
}

/// A refusal in the registry, and a call that was refused, as another process left them.
pub fn record(bytes: &[u8]) {
    let words = words(bytes);
    let Some(record) = words.first_chunk() else { return };
    transom_system::fuzzing::registry_record(record);
    // Once more as a call, which has no reason.
    let mut call = *record;
    call[2] &= !0xff;
    transom_system::fuzzing::registry_record(&call);
}

/// A ring as another process left it: its first words.
pub fn ring(bytes: &[u8]) {
    let words = words(bytes);
    transom_net::fuzzing::ring(&words);
    if let Some(header) = words.first_chunk() {
        transom_net::fuzzing::ring_message(header);
    }
}

/// A ring that another process writes into while it is read: what it writes where, its positions too.
pub fn ring_while_written(bytes: &[u8]) {
    let (writes, _) = bytes.as_chunks::<10>();
    let writes = writes.iter().map(|&[p0, p1, ref value @ ..]| {
        let value = value.first_chunk().expect("eight bytes");
        (u16::from_le_bytes([p0, p1]), u64::from_le_bytes(*value))
    });
    let writes: Vec<(u16, u64)> = writes.collect();
    if !writes.is_empty() {
        transom_net::fuzzing::ring_while_written(&writes);
    }
}

/// What other sockets of `rsocket(7)` send: how a stream's peer introduces itself, what it says and grants whatever the
/// rules are, and the headers of datagrams.
///
/// The input begins with half the room of the stream and with credits, two bytes each. Then come steps of 18 bytes.
pub fn rsockets(bytes: &[u8]) {
    rsocket_introduction(bytes);
    rsocket_datagram(bytes);
    let Some((&[h0, h1, c0, c1], steps)) = bytes.split_first_chunk() else { return };
    let (steps, _) = steps.as_chunks::<18>();
    let steps = steps.iter().map(|step| {
        let number = |at: usize| u32::from_le_bytes(*step[at..].first_chunk().expect("four bytes"));
        let address = u64::from(number(8)) << 32 | u64::from(number(4));
        (number(0), (address, number(12)), u16::from_le_bytes([step[16], step[17]]))
    });
    let steps: Vec<_> = steps.collect();
    rsocket_stream(u16::from_le_bytes([h0, h1]), u16::from_le_bytes([c0, c1]), &steps);
}

fn words(bytes: &[u8]) -> Vec<u64> {
    let (words, _) = bytes.as_chunks();
    words.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

//! RoCEv2 values: the content of packets, as types that cannot hold anything that the specification forbids.
//!
//! | module | holds |
//! |---|---|
//! | [`psn`] | packet sequence numbers, 24 bits, compared in a half window |
//! | [`aeth`] | what an acknowledgement says: ACK, RNR NAK with its timer, NAK with its code |
//! | [`packet`] | the packets: BTH, extension headers, payload; parsed and written |
//! | [`icrc`] | the check value that ends a packet, over its IP and UDP headers too |
//! | [`grh`] | the header in front of a received datagram |
//! | [`tmh`] | the headers in front of messages whose tag is matched |
//! | [`cm`] | the messages of connection management |
//!
//! Only the wire link has packets. All links share the other values, because a refusal means the same on each.
#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

#[cfg(test)]
extern crate std;

pub mod aeth;
pub mod cm;
pub mod grh;
pub mod icrc;
pub mod packet;
pub mod psn;
pub mod tmh;

pub use aeth::{NakCode, RnrTimer, Syndrome};
pub use psn::Psn;

//! RoCEv2 values: what crosses a link, as types that cannot hold what the specification forbids.
//!
//! | module | holds |
//! |---|---|
//! | [`psn`] | packet sequence numbers, 24 bits, compared in a half window |
//! | [`aeth`] | what an acknowledgement says: ACK, RNR NAK with its timer, NAK with its code |
//! | [`grh`] | the header in front of a received datagram |
//! | [`tmh`] | the headers in front of messages whose tag is matched |
//!
//! The packets themselves (headers, opcodes, ICRC) join these modules with the wire link; the
//! values here are shared by all links, because a refusal means the same on each.
#![no_std]
#![forbid(unsafe_code)]

pub mod aeth;
pub mod grh;
pub mod packet;
pub mod psn;
pub mod tmh;

pub use aeth::{NakCode, RnrTimer, Syndrome};
pub use psn::Psn;

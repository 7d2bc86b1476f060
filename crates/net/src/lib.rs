//! Moves bytes from process to process: the links, without any knowledge of queue pairs' states.
//!
//! | module | holds |
//! |---|---|
//! | [`peer`] | the local link: another process of this user, with rings of messages to and from it |
//! | [`Peers`] | the peers that this process is attached to |
//! | [`wire`] | the wire link: RoCEv2 packets, their bursts and pace |
//! | [`DevicePort`] | the addresses, and the wire link, which opens when something first goes over it |
//! | [`management`] | management datagrams (queue pair 1) between processes of this host |
//! | [`udp`] | its sockets: port 4791, shared by the processes of a user |
//! | [`faults`] | faults that a user asks for, to see how a program copes |
//! | `copy` | copies between a process's buffers, other processes' memory and rings |
//! | `ring`, `message` | the rings in a segment between two processes, and the messages in them |
//! | `sender_buffer` | long data, which the receiver copies from its sender's buffer |
//! | [`Watched`] | peers whose rings every polling thread looks at |
//! | `stalled` | queue pairs that found no room, or are too early |
//!
//! Bytes go in, arrivals come out. The caller decides where they go and what they do, by [`Receiver`] or by the
//! function that it gives [`Peer::receive`].

#![deny(clippy::print_stderr, clippy::print_stdout)]

mod copy;
mod device_port;
pub mod faults;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod fuzzing;
pub mod management;
mod message;
pub mod peer;
mod peers;
mod ring;
mod sender_buffer;
mod stalled;
pub mod udp;
mod watched;
pub mod wire;

pub use copy::{Gather, RingBytes, Scatter, Where};
pub use device_port::{DevicePort, PortOptions};
pub use message::{Answer, Arrival};
pub use peer::{Arrived, Extent, MessageData, Peer, Reach, RecordData, Replying};
pub use peers::{OutOfReach, Peers};
pub use ring::MAX_PAYLOAD;
pub use sender_buffer::{MAX_COPIED, Reference, SenderBuffer};
pub use watched::Watched;
pub use wire::{
    BurstBuffer, Filling, Instruments, Messenger, Network, NoRoom, Observer, Path, Receiver,
    Reception, Run, TooLong, Wire,
};

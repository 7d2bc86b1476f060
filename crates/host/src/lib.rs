//! Runs a device on this machine: memory, threads, links, and the registry of processes.
//!
//! | module | holds |
//! |---|---|
//! | [`adapter`] | the device of this process: what the C ABI and others call |
//! | [`addresses`] | the addresses of this network namespace: the GID table |
//! | [`objects`] | protection domains, regions, windows, completion queues, queue pairs |
//! | [`link`] | loopback, local and wire links: rings, packets, sockets |
//! | [`progress`] | who does the work when nobody polls: one thread, asleep while idle |
//! | [`registry`] | the processes of this user that run a device, their refusals, their packet counters |
//! | [`segment`] | the memory one process shares with the others |
//! | [`fork`] | what a forked child must not do to its parent |
//! | [`capture`] | what crosses the links, written to a file for Wireshark |
//! | [`faults`] | what a user wants to go wrong, to see how a program copes |
//! | [`guid()`] | what tells this host's device from those of others |
//! | [`memory`] | copies that end in an error, not a crash, when memory is gone |
//!
//! Unsafe code lives here, at the C ABI, in `paths`, and in a few lines of `cli`; each block says why it
//! is sound.

pub mod adapter;
pub mod addresses;
pub mod capture;
mod clock;
pub mod faults;
pub mod fork;
#[cfg(fuzzing)]
pub mod fuzzing;
mod guid;
pub mod link;
mod lock;
pub mod memory;
pub mod objects;
pub mod progress;
pub mod registry;
pub mod segment;

pub use adapter::{Adapter, Copying, Limits, OpenError, Options};
pub use addresses::LOOPBACK_GID;
pub use guid::guid;

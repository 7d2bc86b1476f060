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
//! | [`clock`] | the clocks of the machine |
//! | [`environment`] | what the environment says, where it may be obeyed |
//! | [`file_limit`] | files that must not grow without end |
//! | [`fork`] | what a forked child must not do to its parent |
//! | [`capture`] | what crosses the links, written to a file for Wireshark |
//! | [`faults`] | what a user wants to go wrong, to see how a program copes |
//! | [`guid()`] | what tells this host's device from those of others |
//! | [`object_counts`] | how many objects each process has |
//! | [`failure`] | what a panic becomes: an error of the device |
//! | [`memory`] | copies that end in an error, not a crash, when memory is gone |
//! | `say` | sentences on standard error, which never are the program's trouble |
//!
//! Unsafe code lives here, at the C ABI, in `paths`, and in a few lines of `cli`; each block says why it
//! is sound.

#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod adapter;
pub mod addresses;
pub mod capture;
pub mod clock;
pub mod environment;
pub mod failure;
pub mod faults;
pub mod file_limit;
pub mod fork;
#[cfg(fuzzing)]
pub mod fuzzing;
mod guid;
pub mod link;
mod lock;
pub mod memory;
pub mod object_counts;
pub mod objects;
pub mod progress;
pub mod registry;
mod say;
pub mod segment;
mod signals;

pub use adapter::{Adapter, Copying, Limits, OpenError, Options};
pub use addresses::LOOPBACK_GID;
pub use guid::guid;
pub use say::say;

//! Runs a device on this machine: objects, links and threads.
//!
//! | module | holds |
//! |---|---|
//! | [`events`] | what a program waits for on a descriptor |
//! | [`device`] | the device under its objects: process, port, peers, keys, work |
//! | [`connections`] | the connection manager of this process, run on its device |
//! | [`objects`] | protection domains, regions, windows, completion queues, queue pairs |
//! | `progress` | who does the work when nobody polls: one thread, asleep while idle |
//! | `process` | what becomes of a device when its process forks, exits or fails |
//! | [`capture`] | what crosses the links, written to a file for Wireshark |
//! | `opening` | putting a device together, and setting it going |
//!
//! Each imports only those above it in this list.
//!
//! Of unsafe code here and elsewhere each block says why it is sound.

#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod capture;
pub mod connections;
pub mod device;
pub mod events;
pub mod objects;
mod opening;
mod process;
mod progress;
#[cfg(test)]
mod testing;

pub use device::{Copying, Limits, Memory, OpenError, Options};
pub use objects::Adapter;

//! Runs a device on this machine: objects, links and threads.
//!
//! | module | holds |
//! |---|---|
//! | [`events`] | events that a program waits for on a descriptor |
//! | [`device`] | the device under its objects: process, port, peers, keys, work |
//! | [`connections`] | the connection manager of this process, run on its device |
//! | [`objects`] | protection domains, regions, windows, completion queues, queue pairs |
//! | `progress` | the work when nobody polls: one thread, asleep while idle |
//! | `process` | the device when its process forks, exits or fails |
//! | [`capture`] | the traffic of the links, written to a file for Wireshark |
//! | `opening` | assembling a device and starting it |
//!
//! Each module imports only those above it in this list.
//!
//! Unsafe code stands here and in a few other crates. Each block says why it is sound.

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

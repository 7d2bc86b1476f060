//! Runs a device on this machine: objects, links and threads.
//!
//! | module | holds |
//! |---|---|
//! | [`adapter`] | the device of this process: what the C ABI and others call |
//! | [`objects`] | protection domains, regions, windows, completion queues, queue pairs |
//! | `opening` | putting a device together, and setting it going |
//! | `progress` | who does the work when nobody polls: one thread, asleep while idle |
//! | [`capture`] | what crosses the links, written to a file for Wireshark |
//!
//! Of unsafe code here and elsewhere each block says why it is sound.

#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod adapter;
pub mod capture;
pub mod objects;
mod opening;
mod progress;

pub use adapter::{Adapter, Copying, Limits, OpenError, Options};

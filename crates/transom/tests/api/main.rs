//! The tests of the API: one program, so that the device is linked once.
//!
//! Tests share its process. A test of what belongs to the whole process (its descriptors, a fault of its device, a
//! fork, a subscriber) runs again in one of its own: [`common::alone`].

mod common;

mod acceptances;
mod batches;
mod completions;
mod connection_faults;
mod connections;
mod datagrams;
mod descriptors;
mod events;
#[cfg(feature = "software")]
mod examples;
mod failed_device;
mod forked;
mod messages;
mod processes;
mod provider;
mod regions;
mod shared_receives;
mod signals;
mod threads;
mod windows;
mod xrc;

//! Two devices on a simulated network, in virtual time, checked against a model of what must happen.
//!
//! The devices are those of `transom-device`, packets pass between them as bytes. A [`Plan`] follows
//! from a seed; [`run`] carries it out and says what was wrong first, if anything was.
//!
//! | module | holds |
//! |---|---|
//! | [`plan`] | what a seed stands for |
//! | [`program`] | what the programs on the devices do |
//! | [`endpoint`] | a queue pair at work: how it is called, and what it must have around it |
//! | [`device`], [`node`] | memory and keys; a device in the network, with queue pairs, clock and link |
//! | [`port`] | what is around a queue pair of a node, shown to the model |
//! | [`network`], [`faults`] | packets on their way, and what happens to them by chance |
//! | [`clock`] | each node's time |
//! | [`world`] | the events, in order |
//! | [`model`] | what must happen, kept without the device's code |
//!
//! Besides, for the device's tests and fuzzers, its halves alone, where a test plays everything else:
//! [`send_queue`] is one that sends, [`packet_stage`] one that receives packets.

mod advance;
mod arrival;
pub mod clock;
pub mod device;
pub mod endpoint;
pub mod faults;
pub mod model;
pub mod network;
pub mod node;
pub mod packet_stage;
pub mod plan;
pub mod port;
pub mod program;
pub mod random;
mod run;
pub mod send_queue;
pub mod world;

pub use plan::Plan;
pub use run::{Outcome, run, shrink};

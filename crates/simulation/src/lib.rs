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
//! | [`packet`] | packets that are kept, and as bytes |
//! | [`network`], [`faults`] | packets on their way, and what happens to them by chance |
//! | [`clock`] | each node's time |
//! | [`world`] | the events, in order |
//! | [`model`] | what must happen, kept without the device's code |
//!
//! The tests and the fuzzer of the device's packets use the same [`endpoint`] and the same [`network`],
//! which is also that of the connection managers' simulation:
//!
//! | module | holds |
//! |---|---|
//! | [`host`], [`environment`] | a queue pair and what is around it, where a test plays all else |
//! | [`pair`] | two hosts and the network between them |
//! | [`script`] | what a fuzzer has happen to them |

mod advance;
mod arrival;
pub mod clock;
pub mod device;
pub mod endpoint;
pub mod environment;
pub mod faults;
pub mod host;
pub mod model;
pub mod network;
pub mod node;
pub mod packet;
pub mod pair;
pub mod plan;
pub mod port;
pub mod program;
pub mod random;
mod run;
pub mod script;
pub mod world;

pub use plan::Plan;
pub use run::{Outcome, run, shrink};

//! Conformance: a test for every rule of `spec/rules.md`, and the table that says where it is.

// Tests pass C's pointers as C does. If every helper were unsafe, the tests would be hard to read.
#![allow(clippy::not_unsafe_ptr_arg_deref)]

pub mod access;
pub mod address_handles;
pub mod c_programs;
pub mod captured;
pub mod checked;
pub mod connections;
pub mod coverage;
pub mod datagrams;
pub mod documents;
pub mod events;
pub mod explained;
pub mod exposed;
pub mod extended;
pub mod extended_qp;
pub mod forger;
pub mod harness;
pub mod litmus;
pub mod memory;
pub mod modules;
pub mod port_of_others;
pub mod processes;
pub mod programs;
pub mod queues;
pub mod random;
pub mod shared_receive;
pub mod spaces;
pub mod tag_matching;
pub mod timeline;
mod tokens;
pub mod watching;
pub mod xrc;

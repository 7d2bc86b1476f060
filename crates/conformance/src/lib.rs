//! Conformance: one test for every rule of `spec/rules.md`, and the table that says where.

pub mod access;
pub mod coverage;
pub mod harness;
pub mod processes;
pub mod queues;
pub mod stage;

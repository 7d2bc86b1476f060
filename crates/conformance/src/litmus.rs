//! Litmus tests of memory order: the page `spec/ordering.md`, and a machine that finds every outcome of each.
//!
//! - [`page`] reads the page: programs, and tables of outcomes.
//! - [`program`] is the language of the programs.
//! - [`rules`] says what each authority promises.
//! - [`machine`] tries every interleaving that these rules leave.

pub mod machine;
pub mod page;
pub mod program;
pub mod rules;

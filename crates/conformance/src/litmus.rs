//! Litmus tests of memory order: the page `spec/ordering.md`, and a machine that finds every outcome of each.
//!
//! - [`page`] reads the page: programs, and tables of outcomes.
//! - [`program`] is the language of the programs.
//! - [`rules`] says what each authority promises.
//! - [`machine`] tries every interleaving that these rules leave.
//! - [`stage`] carries a program out on the device.
//! - [`reached`] counts which outcomes the device reaches, plainly and in rehearsals.

pub mod machine;
pub mod page;
pub mod program;
pub mod reached;
pub mod rules;
pub mod stage;

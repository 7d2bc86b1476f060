//! What `transom check` finds, and how: the kinds of mistakes, the ledger of what a program has asked for, and the
//! records that a checked process leaves for the command.
//!
//! | module | holds |
//! |---|---|
//! | [`kind`] | the kinds of findings and notes, with a page on each |
//! | [`call`] | a call of the program: who called, from where |
//! | [`record`] | what a process writes, and the command reads |
//! | [`ledger`] | objects, work and completions, as the program sees them |
//!
//! Nothing here touches a program's memory, or asks the system for anything: `transom-ibverbs` tells the ledger what
//! the program calls, and writes what it answers.

#![forbid(unsafe_code)]

pub mod call;
pub mod kind;
pub mod ledger;
pub mod record;

pub use call::Call;
pub use kind::{Gravity, Kind};
pub use ledger::Ledger;

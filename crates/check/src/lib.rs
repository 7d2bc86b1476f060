//! The mistakes that `transom check` finds, and how: the kinds of mistakes, the ledger of a program's calls, and the
//! records that a checked process leaves for the command.
//!
//! | module | holds |
//! |---|---|
//! | [`kind`] | the kinds of findings and notes, with a page on each |
//! | [`call`] | a call of the program: its thread and its callers |
//! | [`mark`] | how full queues were |
//! | [`record`] | the records that a process writes and the command reads |
//! | [`ledger`] | objects, work and completions, as the program sees them |
//!
//! Nothing here touches a program's memory, or asks the system for anything. `transom-ibverbs` reports the program's
//! calls to the ledger, and writes the mistakes that it returns.

#![forbid(unsafe_code)]

pub mod call;
pub mod kind;
pub mod ledger;
pub mod mark;
pub mod record;

pub use call::Call;
pub use kind::{Gravity, Kind};
pub use ledger::Ledger;

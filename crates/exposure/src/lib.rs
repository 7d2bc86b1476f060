//! The account of the memory that a program opens to its peers: from when to when, to whom, with which rights, and what
//! they use of it. `transom exposure` reports it.
//!
//! | module | holds |
//! |---|---|
//! | [`rights`] | rights of peers, and their operations |
//! | [`doors`] | queue pairs that let peers in, and how long a set of rights was of use to anybody |
//! | [`touched`] | the bytes that peers touched, in fixed room |
//! | [`opening`] | a region or a bound window while it is open |
//! | [`sums`] | bytes × time: open, used, and what would close the rest |
//! | [`audit`] | the account of a process |
//! | [`cell`] | its form in memory that outlives the process |
//! | [`names`] | processes and call sites, as text |
//! | [`report`] | all processes of a run |
//!
//! Nothing here touches a program's memory, or asks the system for anything. `transom-ibverbs` tells an [`Audit`] what
//! happens, and keeps its cells in a file that it shares with the command.

#![forbid(unsafe_code)]

pub mod audit;
pub mod cell;
pub mod doors;
pub mod names;
pub mod opening;
pub mod report;
pub mod rights;
pub mod sums;
pub mod touched;

pub use audit::Audit;
pub use rights::{Deed, Rights};

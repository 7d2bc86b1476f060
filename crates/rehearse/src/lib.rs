//! The provocations of `transom rehearse`, and the plan that decides when each happens.
//!
//! | module | holds |
//! |---|---|
//! | [`provocation`] | the provocations: everything that an adapter may do and Transom does not do by itself |
//! | [`order`] | whose promises of memory order are kept |
//! | [`place`] | the place of a provocation: the process, the object, and the number of its operation |
//! | [`profile`] | the adapters that a rehearsal can stand for |
//! | [`plan`] | the plan of one run: from a seed and a place to a decision |
//!
//! Nothing here asks the system for anything. The same plan and the same place always give the same decision, whatever
//! the threads of the program do.

#![forbid(unsafe_code)]

pub mod order;
pub mod place;
pub mod plan;
pub mod profile;
pub mod provocation;

pub use order::Order;
pub use place::Place;
pub use plan::{Decisions, Plan};
pub use profile::{Feature, Profile};
pub use provocation::{Provocation, Sort};

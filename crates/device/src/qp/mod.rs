//! Queue pairs: numbers, states and their table, and the summary that initiators read.

mod number;
mod state;
mod summary;

pub use number::QpNumber;
pub use state::{Attributes, Mask, ModifyError, QpState, Service, check_transition};
pub use summary::{
    Bypass, Gate, Look, Peering, Presence, QpSummary, QpTable, SharedQueue, SrqSummary,
};

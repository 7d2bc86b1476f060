//! Transport: what makes a link reliable.
//!
//! [`retry`] counts and times retries for every link. Packets, PSNs and acknowledgements for the
//! wire link take their place beside it, over the same [`execution`](crate::execution): a packet is
//! a segment, and a multi-packet message a sequence of them, each checked again.

mod outlet;
mod response;
pub mod train;
pub mod retry;

pub use outlet::{Outlet, ResponseTrain};

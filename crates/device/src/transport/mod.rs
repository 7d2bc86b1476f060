//! Transport: what makes a link reliable.
//!
//! [`retry`] counts and times retries for every link. Packets, PSNs and acknowledgements for the
//! wire link take their place beside it, over the same [`execution`](crate::execution): packets that
//! come together are a segment, and a message a sequence of them, each checked again. [`responder`]
//! takes requests in packets, and [`congestion`] tells senders of marked ones.

pub mod congestion;
mod outlet;
pub mod responder;
pub mod retry;

pub use outlet::{Outlet, ResponseTrain};

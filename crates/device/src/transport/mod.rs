//! Transport: the part of [`execution`](crate::execution) that only links with packets need.
//!
//! A segment of a request becomes a [`burst`] of packets. Packets that come together become a segment again, and a
//! message is a sequence of them, each checked again. [`responder`] takes requests in packets, `requester` answers, and
//! [`congestion`] tells senders of marked ones. The [`Requester`](crate::execution::Requester) has the numbers of the
//! packets on their way, and their window. It computes them from the progress of each work request, so the two cannot
//! disagree.

pub mod burst;
pub mod congestion;
mod requester;
pub mod responder;
mod response;

pub use response::{NextAnswer, ReadAnswer, ResponseBurst, ResponsePackets};

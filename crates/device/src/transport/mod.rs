//! Transport: what a link that carries packets needs over [`execution`](crate::execution).
//!
//! A segment of a request is a [`train`] of packets; packets that come together are a segment again, and
//! a message a sequence of them, each checked anew. [`responder`] takes requests in packets, and
//! [`congestion`] tells senders of marked ones. Numbers, retries and the send window are the
//! requester's, below.

pub mod congestion;
pub mod responder;
mod response;
pub mod train;

pub use response::{ReadAnswer, ResponseTrain};

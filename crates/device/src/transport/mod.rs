//! Transport: what a link that carries packets needs over [`execution`](crate::execution).
//!
//! A segment of a request is a [`burst`] of packets; packets that come together are a segment again, and
//! a message a sequence of them, each checked anew. [`responder`] takes requests in packets, `requester`
//! answers, and [`congestion`] tells senders of marked ones. The numbers of what is under way, and the
//! window that it has to keep to, are the [`Requester`](crate::execution::Requester)'s: it reckons them from
//! how far each work request has come, so that they cannot say otherwise than the work requests.

pub mod burst;
pub mod congestion;
mod requester;
pub mod responder;
mod response;

pub use response::{NextAnswer, ReadAnswer, ResponseBurst, ResponsePackets};

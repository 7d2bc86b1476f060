//! Transport: what makes a link reliable.
//!
//! [`retry`] counts and times retries for every link. What a link that carries packets needs besides
//! lies over the same [`execution`](crate::execution): a segment of a request is a [`train`] of
//! packets, of which a [`window`] lets so many be on their way; packets that come together are a
//! segment again, and a message a sequence of them, each checked anew. [`responder`] takes requests
//! in packets, and [`congestion`] tells senders of marked ones.

pub mod congestion;
mod outlet;
pub mod responder;
mod response;
pub mod retry;
pub mod train;
pub mod window;

pub use outlet::{Outlet, ResponseTrain};

use transom_wire::packet::Transport;

use crate::qp::Service;

/// Whether packets of this kind are for queue pairs of this service (rule OP-32).
pub fn serves(service: Service, transport: &Transport) -> bool {
    match transport {
        Transport::Rc => service == Service::Rc,
        Transport::Uc => service == Service::Uc,
        Transport::Ud { .. } => service == Service::Ud,
        Transport::Xrc { .. } => matches!(service, Service::XrcInitiator | Service::XrcTarget),
    }
}

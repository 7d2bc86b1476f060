//! librdmacm's ids and event channels: what connections are made of.

mod address;
mod channel;
mod id;
mod watch;

pub(crate) use channel::{Channel, Event};
pub(crate) use id::{Id, Offer};
pub(crate) use watch::wake_when_readable;

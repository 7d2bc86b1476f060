//! librdmacm's ids and event channels, from which connections are made.

mod address;
mod channel;
mod id;
mod signal;
mod watch;

pub(crate) use channel::{Channel, Event};
pub(crate) use id::{Id, Offer};
pub(crate) use signal::Signal;
pub(crate) use watch::{Waiter, wait_until_readable};

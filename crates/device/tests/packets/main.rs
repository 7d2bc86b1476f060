//! Queue pairs alone, where the test plays the network, the peer and the clock.
#![cfg(not(loom))]

mod messages;
mod origin;
mod plain;
mod requester;
mod responder;
mod target;

//! The sockets of the wire link and the device's addresses, each test in a network namespace of its
//! own, for there is one port 4791 in each.

#![allow(clippy::disallowed_methods, reason = "a test may read the environment")]

mod addresses;
mod groups;
mod namespace;
mod peer;
mod port;
mod sharing;
mod speed;
mod undelivered;

/// What the processes run that [`peer::Peer`] starts; nothing in a plain run of the tests.
#[test]
fn peer_process() {
    peer::run_if_asked();
}

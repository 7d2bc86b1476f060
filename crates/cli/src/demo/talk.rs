//! The messages of owner and guest besides RDMA.

use serde::{Deserialize, Serialize};
use transom::{Endpoint, Grant, RemoteSlice};

/// An order to the guest.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Make a queue pair and connect it to the owner's.
    Connect(Endpoint),
    /// Read, whether it is granted or not.
    Read(RemoteSlice),
    /// Write to the start of a grant.
    Write(Grant, String),
    /// Send yourself a message, and end the queue pair at once.
    Lose,
    /// Open a region, with this text in it.
    Lend(String),
    /// Put another text there.
    Reuse(String),
}

/// The guest's answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// Connected. The guest's endpoint.
    Connected(Endpoint),
    /// The bytes that were read, as text.
    Read(String),
    /// Written.
    Written,
    /// The region is open.
    Lent(Grant),
    /// A request was refused with `IBV_WC_REM_ACCESS_ERR`.
    Refused,
    /// The queue pair has ended.
    Ended,
    /// The guest could not do its part.
    Trouble(String),
}

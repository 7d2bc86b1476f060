//! What owner and guest tell each other besides RDMA: one JSON value a line.

use crate::failure::{Failure, Result};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io::{BufRead, Write};
use transom::{Endpoint, Grant, RemoteSlice};

/// What the guest is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Make a queue pair and connect it to the owner's.
    Connect(Endpoint),
    /// Read, whether it is granted or not.
    Read(RemoteSlice),
    /// Write to the start of a grant.
    Write(Grant, String),
}

/// How it went.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// Connected; this is where.
    Connected(Endpoint),
    /// The bytes that were read, as text.
    Read(String),
    /// Written.
    Written,
    /// A request was refused with `IBV_WC_REM_ACCESS_ERR`.
    Refused,
    /// The guest could not do its part.
    Trouble(String),
}

pub(super) fn tell(to: &mut impl Write, value: &impl Serialize) -> Result {
    let line = serde_json::to_string(value).map_err(Failure::new)?;
    writeln!(to, "{line}").and_then(|()| to.flush()).map_err(parted)
}

/// The next value; `None` if the other side has ended.
pub(super) fn hear<T: DeserializeOwned>(from: &mut impl BufRead) -> Result<Option<T>> {
    let mut line = String::new();
    if from.read_line(&mut line).map_err(parted)? == 0 {
        return Ok(None);
    }
    serde_json::from_str(&line).map(Some).map_err(|error| {
        Failure::new(format_args!("the other process said what is not understood: {error}"))
    })
}

fn parted(error: std::io::Error) -> Failure {
    Failure::new(format_args!("the other process of the demo is gone: {error}; run it again"))
}

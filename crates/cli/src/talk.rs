//! The messages between this command's processes besides RDMA: one JSON value a line.

use std::io::{BufRead, Write};

use serde::{Serialize, de::DeserializeOwned};

use crate::failure::{Failure, Result};

pub(crate) fn tell(to: &mut impl Write, value: &impl Serialize) -> Result {
    let line = serde_json::to_string(value).map_err(Failure::new)?;
    writeln!(to, "{line}").and_then(|()| to.flush()).map_err(parted)
}

/// The next value. `None` if the other side has ended.
pub(crate) fn hear<T: DeserializeOwned>(from: &mut impl BufRead) -> Result<Option<T>> {
    let mut line = String::new();
    if from.read_line(&mut line).map_err(parted)? == 0 {
        return Ok(None);
    }
    serde_json::from_str(&line)
        .map(Some)
        .map_err(|error| Failure::new(format_args!("cannot understand the other process: {error}")))
}

fn parted(error: std::io::Error) -> Failure {
    Failure::new(format_args!("the other process is gone: {error}; run it again"))
}

//! What can go wrong, as a program has it that uses `thiserror`.

use std::io;
use transom::{Error, Refused, Status};

#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error(transparent)]
    Device(#[from] Error),
    #[error("tokio: {0}")]
    Runtime(#[from] io::Error),
    #[error("the server's acceptance has no grant")]
    NoGrant,
}

/// What was taken and is given back is dropped here.
impl<T> From<Refused<T>> for StoreError {
    fn from(refused: Refused<T>) -> Self {
        Self::Device(refused.error)
    }
}

impl StoreError {
    /// The status of a request that was carried out and failed; any other error is not for who asks.
    pub(crate) fn status(self) -> Result<Status, Self> {
        match self {
            Self::Device(Error::Work(error)) => Ok(error.status),
            other => Err(other),
        }
    }
}

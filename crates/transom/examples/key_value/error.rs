//! The errors of a program that uses `thiserror`.

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

/// Drops the object that the call gave back.
impl<T> From<Refused<T>> for StoreError {
    fn from(refused: Refused<T>) -> Self {
        Self::Device(refused.error)
    }
}

impl StoreError {
    /// The status of a request that failed on the device. Any other error is returned as it is.
    pub(crate) fn status(self) -> Result<Status, Self> {
        match self {
            Self::Device(Error::Work(error)) => Ok(error.status),
            other => Err(other),
        }
    }
}

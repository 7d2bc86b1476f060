//! One of two processes that measure together, as the workloads see it.

use std::io::BufReader;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use serde::Serialize;
use serde::de::DeserializeOwned;
use transom_abi::ibv_mw;

use super::end::{Card, End};
use super::setup::Side;
use crate::failure::{Failure, Result};
use crate::talk::{hear, tell};

/// The state of such a process.
pub(super) struct Process {
    pub(super) side: Side,
    pub(super) end: End,
    /// The other end.
    pub(super) peer: Card,
    pub(super) talk: Talk,
    /// The far end waits for the first, the near end for the second.
    pub(super) bells: [OwnedFd; 2],
    /// Idle windows.
    pub(super) windows: Vec<*mut ibv_mw>,
}

/// The talk with the other end.
pub(super) struct Talk(BufReader<UnixStream>);

impl Talk {
    pub(super) fn new(socket: UnixStream) -> Self {
        Self(BufReader::new(socket))
    }

    /// The next value. `None` if the other end has ended.
    pub(super) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        hear(&mut self.0)
    }

    pub(super) fn tell(&mut self, value: &impl Serialize) -> Result {
        tell(self.0.get_mut(), value)
    }

    pub(super) fn hear<T: DeserializeOwned>(&mut self) -> Result<T> {
        self.next()?.ok_or_else(|| Failure::new("the other process of the two has ended"))
    }
}

impl Process {
    /// Waits until the other end is here too.
    pub(super) fn meet(&mut self) -> Result {
        self.talk.tell(&())?;
        self.talk.hear()
    }

    pub(super) fn is_near(&self) -> bool {
        self.side == Side::Near
    }
}

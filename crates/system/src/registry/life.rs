//! How one process learns that another has ended.
//!
//! The other's pipe hangs up (`presence`). But the question may find no answer: `poll(2)` fails where the
//! program has lowered the limit of descriptors below what is asked about, or there is no memory; and the program may
//! have closed ours. Nobody is dead for that. Then the lock is asked (`lock`), and whoever cannot be asked by that
//! either lives.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec};
use transom_device::protection::Announcer;

use super::file::Registry;
use crate::descriptor::Identity;

/// The stay of another process, as this one watches it.
pub struct Life {
    of: Announcer,
    pipe: Arc<OwnedFd>,
    /// By which the pipe is known again.
    identity: Identity,
    registry: &'static Registry,
}

impl Life {
    pub(super) fn new(
        of: Announcer,
        pipe: OwnedFd,
        registry: &'static Registry,
    ) -> io::Result<Self> {
        Ok(Self { of, identity: Identity::of(&pipe)?, pipe: Arc::new(pipe), registry })
    }

    /// Whose it is.
    pub fn process(&self) -> Announcer {
        self.of
    }

    /// Readable when it may have ended: then [`Life::has_ended`] is to be asked.
    pub fn descriptor(&self) -> &Arc<OwnedFd> {
        &self.pipe
    }

    /// Whether it has ended: its process has, has called `exec`, or closed its device. It may hold locks for
    /// another moment.
    pub fn has_ended(&self) -> bool {
        let mut told = [PollFd::new(&*self.pipe, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match rustix::event::poll(&mut told, Some(&now)) {
            Ok(0) => false,
            Ok(_)
                if told[0].revents().contains(PollFlags::HUP)
                    && self.identity.is_behind(&*self.pipe) =>
            {
                true
            }
            Ok(_) | Err(_) => !self.registry.is_alive(self.of),
        }
    }
}

//! How one process learns that another has ended.
//!
//! The other's pipe hangs up (`presence`). But polling it may fail: `poll(2)` fails if the program has lowered its
//! limit of descriptors below the number polled, or if there is no memory. The program may also have closed our
//! descriptor. Then the lock decides (`lock`). If that cannot be asked either, the process counts as alive.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec};
use transom_device::protection::Announcer;

use super::file::Registry;
use super::presence;
use crate::descriptor::Identity;

/// The stay of another process, watched by this one.
pub struct Life {
    of: Announcer,
    pipe: Arc<OwnedFd>,
    /// Recognizes the pipe.
    identity: Identity,
    registry: &'static Registry,
}

impl Registry {
    /// Tells when this stay ends: its process ends, calls `exec`, or closes its device. An error if it has ended
    /// already.
    pub fn watch(&'static self, process: Announcer) -> io::Result<Life> {
        let pipe = presence::watch(&self.life_path(process.slot))?;
        // The pipe was there before the stay began. So it belongs to this stay if the stay goes on.
        match self.is_alive(process) {
            true => Ok(Life {
                of: process,
                identity: Identity::of(&pipe)?,
                pipe: Arc::new(pipe),
                registry: self,
            }),
            false => Err(io::Error::other("the process has ended or closed its device")),
        }
    }
}

impl Life {
    /// Whose it is.
    pub fn process(&self) -> Announcer {
        self.of
    }

    /// Readable when it may have ended. Then ask [`Life::has_ended`].
    pub fn descriptor(&self) -> &Arc<OwnedFd> {
        &self.pipe
    }

    /// Whether it has ended: its process has ended, has called `exec`, or has closed its device. It may hold locks for
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

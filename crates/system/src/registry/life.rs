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
    /// Tells when this stay ends: its process ends, calls `exec`, or closes its device. `None` if it has ended already.
    /// The process may hold locks for another moment.
    ///
    /// # Errors
    ///
    /// The system's error. The stay may go on.
    pub fn watch(&'static self, process: Announcer) -> io::Result<Option<Life>> {
        let opened = presence::watch(&self.life_path(process.slot));
        // The pipe was there before the stay began. So it belongs to this stay if the stay goes on.
        if !self.is_alive(process) {
            return Ok(None);
        }
        let pipe = opened?;
        // The kernel closes the files of a process that ends one after the other: the pipe may go before the lock.
        if !presence::has_writer(&pipe) {
            return Ok(None);
        }
        let identity = Identity::of(&pipe)?;
        Ok(Some(Life { of: process, identity, pipe: Arc::new(pipe), registry: self }))
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    /// The kernel closes the files of a process that ends one after the other. Another process may begin to watch it
    /// in between.
    #[test]
    fn a_process_that_has_lost_its_pipe_has_ended_for_those_who_begin_to_watch_it() {
        let registry = Registry::open().expect("a registry");
        let claim = registry.claim(0, 0).expect("a slot");
        let watch = || registry.watch(claim.announcer()).expect("it can be watched");
        let early = watch().expect("it is there");
        assert!(!early.has_ended());
        let other = std::fs::File::open("/dev/null").expect("it can be opened");
        // SAFETY: both are open, and `life` stays so, as another file.
        unsafe { libc::dup3(other.as_raw_fd(), claim.presence.life.as_raw_fd(), libc::O_CLOEXEC) };
        assert!(early.has_ended());
        assert!(registry.is_alive(claim.announcer()), "it has its lock");
        assert!(watch().is_none());
    }
}

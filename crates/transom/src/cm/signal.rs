//! A descriptor for all threads and tasks that wait for events of one channel.

use crate::cm::watch;
use crate::{Error, Result};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A descriptor that is readable while a channel has an event, and forever after the last event.
///
/// One waiter takes each event. If an event concerns all, the other waiters must see it too. So must a thread that
/// begins to wait just then, and a reactor.
pub(crate) struct Signal {
    epoll: OwnedFd,
    last: OwnedFd,
}

impl Signal {
    /// Makes the signal of this channel.
    pub(crate) fn of(channel: BorrowedFd<'_>) -> Result<Self> {
        let make = || {
            let last = eventfd(0, EventfdFlags::CLOEXEC)?;
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            for descriptor in [channel, last.as_fd()] {
                let data = epoll::EventData::new_u64(0);
                epoll::add(&epoll, descriptor, data, epoll::EventFlags::IN)?;
            }
            Ok(Self { epoll, last })
        };
        make().map_err(|errno: Errno| Error::Verb {
            verb: "epoll_create1",
            subject: "watching the channel of a listener".to_owned(),
            errno: errno.raw_os_error(),
        })
    }

    /// Records that the last event has come. The descriptor stays readable.
    pub(crate) fn stay(&self) {
        // A write to an empty counter cannot fail.
        let _ = rustix::io::write(&self.last, &1_u64.to_ne_bytes());
    }
}

impl AsFd for Signal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        watch::forget(self.epoll.as_raw_fd());
    }
}

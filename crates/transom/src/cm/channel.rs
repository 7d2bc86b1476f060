//! Event channels; see `rdma_create_event_channel(3)`.

use crate::cm::watch;
use crate::error::{check, last_error, non_null};
use crate::process::Process;
use crate::rdma_cm::ConnectionCalls;
use crate::{Error, Provider, Result};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::{ptr, slice};
use transom_abi::*;

/// The event channel of one id. Fetching does not wait.
pub(crate) struct Channel {
    pub(crate) raw: *mut rdma_event_channel,
    pub(crate) calls: &'static ConnectionCalls,
    /// The process that has it, and its id.
    pub(crate) process: Process,
}

// SAFETY: librdmacm is thread-safe. Any thread may use and destroy a channel.
unsafe impl Send for Channel {}
// SAFETY: as for `Send`.
unsafe impl Sync for Channel {}

/// An event of an id.
pub(crate) struct Event {
    pub(crate) kind: rdma_cm_event_type,
    pub(crate) status: c_int,
    /// The bytes from the peer's program, at the length that the connection manager carries.
    pub(crate) private_data: Vec<u8>,
    /// For a connection: how many reads at once the peer wants to make, and how many it allows.
    pub(crate) reads: (u8, u8),
    /// For a request: its id. It belongs to this channel until it is moved to another.
    pub(crate) id: *mut rdma_cm_id,
    /// For datagrams: their destination.
    pub(crate) datagrams: Option<rdma_ud_param>,
}

impl Channel {
    pub(crate) fn create(provider: &Provider) -> Result<Self> {
        const CREATING: &str = "creating an event channel";
        let (calls, process) = (provider.connections()?, Process::this()?);
        // SAFETY: it has no arguments.
        let raw = unsafe { (calls.rdma_create_event_channel)() };
        let raw = non_null("rdma_create_event_channel", CREATING, raw)?.as_ptr();
        let channel = Self { raw, calls, process };
        fcntl_getfl(&channel)
            .and_then(|flags| fcntl_setfl(&channel, flags | OFlags::NONBLOCK))
            .map_err(|errno| failed("fcntl", CREATING, errno))?;
        Ok(channel)
    }

    /// Fetches the next event, if there is one. `datagrams` says whether its id is for datagrams.
    pub(crate) fn next(&self, datagrams: bool) -> Result<Option<Event>> {
        let mut event = ptr::null_mut();
        loop {
            // SAFETY: the channel is open and the place to write is valid.
            if unsafe { (self.calls.rdma_get_cm_event)(self.raw, &raw mut event) } == 0 {
                break;
            }
            let error = last_error("rdma_get_cm_event", "fetching an event");
            match error.errno().map(Errno::from_raw_os_error) {
                Some(Errno::AGAIN) => return Ok(None),
                Some(Errno::INTR) => {}
                _ => return Err(error),
            }
        }
        // SAFETY: the event was fetched just now, and belongs to such an id.
        let copy = unsafe { Event::copy(&*event, datagrams) };
        // SAFETY: it is acknowledged once.
        let result = unsafe { (self.calls.rdma_ack_cm_event)(event) };
        check("rdma_ack_cm_event", "acknowledging an event", result)?;
        Ok(Some(copy))
    }
}

fn failed(verb: &'static str, subject: &str, errno: Errno) -> Error {
    Error::Verb { verb, subject: subject.to_owned(), errno: errno.raw_os_error() }
}

impl Event {
    /// # Safety
    /// The event is not yet acknowledged. `datagrams` says correctly whether its id is for datagrams.
    unsafe fn copy(event: &rdma_cm_event, datagrams: bool) -> Self {
        // SAFETY: both kinds of parameters begin with address and length, and any bytes are valid.
        let conn = unsafe { event.param.conn };
        let private_data = if conn.private_data.is_null() {
            Vec::new()
        } else {
            let length = usize::from(conn.private_data_len);
            // SAFETY: until it is acknowledged, an event has as many bytes as it says.
            unsafe { slice::from_raw_parts(conn.private_data.cast::<u8>(), length) }.to_vec()
        };
        Self {
            kind: event.event,
            status: event.status,
            private_data,
            reads: (conn.responder_resources, conn.initiator_depth),
            id: event.id,
            datagrams: if datagrams {
                // SAFETY: an id for datagrams has these parameters.
                Some(unsafe { event.param.ud })
            } else {
                None
            },
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel keeps its descriptor open as long as it exists.
        unsafe { BorrowedFd::borrow_raw((*self.raw).fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if self.process.is_parent() {
            return;
        }
        watch::forget(self.as_fd().as_raw_fd());
        // SAFETY: the ids that used the channel are gone.
        unsafe { (self.calls.rdma_destroy_event_channel)(self.raw) };
    }
}

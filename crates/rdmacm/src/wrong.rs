//! The fault of a refused function: an errno, and the sentence that `transom explain` shows for it.

use std::borrow::Cow;
use std::ffi::c_int;
use std::io;

use transom_abi::{RDMA_CM_EVENT_REJECTED, rdma_cm_event_type};

use crate::event_name::name_of;

/// The errno that a C function has just set.
pub(crate) fn last_errno() -> c_int {
    match transom_thread::errno() {
        0 => libc::EIO,
        errno => errno,
    }
}

/// The error of a function. Every errno has a sentence, except those that are no refusal ([`NotNow`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    errno: c_int,
    said: Option<Cow<'static, str>>,
    /// The address of what the program has given, if that has ended.
    ended: Option<usize>,
}

/// Results that mean "try again later". They need no explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotNow {
    /// There is nothing to take, or no room, at the moment.
    Again,
    /// The operation goes on without the caller.
    InProgress,
    /// A signal has interrupted the call.
    Interrupted,
}

impl Wrong {
    pub(crate) const fn new(errno: c_int, said: &'static str) -> Self {
        Self { errno, said: Some(Cow::Borrowed(said)), ended: None }
    }

    /// An argument is invalid, or invalid in this state.
    pub(crate) const fn invalid(said: &'static str) -> Self {
        Self::new(libc::EINVAL, said)
    }

    /// The same, with a sentence that names values.
    pub(crate) fn told(errno: c_int, said: String) -> Self {
        Self { errno, said: Some(said.into()), ended: None }
    }

    /// The program has given something at this address that has ended.
    pub(crate) const fn of_ended(address: usize, said: &'static str) -> Self {
        Self { errno: libc::EINVAL, said: Some(Cow::Borrowed(said)), ended: Some(address) }
    }

    /// A result that is no fault.
    pub(crate) const fn not_now(which: NotNow) -> Self {
        let errno = match which {
            NotNow::Again => libc::EAGAIN,
            NotNow::InProgress => libc::EINPROGRESS,
            NotNow::Interrupted => libc::EINTR,
        };
        Self { errno, said: None, ended: None }
    }

    /// There is no memory for it.
    pub(crate) const fn no_memory() -> Self {
        Self::new(libc::ENOMEM, "there is not enough memory")
    }

    /// The socket has no peer.
    pub(crate) const fn not_connected() -> Self {
        Self::new(libc::ENOTCONN, "the socket is not connected")
    }

    /// A system call has failed.
    pub(crate) fn of_system(call: &str, errno: c_int) -> Self {
        match errno {
            libc::EAGAIN => Self::not_now(NotNow::Again),
            libc::EINTR => Self::not_now(NotNow::Interrupted),
            _ => Self::told(errno, format!("{call}: {}", io::Error::from_raw_os_error(errno))),
        }
    }

    /// A verb that the function calls has failed.
    pub(crate) fn of_verb(verb: &str, errno: c_int) -> Self {
        Self::told(
            errno,
            format!("{verb}, which it calls, was refused; see the record of that call"),
        )
    }

    /// Another event has come than the one that the function waits for.
    pub(crate) fn of_event(event: rdma_cm_event_type, status: c_int) -> Self {
        let name = name_of(event);
        let errno = match status {
            // The status is the peer's reason.
            1.. => libc::ECONNREFUSED,
            _ if event == RDMA_CM_EVENT_REJECTED => libc::ECONNREFUSED,
            // It has no status, but is not the event that the call waits for.
            0 => libc::ENODEV,
            errno => errno.saturating_neg(),
        };
        Self::told(errno, format!("{name} has come, status {status}; see the record of that event"))
    }

    /// No fault yet: a function waits until this many events are acknowledged. It has no errno.
    pub(crate) fn waits_for(missing: u32) -> Self {
        let events = if missing == 1 { "an event" } else { &format!("{missing} events") };
        Self::told(
            0,
            format!("{events} that rdma_get_cm_event gave; acknowledge by rdma_ack_cm_event"),
        )
    }

    pub(crate) fn ended(&self) -> Option<usize> {
        self.ended
    }

    pub(crate) fn errno(&self) -> c_int {
        self.errno
    }

    /// The sentence. `None` if it is no fault.
    pub(crate) fn said(&self) -> Option<&str> {
        self.said.as_deref()
    }
}

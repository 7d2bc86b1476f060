//! Why a function is refused: an errno with the sentence that `transom explain` shows for it.

use std::borrow::Cow;
use std::ffi::c_int;
use std::io;

use transom_abi::{RDMA_CM_EVENT_REJECTED, rdma_cm_event_type};

use crate::event_name::name_of;

/// The errno that a call of C's has just left.
pub(crate) fn last_errno() -> c_int {
    match transom_thread::errno() {
        0 => libc::EIO,
        errno => errno,
    }
}

/// What a function answers in place of its value. There is no errno without a sentence, but for what is no
/// refusal ([`NotNow`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    errno: c_int,
    said: Option<Cow<'static, str>>,
}

/// Answers that tell a program to come again, and nobody asks why of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotNow {
    /// There is nothing to be had, or no room, just now.
    Again,
    /// It goes on without the caller.
    InProgress,
    /// A signal has come.
    Interrupted,
}

impl Wrong {
    pub(crate) const fn new(errno: c_int, said: &'static str) -> Self {
        Self { errno, said: Some(Cow::Borrowed(said)) }
    }

    /// An argument cannot be so, or not now.
    pub(crate) const fn invalid(said: &'static str) -> Self {
        Self::new(libc::EINVAL, said)
    }

    /// With a sentence that names values.
    pub(crate) fn told(errno: c_int, said: String) -> Self {
        Self { errno, said: Some(said.into()) }
    }

    /// Nothing is wrong.
    pub(crate) const fn not_now(which: NotNow) -> Self {
        let errno = match which {
            NotNow::Again => libc::EAGAIN,
            NotNow::InProgress => libc::EINPROGRESS,
            NotNow::Interrupted => libc::EINTR,
        };
        Self { errno, said: None }
    }

    /// There is no memory for it.
    pub(crate) const fn no_memory() -> Self {
        Self::new(libc::ENOMEM, "there is no memory left for it")
    }

    /// The socket has no peer.
    pub(crate) const fn not_connected() -> Self {
        Self::new(libc::ENOTCONN, "the socket is not connected")
    }

    /// A call of the system's has failed.
    pub(crate) fn of_system(call: &str, errno: c_int) -> Self {
        match errno {
            libc::EAGAIN => Self::not_now(NotNow::Again),
            libc::EINTR => Self::not_now(NotNow::Interrupted),
            _ => Self::told(errno, format!("{call}: {}", io::Error::from_raw_os_error(errno))),
        }
    }

    /// A verb has failed that the function calls.
    pub(crate) fn of_verb(verb: &str, errno: c_int) -> Self {
        Self::told(errno, format!("{verb}, which it calls, is refused; see what is said of that"))
    }

    /// An event has come in place of the one that is waited for.
    pub(crate) fn of_event(event: rdma_cm_event_type, status: c_int) -> Self {
        let name = name_of(event);
        let errno = match status {
            // The peer's reason is the status.
            1.. => libc::ECONNREFUSED,
            _ if event == RDMA_CM_EVENT_REJECTED => libc::ECONNREFUSED,
            // It has no status, and is not what the call is to bring about.
            0 => libc::ENODEV,
            errno => errno.saturating_neg(),
        };
        Self::told(errno, format!("{name} has come, status {status}; see what is said of that"))
    }

    /// Nothing is wrong yet: a function waits until so many events are acknowledged. It has no errno.
    pub(crate) fn waits_for(missing: u32) -> Self {
        let events = if missing == 1 { "an event" } else { &format!("{missing} events") };
        Self::told(
            0,
            format!("{events} that rdma_get_cm_event gave; acknowledge by rdma_ack_cm_event"),
        )
    }

    pub(crate) fn errno(&self) -> c_int {
        self.errno
    }

    /// What is wrong; nothing if nothing is.
    pub(crate) fn said(&self) -> Option<&str> {
        self.said.as_deref()
    }
}

//! Errors: what went wrong, and how to fix it.

use crate::{ConnectionError, WorkError};
use std::ffi::c_int;
use std::ops::Range;
use std::ptr::NonNull;
use std::{fmt, io};

/// The result of most calls of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a call failed.
///
/// Its text says what happened, to which object, and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A verb failed. It has changed or queued nothing. Requests that you posted before may still complete.
    Verb {
        /// The verb, such as `ibv_reg_mr`.
        verb: &'static str,
        /// What it was asked to do, and to which object.
        subject: String,
        /// The error number of `errno(3)`.
        errno: i32,
    },
    /// A work request was posted and ended with an error.
    Work(WorkError),
    /// A connection could not be made, or was not accepted.
    Connection(Box<ConnectionError>),
    /// The private data of a connection are too long.
    PrivateDataTooLong {
        /// The number of bytes given.
        length: usize,
        /// The number of bytes allowed.
        room: usize,
    },
    /// A library did not open, or is not the expected library.
    Library {
        /// The expected library: `libibverbs` or `librdmacm`.
        library: &'static str,
        /// The requested file.
        path: String,
        /// The message of the dynamic loader.
        problem: String,
    },
    /// A range does not lie within the object it belongs to.
    OutOfRange {
        /// That object.
        of: &'static str,
        /// The range, counted in bytes from the object's start.
        range: Range<u64>,
        /// The length of the object in bytes.
        available: u64,
    },
    /// A memory region still has other users, so it cannot be deregistered.
    InUse {
        /// How many clones, slices, bound windows and requests refer to it.
        users: usize,
    },
    /// The completion queue has no entry left: as many requests are outstanding as it has entries.
    CompletionQueueFull {
        /// The number of entries it has, or would have after the resize.
        entries: usize,
    },
    /// Two objects belong to different opened devices.
    OtherContext {
        /// The object of the wrong device.
        what: &'static str,
    },
    /// The queue pair takes its receives from a shared receive queue, so it has no receive queue of its own.
    SharedReceives,
    /// The queue pair is unreliable. The connection manager makes reliable connections only.
    UnreliableConnection,
    /// The queue pair has the wrong key. Queue pairs that peers find by address all use one key.
    ServiceQkey {
        /// The key that it has.
        given: u32,
    },
    /// The queue pair was not built for batches.
    NotForBatches,
    /// The range for a window is empty. Binding a type 1 window to no bytes would unbind it.
    EmptyWindow,
    /// Another queue pair bound this type 2 window. Only the queue pair that bound it can invalidate it.
    OtherQueuePair {
        /// The number of the queue pair that bound it.
        bound_by: u32,
        /// The number of the queue pair that was given.
        given: u32,
    },
    /// The completion does not say that the peer invalidated this window in its present bind.
    NotRevoked {
        /// The window's key.
        rkey: u32,
        /// The key the completion names, if it names one.
        invalidated: Option<u32>,
    },
    /// The bytes or values received as a grant are not a valid grant.
    BadGrant {
        /// What is wrong with them.
        problem: &'static str,
    },
}

impl Error {
    /// The error number of a verb that failed at once.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Verb { errno, .. } => Some(*errno),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verb { verb, subject, errno } => {
                let problem = io::Error::from_raw_os_error(*errno);
                let advice = if verb.starts_with("rdma_") {
                    connection_advice(*errno)
                } else {
                    advice(*errno)
                };
                write!(f, "{verb}: {subject}: {problem}; {advice}")
            }
            Self::Work(error) => error.fmt(f),
            Self::Connection(error) => error.fmt(f),
            Self::PrivateDataTooLong { length, room } => write!(
                f,
                "{length} bytes of private data are too long: there is room for {room}; send the \
                 rest as messages once connected"
            ),
            Self::Library { library, path, problem } => {
                let other =
                    if cfg!(feature = "software") { ", or use the software provider" } else { "" };
                write!(
                    f,
                    "cannot use {path} as {library}: {problem}; install rdma-core's {library}1{other}"
                )
            }
            Self::OutOfRange { of, range, available } => write!(
                f,
                "bytes {range:?} do not lie within {of} of {available} bytes; choose a range that \
                 does"
            ),
            Self::InUse { users } => write!(
                f,
                "the memory region has other users ({users}); drop its clones and \
                 slices, invalidate or drop the windows bound to it, and take the completions of \
                 the requests that use it"
            ),
            Self::CompletionQueueFull { entries } => write!(
                f,
                "the completion queue has {entries} entries, too few for all outstanding requests; \
                 take completions first, or make the queue larger"
            ),
            Self::OtherContext { what } => write!(
                f,
                "the {what} and the object that you use it with belong to different opened devices; \
                 create both from one context"
            ),
            Self::SharedReceives => write!(
                f,
                "the queue pair takes its receives from a shared receive queue; post them there"
            ),
            Self::UnreliableConnection => write!(
                f,
                "the connection manager makes reliable connections only; build a reliable queue pair, or \
                 exchange endpoints by other means"
            ),
            Self::ServiceQkey { given } => write!(
                f,
                "the queue pair has the key {given:#x}, but peers that find it by address use {:#x}; build it \
                 with Destination::SERVICE_QKEY",
                transom_abi::RDMA_UDP_QKEY
            ),
            Self::NotForBatches => write!(
                f,
                "the queue pair was not built for batches; ask for them with \
                 QueuePairBuilder::batches"
            ),
            Self::EmptyWindow => write!(
                f,
                "a window cannot be bound to an empty range; choose a range, or invalidate the \
                 window to revoke it"
            ),
            Self::OtherQueuePair { bound_by, given } => write!(
                f,
                "the window was bound by queue pair {bound_by:#x}, not by {given:#x}; invalidate \
                 it there, or drop it"
            ),
            Self::NotRevoked { rkey, invalidated: Some(key) } if rkey == key => write!(
                f,
                "the peer invalidated key {key:#010x} on another queue pair, or in an earlier binding; \
                 this binding is still valid"
            ),
            Self::NotRevoked { rkey, invalidated: Some(key) } => write!(
                f,
                "the peer invalidated key {key:#010x}, not this window's {rkey:#010x}; give the \
                 completion to the window of that key"
            ),
            Self::NotRevoked { rkey, invalidated: None } => write!(
                f,
                "the completion is not of a send with invalidate, so key {rkey:#010x} is still \
                 valid; invalidate the window on this side"
            ),
            Self::BadGrant { problem } => {
                write!(f, "this is not a grant: {problem}; let the peer send it with to_bytes")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Work(error) => Some(error),
            Self::Connection(error) => Some(&**error),
            _ => None,
        }
    }
}

/// A call that took an object, failed, and gives the object back.
///
/// In a function that returns [`Error`], `?` turns it into its error and drops the object. If your program has an error
/// type of its own, write the conversion once for all objects:
///
/// ```
/// use transom::{Access, MemoryRegion, ProtectionDomain, Refused};
///
/// #[derive(Debug, thiserror::Error)]
/// enum StoreError {
///     #[error("the store is full")]
///     Full,
///     #[error(transparent)]
///     Device(#[from] transom::Error),
/// }
///
/// // `#[from]` cannot derive this, because it holds for any `T`.
/// impl<T> From<Refused<T>> for StoreError {
///     fn from(refused: Refused<T>) -> Self {
///         Self::Device(refused.error)
///     }
/// }
///
/// fn register(pd: &ProtectionDomain, bytes: Vec<u8>) -> Result<MemoryRegion<Vec<u8>>, StoreError> {
///     if bytes.len() > 1 << 20 {
///         return Err(StoreError::Full);
///     }
///     Ok(MemoryRegion::register(pd, bytes, Access::LOCAL_WRITE)?)
/// }
/// # let context = transom::devices(&transom::Provider::software())?[0].open()?;
/// # assert!(register(&ProtectionDomain::new(&context)?, vec![0; 8]).is_ok());
/// # Ok::<(), transom::Error>(())
/// ```
///
/// For a single call, use `map_err(transom::Error::from)`. To get the object back, take
/// [`returned`](Self::returned):
///
/// ```
/// use transom::{Access, MemoryRegion, ProtectionDomain, Provider};
///
/// let context = transom::devices(&Provider::software())?[0].open()?;
/// let pd = ProtectionDomain::new(&context)?;
/// // The peer may not write what this side may not.
/// let refused = MemoryRegion::register(&pd, b"bytes".to_vec(), Access::REMOTE_WRITE).unwrap_err();
/// assert_eq!(refused.error.errno(), Some(22)); // EINVAL
/// let region = MemoryRegion::register(&pd, refused.returned, Access::LOCAL_WRITE)?;
/// assert_eq!(region.deregister()?, b"bytes");
/// # Ok::<(), transom::Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Refused<T> {
    /// The object, in its present state.
    pub returned: T,
    /// Why the call failed.
    #[source]
    pub error: Error,
}

impl<T> From<Refused<T>> for Error {
    fn from(refused: Refused<T>) -> Self {
        refused.error
    }
}

/// Checks the result of a verb that returns 0, an error number, or -1 with `errno` set. Some libraries return a
/// negative error number instead. rxe does so when it posts a request.
pub(crate) fn check(verb: &'static str, subject: impl fmt::Display, result: c_int) -> Result<()> {
    match result {
        0 => Ok(()),
        -1 => Err(last_error(verb, subject)),
        number => {
            let errno = number.saturating_abs();
            Err(Error::Verb { verb, subject: subject.to_string(), errno })
        }
    }
}

/// Checks the result of a verb that returns a pointer, or null with `errno` set.
pub(crate) fn non_null<T>(
    verb: &'static str,
    subject: impl fmt::Display,
    pointer: *mut T,
) -> Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(|| last_error(verb, subject))
}

/// The error of a verb that has set `errno`.
pub(crate) fn last_error(verb: &'static str, subject: impl fmt::Display) -> Error {
    let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    Error::Verb { verb, subject: subject.to_string(), errno }
}

/// The error for an operation that the device's provider lacks.
pub(crate) fn unsupported(verb: &'static str) -> Error {
    let errno = rustix::io::Errno::OPNOTSUPP.raw_os_error();
    Error::Verb { verb, subject: "the provider does not have it".to_owned(), errno }
}

/// The advice for an error number of a verb.
fn advice(errno: i32) -> &'static str {
    use rustix::io::Errno;
    match Errno::from_raw_os_error(errno) {
        Errno::BUSY => "release the objects that still use it first",
        Errno::NOMEM => "a queue or table is full, or memory is short: release or complete some",
        Errno::INVAL => "an argument, or the state of the queue pair, does not allow it",
        Errno::PERM => "use objects of one protection domain, or ask for the permission",
        Errno::ACCESS => "ask for permission to use the device",
        Errno::FAULT => "the memory is unmapped or read-only",
        Errno::NOENT => "the object or index does not exist (any more)",
        Errno::OPNOTSUPP | Errno::NOSYS => "this device cannot do it: see its attributes",
        Errno::NODEV | Errno::IO => "the device is gone: close it and open it again",
        Errno::MFILE | Errno::NFILE => "too many files are open: raise the limit (ulimit -n)",
        _ => "see the manual page of the verb",
    }
}

/// The advice for an error number of a librdmacm function.
fn connection_advice(errno: i32) -> &'static str {
    use rustix::io::Errno;
    match Errno::from_raw_os_error(errno) {
        Errno::ADDRINUSE => "choose another port, or 0 for any free one",
        Errno::ADDRNOTAVAIL => {
            "choose an address of this host; or choose another port, because another program has this one \
             on the wildcard or a loopback address"
        }
        Errno::ACCESS => "ports below 1024 need a privilege: choose a higher one, or 0",
        Errno::NODEV => {
            "no RDMA device has that address, or the device is gone: `ip addr` and `ibv_devices` \
                         show what there is"
        }
        Errno::NOENT | Errno::NOSYS | Errno::NXIO => {
            "the system has no connection manager: load the kernel's module rdma_ucm, or start the \
             program with `transom run`"
        }
        Errno::INVAL => "the connection is not in a state that allows it: the peer may have gone",
        other => advice(other.raw_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verb_says_why_it_failed_in_any_of_three_ways() {
        let errno = |result| check("ibv_post_send", "", result).unwrap_err().errno();
        // The result has nothing to do with an earlier value of `errno`.
        std::fs::File::open("/nowhere").unwrap_err();
        assert_eq!((errno(22), errno(-22)), (Some(22), Some(22)));
        std::fs::File::open("/nowhere").unwrap_err();
        assert_eq!(errno(-1), Some(rustix::io::Errno::NOENT.raw_os_error()));
        assert_eq!(check("ibv_post_send", "", 0), Ok(()));
    }
}

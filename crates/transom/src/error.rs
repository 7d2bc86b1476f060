//! What can go wrong, and what to do about it.

use crate::{ConnectionError, WorkError};
use std::ffi::c_int;
use std::ops::Range;
use std::ptr::NonNull;
use std::{fmt, io};

/// The result of most calls of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
///
/// Its text says what happened, to what, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A verb failed; it has changed or queued nothing. Of what was posted before and was waited for,
    /// this says nothing: it may be done yet.
    Verb {
        /// The verb, such as `ibv_reg_mr`.
        verb: &'static str,
        /// What it was asked to do, and to what.
        subject: String,
        /// The error number of `errno(3)`.
        errno: i32,
    },
    /// A work request was posted and ended with an error.
    Work(WorkError),
    /// A connection could not be made, or was not accepted.
    Connection(Box<ConnectionError>),
    /// Private data of a connection are longer than there is room for.
    PrivateDataTooLong {
        /// The bytes that were given.
        length: usize,
        /// The bytes there is room for.
        room: usize,
    },
    /// A library could not be opened, or is not what it should be.
    Library {
        /// What it should be: `libibverbs` or `librdmacm`.
        library: &'static str,
        /// The file that was asked for.
        path: String,
        /// What the dynamic loader said.
        problem: String,
    },
    /// A range does not lie within what it should be a part of.
    OutOfRange {
        /// What the range should lie within.
        of: &'static str,
        /// The range, counted from the start of that.
        range: Range<u64>,
        /// The bytes there are.
        available: u64,
    },
    /// A memory region still has other users, so it cannot be deregistered.
    InUse {
        /// How many clones, slices, bound windows and outstanding requests refer to it.
        users: usize,
    },
    /// As many requests are outstanding as the completion queue has entries.
    CompletionQueueFull {
        /// The entries it has, or would have.
        entries: usize,
    },
    /// Two objects belong to different opened devices.
    OtherContext {
        /// The object that is not of the context.
        what: &'static str,
    },
    /// A queue pair that takes its receives from a shared receive queue has none of its own.
    SharedReceives,
    /// The connection manager makes reliable connections only.
    UnreliableConnection,
    /// Queue pairs that are found by address have one key, which this one has not.
    ServiceQkey {
        /// The key that it has.
        given: u32,
    },
    /// A queue pair was not built for batches.
    NotForBatches,
    /// A window was to be bound to no bytes, which is how a type 1 window is unbound.
    EmptyWindow,
    /// A type 2 window can be invalidated only through the queue pair that bound it.
    OtherQueuePair {
        /// The number of the queue pair that bound it.
        bound_by: u32,
        /// The number of the queue pair that was given.
        given: u32,
    },
    /// The completion does not say that the peer invalidated this window, as it is bound now.
    NotRevoked {
        /// The window's key.
        rkey: u32,
        /// The key the completion names, if it names one.
        invalidated: Option<u32>,
    },
    /// Bytes or values received as a grant are none.
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
                "{length} bytes of private data are too long, there is room for {room}; send the \
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
                "the memory region is in use, {users} times besides this; drop its clones and \
                 slices, invalidate or drop the windows bound to it, and take the completions of \
                 the requests that use it"
            ),
            Self::CompletionQueueFull { entries } => write!(
                f,
                "the completion queue has {entries} entries, too few for all requests that would be \
                 outstanding; take completions first, or have it larger"
            ),
            Self::OtherContext { what } => write!(
                f,
                "the {what} belongs to another opened device than what it was to be used with; \
                 create both from one context"
            ),
            Self::SharedReceives => write!(
                f,
                "the queue pair takes its receives from a shared receive queue; post them there"
            ),
            Self::UnreliableConnection => write!(
                f,
                "the connection manager makes reliable connections only; build the queue pair as one, or \
                 exchange endpoints by other means"
            ),
            Self::ServiceQkey { given } => write!(
                f,
                "the queue pair has the key {given:#x}, but who finds it by address uses {:#x}; build it \
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
                "the peer invalidated key {key:#x} on another queue pair, or when it was that of an \
                 earlier binding; this one is still valid"
            ),
            Self::NotRevoked { rkey, invalidated: Some(key) } => write!(
                f,
                "the peer invalidated key {key:#x}, not this window's {rkey:#x}; give the \
                 completion to the window of that key"
            ),
            Self::NotRevoked { rkey, invalidated: None } => write!(
                f,
                "the completion is not of a send with invalidate, so key {rkey:#x} is still \
                 valid; invalidate the window on this side"
            ),
            Self::BadGrant { problem } => {
                write!(f, "this is no grant: {problem}; let the peer send it with to_bytes")
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

/// A call that took something, failed, and gives it back.
///
/// With `?` in a function that returns [`Error`] it becomes its error, and what it holds is dropped. A program
/// with an error type of its own says the same once, for everything that can be given back:
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
/// // What `#[from]` cannot derive, for it is of any `T`.
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
/// Where such a conversion is not worth it, there is `map_err(transom::Error::from)`. Who wants back what was taken
/// looks at [`returned`](Self::returned):
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
    /// What was taken, in the state it is now.
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

/// Judges a verb that returns 0, an error number, or -1 with `errno` set. Some libraries return the negative of
/// an error number instead, as rxe's does where a request is posted.
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

/// Judges a verb that returns a pointer, or null with `errno` set.
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

/// The error of an operation that the device's provider does not have.
pub(crate) fn unsupported(verb: &'static str) -> Error {
    let errno = rustix::io::Errno::OPNOTSUPP.raw_os_error();
    Error::Verb { verb, subject: "the provider does not have it".to_owned(), errno }
}

/// What to do about an error number of a verb.
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

/// What to do about an error number of a function of librdmacm.
fn connection_advice(errno: i32) -> &'static str {
    use rustix::io::Errno;
    match Errno::from_raw_os_error(errno) {
        Errno::ADDRINUSE => "choose another port, or 0 for any free one",
        Errno::ADDRNOTAVAIL => {
            "choose an address of this host; or another port, for somebody has this one at the wildcard \
             or a loopback address"
        }
        Errno::ACCESS => "ports below 1024 need a privilege: choose a higher one, or 0",
        Errno::NODEV => {
            "no RDMA device has that address, or it is gone: `ip addr` and `ibv_devices` \
                         show which have"
        }
        Errno::NOENT | Errno::NOSYS | Errno::NXIO => {
            "the system has no connection manager: load the kernel's module rdma_ucm, or start the \
             program by `transom run`"
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
        // What `errno` was set to before has nothing to do with it.
        std::fs::File::open("/nowhere").unwrap_err();
        assert_eq!((errno(22), errno(-22)), (Some(22), Some(22)));
        std::fs::File::open("/nowhere").unwrap_err();
        assert_eq!(errno(-1), Some(rustix::io::Errno::NOENT.raw_os_error()));
        assert_eq!(check("ibv_post_send", "", 0), Ok(()));
    }
}

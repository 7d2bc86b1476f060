//! The numbers of descriptors, and the files behind them.
//!
//! A program may have closed its standard input, output or error. The next files that it opens must get those numbers,
//! and it must never read or write a file of ours there. So every descriptor kept open here has a high number.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;

/// The first number of ours.
const FIRST: i32 = 500;
/// The first that is not standard input, output or error.
const NOT_STANDARD: i32 = 3;

/// The same file under a high number. If the process may not have such high numbers (`ulimit -n`), the number is at
/// least not that of standard input, output or error, if another one is free.
pub fn high(low: OwnedFd) -> OwnedFd {
    let duplicate = |first| rustix::io::fcntl_dupfd_cloexec(&low, first);
    duplicate(FIRST).or_else(|_: Errno| duplicate(NOT_STANDARD)).unwrap_or(low)
}

/// Identifies a file. A program may close a descriptor of ours, and its number may then be another file's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// The identity of the file behind a descriptor.
    pub(crate) fn of(descriptor: impl AsFd) -> io::Result<Self> {
        let found = rustix::fs::fstat(descriptor)?;
        Ok(Self { device: found.st_dev, inode: found.st_ino })
    }

    /// Whether this file is still behind this descriptor.
    pub(crate) fn is_behind(self, descriptor: impl AsFd) -> bool {
        Self::of(descriptor).is_ok_and(|found| found == self)
    }
}

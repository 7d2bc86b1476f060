//! The numbers of descriptors, and what is behind them.
//!
//! A program may have closed its standard input, output or error: what it opens next is to have their numbers, and
//! nothing that it reads from or writes to there is to be ours. So what is kept open here has a high number.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;

/// The first number of ours.
const FIRST: i32 = 500;
/// The first that is not standard input, output or error.
const NOT_STANDARD: i32 = 3;

/// The same file under a high number; where so many are not allowed (`ulimit -n`), under one that is at least not that of
/// standard input, output or error, if there is another.
pub fn high(low: OwnedFd) -> OwnedFd {
    let duplicate = |first| rustix::io::fcntl_dupfd_cloexec(&low, first);
    duplicate(FIRST).or_else(|_: Errno| duplicate(NOT_STANDARD)).unwrap_or(low)
}

/// By which a file is known again: a program may close a descriptor of ours, and its number be another file's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// That of the file behind a descriptor.
    pub(crate) fn of(descriptor: impl AsFd) -> io::Result<Self> {
        let found = rustix::fs::fstat(descriptor)?;
        Ok(Self { device: found.st_dev, inode: found.st_ino })
    }

    /// Whether it is still behind this descriptor.
    pub(crate) fn is_behind(self, descriptor: impl AsFd) -> bool {
        Self::of(descriptor).is_ok_and(|found| found == self)
    }
}

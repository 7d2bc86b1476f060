//! The numbers of descriptors, and the files behind them.
//!
//! A program may have closed its standard input, output or error. The next files that it opens must get those numbers,
//! and it must never read or write a file of ours there. So every descriptor kept open here has a high number.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
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

/// Opens the file that another process has at a descriptor, to read and write it.
///
/// # Errors
///
/// That of `open(2)`.
pub(crate) fn of_process(pid: u32, descriptor: u32) -> io::Result<OwnedFd> {
    let open = |path| rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let found = open(format!("/proc/{pid}/fd/{descriptor}"));
    let found = found.or_else(|error| {
        // If its first thread has ended, only the other threads show its files.
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_err(|_| error)?;
        let threads = threads.flatten().map(|it| it.path().join("fd").join(descriptor.to_string()));
        threads
            .map(|path| open(path.to_string_lossy().into_owned()))
            .find_map(Result::ok)
            .ok_or(error)
    })?;
    Ok(high(found))
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

//! The numbers of descriptors.
//!
//! A program may have closed its standard input, output or error: what it opens next is to have their numbers, and
//! nothing that it reads from or writes to there is to be ours. So what is kept open here has a high number.

use std::os::fd::OwnedFd;

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

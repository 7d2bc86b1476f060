//! Pipes, through which the kernel copies memory of this process: what is gone is an error, and no crash.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use arrayvec::ArrayVec;
use rustix::fs::{Mode, OFlags};
use rustix::pipe::PipeFlags;

use super::Fault;
use crate::descriptor::{self, Identity};

/// A pipe kept for copying; always empty between copies.
#[derive(Debug)]
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    identity: Identity,
}

/// A pipe of the default size takes this much at once.
pub(super) const ROOM: u64 = 64 << 10;

/// The most places that one call reads. The kernel takes up to 1024.
pub(super) const PLACES: usize = 128;

impl Pipe {
    /// An empty one.
    pub(super) fn new() -> io::Result<Self> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let (read, write) = (descriptor::high(read), descriptor::high(write));
        let identity = Identity::of(&read)?;
        Ok(Self { read, write, identity })
    }

    /// The pipe, unless the program has closed an end of it. Then that number may be another file's.
    pub(super) fn unless_closed(self) -> Option<Self> {
        if [&self.read, &self.write].into_iter().all(|end| self.identity.is_behind(end)) {
            return Some(self);
        }
        // An end that is left stays open, for nobody knows which it is.
        std::mem::forget(self);
        None
    }

    /// Copies through the pipe. After an error the pipe may hold bytes, so drop it.
    pub(super) fn copy(&self, mut to: u64, mut from: u64, mut length: u64) -> Result<(), Fault> {
        while length > 0 {
            let step = length.min(ROOM);
            let written = self.push(from, step).ok_or(Fault::Source)?;
            let mut read = 0;
            while read < written {
                read += self.pull(to + read, written - read).ok_or(Fault::Destination)?;
            }
            (to, from, length) = (to + written, from + written, length - written);
        }
        Ok(())
    }

    fn push(&self, from: u64, length: u64) -> Option<u64> {
        let fd = self.write.as_fd().as_raw_fd();
        // SAFETY: the kernel checks the source range and answers EFAULT; it only reads it.
        let done = unsafe { libc::syscall(libc::SYS_write, fd, from, length as usize) };
        u64::try_from(done).ok().filter(|done| *done > 0)
    }

    fn pull(&self, to: u64, length: u64) -> Option<u64> {
        let fd = self.read.as_fd().as_raw_fd();
        // SAFETY: the kernel checks the destination range and answers EFAULT; it is memory given up
        // for such writes, as in `Copier`.
        let done = unsafe { libc::syscall(libc::SYS_read, fd, to, length as usize) };
        u64::try_from(done).ok().filter(|done| *done > 0)
    }
}

/// A pipe with both ends behind one descriptor, and what tells it from a file that has got its number.
#[derive(Debug)]
pub(super) struct Round {
    ends: OwnedFd,
    identity: Identity,
}

impl Round {
    /// An empty one. None if the process may have no more descriptors, or no pipe of the default size.
    pub(super) fn new() -> Option<Self> {
        let (read, _write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).ok()?;
        let path = format!("/proc/thread-self/fd/{}", read.as_raw_fd());
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let ends = descriptor::high(rustix::fs::open(path, flags, Mode::empty()).ok()?);
        let has_room = rustix::pipe::fcntl_getpipe_size(&ends).ok()? as u64 >= ROOM;
        let identity = Identity::of(&ends).ok()?;
        has_room.then_some(Self { ends, identity })
    }

    /// Whether it is there. Otherwise the program has closed it, and its number may be another file's.
    pub(super) fn is_there(&self) -> bool {
        self.identity.is_behind(&self.ends)
    }

    #[cfg(test)]
    pub(super) fn number(&self) -> i32 {
        self.ends.as_raw_fd()
    }

    /// The program has closed it.
    pub(super) fn forget(self) {
        std::mem::forget(self.ends);
    }

    /// Reads memory at up to [`PLACES`] addresses, [`ROOM`] bytes together. False if it could not read all of it. Then
    /// the pipe may hold bytes, so drop it.
    pub(super) fn gather<'a>(&self, parts: impl Iterator<Item = (u64, &'a mut [u8])>) -> bool {
        let mut from = ArrayVec::<_, PLACES>::new();
        let mut to = ArrayVec::<_, PLACES>::new();
        let mut length = 0;
        for (place, bytes) in parts {
            length += bytes.len();
            from.push(libc::iovec { iov_base: place as *mut _, iov_len: bytes.len() });
            to.push(libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() });
        }
        let moves = |call, vectors: &[libc::iovec]| {
            // SAFETY: the kernel only reads what the first vectors name, and checks every address. The others name
            // slices that this function borrows alone.
            let done = unsafe {
                libc::syscall(call, self.ends.as_raw_fd(), vectors.as_ptr(), vectors.len())
            };
            usize::try_from(done) == Ok(length)
        };
        moves(libc::SYS_writev, &from) && moves(libc::SYS_readv, &to)
    }
}

//! A pipe, through which the kernel copies memory of this process: what is gone is an error, and no crash.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use arrayvec::ArrayVec;
use rustix::pipe::PipeFlags;

use super::Fault;
use crate::descriptor;

/// A pipe kept for copying; always empty between copies.
#[derive(Debug)]
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

/// A pipe of the default size takes this much at once.
pub(super) const ROOM: u64 = 64 << 10;

/// The most places that one call reads. The kernel takes up to 1024.
pub(super) const PLACES: usize = 128;

impl Pipe {
    /// An empty one.
    pub(super) fn new() -> io::Result<Self> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // If the program closes all descriptors, from the lowest on, nobody writes to a pipe without a reader.
        let write = descriptor::high(write);
        Ok(Self { read: descriptor::high(read), write })
    }

    /// One whose descriptors are so high that no file of the program's gets them after it has closed them. None if the
    /// process may not have such, or no pipe of the default size.
    pub(super) fn out_of_the_way() -> Option<Self> {
        let pipe = Self::new().ok()?;
        let is_good = descriptor::is_high(&pipe.read)
            && descriptor::is_high(&pipe.write)
            && rustix::pipe::fcntl_getpipe_size(&pipe.write).is_ok_and(|size| size as u64 >= ROOM);
        is_good.then_some(pipe)
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
        let moves = |call, pipe: &OwnedFd, vectors: &[libc::iovec]| {
            // SAFETY: the kernel only reads what the first vectors name, and checks every address. The others name
            // slices that this function borrows alone.
            let done =
                unsafe { libc::syscall(call, pipe.as_raw_fd(), vectors.as_ptr(), vectors.len()) };
            usize::try_from(done) == Ok(length)
        };
        moves(libc::SYS_writev, &self.write, &from) && moves(libc::SYS_readv, &self.read, &to)
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

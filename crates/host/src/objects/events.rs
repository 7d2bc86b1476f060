//! Events that a program waits for on a real file descriptor.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::pipe::PipeFlags;

/// What an asynchronous event says, with the values of `enum ibv_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum AsyncEvent {
    /// A completion queue overran.
    CqError = 0,
    /// A queue pair failed for no fault of a work request.
    QpFatal = 1,
    /// An invalid request arrived.
    QpRequestError = 2,
    /// A request was refused access.
    QpAccessError = 3,
    /// The first request arrived before RTS.
    Established = 4,
    /// The send queue drained.
    SendQueueDrained = 5,
    /// The port has a network again.
    PortActive = 9,
    /// The port has lost its last address that others reach.
    PortError = 10,
    /// A shared receive queue ran low.
    SrqLimitReached = 15,
    /// A queue pair in error takes no more from its shared receive queue.
    LastWqeReached = 16,
    /// The port's addresses changed.
    GidChange = 18,
}

/// A pipe of 16-byte events: blocking or not for its reader, as the reader sets it.
#[derive(Debug)]
pub struct EventPipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl EventPipe {
    /// An empty pipe whose reading end blocks.
    pub fn new() -> io::Result<Self> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        rustix::fs::fcntl_setfl(&write, OFlags::NONBLOCK)?;
        Ok(Self { read, write })
    }

    /// Adds an event. If the reader has left thousands unread, it is dropped: those unread already
    /// make the descriptor ready.
    pub fn raise(&self, kind: u64, id: u64) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&kind.to_ne_bytes());
        bytes[8..].copy_from_slice(&id.to_ne_bytes());
        let _ = rustix::io::write(&self.write, &bytes);
    }

    /// Takes the next event; blocks if the descriptor does.
    ///
    /// C programs end threads that wait here with `pthread_cancel(3)`, as they may with rdma-core's
    /// library: the read is the C library's, and nothing between it and the program is to be dropped.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if there is none and the descriptor does not block, `EINTR` if a signal ends the wait.
    pub fn take(&self) -> io::Result<(u64, u64)> {
        let mut bytes = [0_u8; 16];
        // SAFETY: the kernel writes as many bytes as there is room for.
        let count =
            unsafe { libc::read(self.read.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
        match usize::try_from(count) {
            Err(_) => return Err(io::Error::last_os_error()),
            Ok(count) if count != bytes.len() => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
        }
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        Ok((word(0), word(8)))
    }

    /// The reading end.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }
}

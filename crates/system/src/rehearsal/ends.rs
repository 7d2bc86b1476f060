//! How the command learns by what a process has ended, although another process waits for it.
//!
//! A process that joins sends the command a descriptor of itself (`pidfd_open(2)`), by a socket in the directory. When it
//! has ended and its parent has waited for it, the kernel answers by what it has ended (since Linux 6.15).

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, sendmsg_addr, socket_with,
};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

/// The name of the socket in the directory.
const SOCKET: &str = "ends";
/// How long a process waits for the command to take the descriptors of others.
const PATIENCE: Duration = Duration::from_secs(1);

/// A directory, and the address of the socket in it. The path of a directory may be too long for an address.
///
/// # Errors
///
/// Those of opening the directory.
pub fn address(directory: &Path) -> io::Result<(OwnedFd, SocketAddrUnix)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, Mode::empty())?;
    let path = format!("/proc/thread-self/fd/{}/{SOCKET}", directory.as_raw_fd());
    Ok((directory, SocketAddrUnix::new(path)?))
}

/// A socket for such messages.
///
/// # Errors
///
/// Those of `socket(2)`.
pub fn socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

/// Sends the command a descriptor of this process, which has this number in the run. It fails if no command listens.
pub(super) fn announce(directory: &Path, process: u32) -> io::Result<()> {
    let (_directory, address) = address(directory)?;
    let (socket, own) = (socket()?, pidfd_open(getpid(), PidfdFlags::empty())?);
    set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    let descriptors: [BorrowedFd<'_>; 1] = [own.as_fd()];
    message.push(SendAncillaryMessage::ScmRights(&descriptors));
    let number = process.to_ne_bytes();
    sendmsg_addr(&socket, &address, &[IoSlice::new(&number)], &mut message, SendFlags::NOSIGNAL)?;
    Ok(())
}

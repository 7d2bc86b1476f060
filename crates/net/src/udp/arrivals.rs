//! Receiving: datagrams that came together stay together.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use libc::{iovec, mmsghdr, msghdr, sockaddr_storage};

use super::control::{CONTROL, Control, Received};
use super::socket::{self, retry};

/// Bursts taken by one system call.
const BATCH: usize = 8;

/// Room for the longest burst, which is more than the longest datagram, and for the head of one that was handed on.
pub(super) const ROOM: usize = (64 << 10) + 64;

/// Datagrams from one sender to one process that came one after the other.
///
/// All have the same length, but the last may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagrams<'a> {
    /// The sender's address and port.
    pub from: SocketAddr,
    /// The address they were sent to.
    pub to: IpAddr,
    /// TOS or traffic class, of all of them.
    pub tos: u8,
    /// TTL or hop limit as it arrived.
    pub ttl: u8,
    /// Number of the first one in the burst that arrived, from zero. In a burst that one call sent, the IPv4
    /// identifications count like these numbers. In a burst that a network card has put together, they may all be the
    /// same.
    pub first: usize,
    /// Bytes of each datagram.
    pub segment: usize,
    /// All of them.
    pub bytes: &'a [u8],
}

impl<'a> Datagrams<'a> {
    /// Each datagram's UDP payload, in the order of arrival.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        self.bytes.chunks(self.segment)
    }
}

/// Room for arriving datagrams, allocated once.
pub struct Arrivals {
    bytes: Vec<u8>,
    addresses: Vec<sockaddr_storage>,
    controls: Vec<Control>,
    /// The last call has found as much as it asked for.
    more: bool,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self {
            bytes: vec![0; BATCH * ROOM],
            // SAFETY: all zeros is a valid `sockaddr_storage`.
            addresses: vec![unsafe { std::mem::zeroed() }; BATCH],
            controls: vec![Control::EMPTY; BATCH],
            more: false,
        }
    }
}

impl Arrivals {
    /// Room for one burst.
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[..ROOM]
    }

    /// Whether more is likely to lie in the socket.
    pub fn expect_more(&self) -> bool {
        self.more
    }

    /// Takes up to `limit` bursts from a socket, at most as many as one call takes. `each` gets every burst, or `None`
    /// for one that did not fit, and the number of datagrams that the socket has lost so far.
    pub(super) fn receive(
        &mut self,
        socket: &OwnedFd,
        limit: usize,
        mut each: impl FnMut(Option<Datagrams<'_>>, Option<u32>),
    ) -> io::Result<Taken> {
        let asked = limit.min(BATCH);
        let mut parts = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BATCH];
        for (part, room) in parts.iter_mut().zip(self.bytes.chunks_mut(ROOM)).take(asked) {
            *part = iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        }
        // SAFETY: all zeros is a valid `mmsghdr`.
        let mut messages: [mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        let rooms = self.addresses.iter_mut().zip(&mut self.controls).zip(&mut parts);
        for (message, ((address, control), part)) in messages.iter_mut().zip(rooms).take(asked) {
            message.msg_hdr = msghdr {
                msg_name: std::ptr::from_mut(address).cast(),
                msg_namelen: size_of::<sockaddr_storage>() as u32,
                msg_iov: part,
                msg_iovlen: 1,
                msg_control: control.as_mut_ptr(),
                msg_controllen: CONTROL,
                // SAFETY: all zeros is a valid `msghdr`.
                ..unsafe { std::mem::zeroed() }
            };
        }
        let received = retry(|| {
            let (fd, flags) = (socket.as_raw_fd(), libc::MSG_DONTWAIT);
            // For one burst `recvmsg` needs no list. Most polls find nothing, and find that sooner in this way.
            if asked == 1 {
                let message = &mut messages[0];
                // SAFETY: the message points to room of its own in this value, which nobody else uses until
                // the call has returned.
                let length = unsafe {
                    libc::syscall(libc::SYS_recvmsg, fd, &raw mut message.msg_hdr, flags)
                };
                message.msg_len = length.max(0) as u32;
                return if length < 0 { -1 } else { 1 };
            }
            let no_timeout = std::ptr::null_mut::<libc::timespec>();
            // SAFETY: as above, of each message.
            let received = unsafe {
                let messages = messages.as_mut_ptr();
                libc::syscall(libc::SYS_recvmmsg, fd, messages, asked as u32, flags, no_timeout)
            };
            received as isize
        });
        let received = match received {
            Ok(received) => received as usize,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        self.more = received == asked;
        let rooms = self.bytes.chunks(ROOM).zip(&self.addresses).zip(&self.controls);
        for (message, ((room, address), control)) in messages.iter().zip(rooms).take(received) {
            let header = &message.msg_hdr;
            let said = Received::read(control, header.msg_controllen);
            let whole = header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) == 0;
            let from = socket::address(address).filter(|_| whole);
            let bytes = &room[..(message.msg_len as usize).min(ROOM)];
            let datagrams = from.zip(said.to).map(|(from, to)| Datagrams {
                from,
                to,
                tos: said.tos,
                ttl: said.ttl,
                first: 0,
                segment: said.segment.unwrap_or(bytes.len()).max(1),
                bytes,
            });
            each(datagrams, said.lost);
        }
        Ok(Taken { bursts: received, all: received < asked })
    }
}

/// The result of one call.
pub(super) struct Taken {
    pub(super) bursts: usize,
    /// Nothing is left.
    pub(super) all: bool,
}

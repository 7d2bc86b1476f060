//! Hands packets on to their process, through its socket in the registry's directory. No other user can enter that
//! directory.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering::*};

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrUnix};
use rustix::net::{SocketFlags, SocketType};
use transom_system::descriptor;
use transom_system::registry::Registry;

use super::Datagrams;
use super::steering::Steering;

/// The head of datagrams that are handed on: source address and port, destination, TOS, TTL, the number of the first
/// datagram, the length of each.
const HEAD: usize = 16 + 2 + 16 + 1 + 1 + 2 + 4;

/// The socket through which others hand packets on to this process.
pub(super) struct Forward {
    socket: OwnedFd,
    registry: &'static Registry,
    /// The number of messages that were handed on to this process, by the shared table, when it last found none.
    taken: AtomicU32,
}

impl Forward {
    /// Opens the socket. Its name goes when the slot is left.
    pub(super) fn open(
        registry: &'static Registry,
        slot: u8,
        steering: &Steering,
    ) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        let socket = descriptor::high(socket);
        let path = registry.socket_path(slot);
        // The socket of a port that this process had before.
        let _ = rustix::fs::unlink(&path);
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path)?)?;
        // The file mode creation mask may have taken all rights away.
        rustix::fs::chmod(&path, Mode::RWXU)?;
        Ok(Self { socket, registry, taken: steering.handed().into() })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Hands datagrams on to the process in a slot. If it is too slow for them, they are lost, as at its own socket.
    pub(super) fn send(
        &self,
        slot: u8,
        datagrams: &Datagrams<'_>,
        steering: &Steering,
    ) -> io::Result<()> {
        self.send_to(&SocketAddrUnix::new(self.registry.socket_path(slot))?, datagrams)?;
        steering.note_handed(slot);
        Ok(())
    }

    /// The same, to a socket of this name.
    pub(super) fn send_to(&self, to: &SocketAddrUnix, datagrams: &Datagrams<'_>) -> io::Result<()> {
        let head = head(datagrams);
        let parts = [IoSlice::new(&head), IoSlice::new(datagrams.bytes)];
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let mut nothing = SendAncillaryBuffer::default();
        rustix::net::sendmsg_addr(&self.socket, to, &parts, &mut nothing, flags)?;
        Ok(())
    }

    /// How many messages were handed on to this process, if it may not have taken all of them. Once
    /// [`Forward::receive`] finds none, [`Forward::note_taken`] gets this number.
    pub(super) fn count(&self, steering: &Steering) -> Option<u32> {
        let handed = steering.handed();
        (handed != self.taken.load(Relaxed)).then_some(handed)
    }

    /// This many were handed on, and none of them is left.
    pub(super) fn note_taken(&self, handed: u32) {
        self.taken.store(handed, Relaxed);
    }

    /// Something has been handed on that may not have been counted.
    pub(super) fn expect_more(&self, steering: &Steering) {
        self.note_taken(steering.handed().wrapping_sub(1));
    }

    /// Takes the oldest message into `room`. The inner value is `None` if it holds no datagrams.
    pub(super) fn receive<'a>(&self, room: &'a mut [u8]) -> Option<Option<Datagrams<'a>>> {
        let length = loop {
            match rustix::net::recv(&self.socket, &mut *room, RecvFlags::DONTWAIT) {
                Ok((length, _)) => break length,
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        };
        Some(parse(&room[..length]))
    }
}

pub(crate) fn head(datagrams: &Datagrams<'_>) -> [u8; HEAD] {
    let bytes = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    let mut head = [0; HEAD];
    head[..16].copy_from_slice(&bytes(datagrams.from.ip()));
    head[16..18].copy_from_slice(&datagrams.from.port().to_ne_bytes());
    head[18..34].copy_from_slice(&bytes(datagrams.to));
    head[34] = datagrams.tos;
    head[35] = datagrams.ttl;
    head[36..38].copy_from_slice(&(datagrams.first as u16).to_ne_bytes());
    head[38..].copy_from_slice(&(datagrams.segment as u32).to_ne_bytes());
    head
}

/// Reads the datagrams behind a [`head`].
pub(crate) fn parse(message: &[u8]) -> Option<Datagrams<'_>> {
    let (head, bytes) = message.split_first_chunk::<HEAD>()?;
    let ip = |at: usize| {
        let octets: [u8; 16] = *head[at..].first_chunk().expect("within the head");
        IpAddr::V6(Ipv6Addr::from(octets)).to_canonical()
    };
    let short = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]);
    let segment = u32::from_ne_bytes(*head.last_chunk().expect("within the head"));
    Some(Datagrams {
        from: SocketAddr::new(ip(0), short(16)),
        to: ip(18),
        tos: head[34],
        ttl: head[35],
        first: short(36).into(),
        segment: (segment as usize).max(1),
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_changes_on_the_way() {
        let addresses = [("10.0.0.1:50000", "10.0.0.2"), ("[fd00::1]:50000", "fd00::2")];
        for (from, to) in addresses {
            let sent = Datagrams {
                from: from.parse().expect("an address"),
                to: to.parse().expect("an address"),
                tos: 0x6a,
                ttl: 63,
                first: 9,
                segment: 4,
                bytes: b"abcdefghij",
            };
            let message = [&head(&sent)[..], sent.bytes].concat();
            assert_eq!(parse(&message), Some(sent));
            assert_eq!(parse(&message[..HEAD - 1]), None);
        }
    }
}

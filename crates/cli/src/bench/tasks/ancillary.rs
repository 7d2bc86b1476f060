//! The options of sockets. And UDP sockets that say and hear of each datagram what RoCEv2 needs: addresses, traffic
//! class, hop limit.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use libc::{c_int, msghdr};

use crate::failure::{Failure, Result};

/// Room for all control messages of a datagram, in words.
const ROOM: usize = 32;
/// The bytes before the content of a control message: its length, level and kind.
const HEAD: usize = size_of::<libc::cmsghdr>();

/// A socket for both families. The kernel tells it of each datagram what it knows.
pub(super) fn inbound() -> Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).map_err(trouble)?;
    for (level, option) in [
        (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
        (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
        (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT),
        (libc::IPPROTO_IP, libc::IP_RECVTOS),
        (libc::IPPROTO_IP, libc::IP_RECVTTL),
        (libc::SOL_SOCKET, libc::SO_RXQ_OVFL),
    ] {
        set(&socket, level, option, 1)?;
    }
    Ok(socket)
}

/// Takes a datagram with what the kernel tells of it, which nobody reads.
pub(super) fn receive(socket: &UdpSocket, bytes: &mut [u8]) -> io::Result<usize> {
    // SAFETY: all zeros is a valid `sockaddr_storage`.
    let mut from: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut control = [0_u64; ROOM];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut message = empty();
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    message.msg_name = (&raw mut from).cast();
    message.msg_namelen = size_of_val(&from) as libc::socklen_t;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: the message points to room that lives until the call has returned.
    done(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) })
}

/// What the kernel is told of each datagram that goes one way.
pub(super) struct Ancillary {
    to: libc::sockaddr_in,
    control: [u64; ROOM],
    /// Bytes of them.
    length: usize,
}

impl Ancillary {
    pub(super) fn new(from: Ipv4Addr, to: SocketAddr) -> Self {
        let SocketAddr::V4(to) = to else { unreachable!("both ends have addresses of IPv4") };
        // The interface, which the kernel finds, the source, and the destination, which only receiving fills in.
        let mut information = [0; 12];
        information[4..8].copy_from_slice(&from.octets());
        let mut bytes = Vec::new();
        add(&mut bytes, libc::IP_PKTINFO, &information);
        add(&mut bytes, libc::IP_TOS, &c_int::to_ne_bytes(0));
        add(&mut bytes, libc::IP_TTL, &c_int::to_ne_bytes(64));
        let mut control = [0; ROOM];
        for (word, bytes) in control.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        let to = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: to.port().to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(to.ip().octets()) },
            sin_zero: [0; 8],
        };
        Self { to, control, length: bytes.len() }
    }

    pub(super) fn send(&self, socket: &UdpSocket, bytes: &[u8]) -> io::Result<usize> {
        let base = bytes.as_ptr().cast_mut().cast();
        let mut part = libc::iovec { iov_base: base, iov_len: bytes.len() };
        let mut message = empty();
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        message.msg_name = (&raw const self.to).cast_mut().cast();
        message.msg_namelen = size_of_val(&self.to) as libc::socklen_t;
        message.msg_control = self.control.as_ptr().cast_mut().cast();
        message.msg_controllen = self.length;
        // SAFETY: the message points to what lives until the call has returned, and the kernel only reads it.
        done(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) })
    }
}

/// Adds a control message of IPv4.
fn add(control: &mut Vec<u8>, kind: c_int, value: &[u8]) {
    control.extend((HEAD + value.len()).to_ne_bytes());
    control.extend(libc::IPPROTO_IP.to_ne_bytes());
    control.extend(kind.to_ne_bytes());
    control.extend(value);
    control.resize(control.len().next_multiple_of(size_of::<u64>()), 0);
}

fn empty() -> msghdr {
    // SAFETY: all zeros is a valid `msghdr`.
    unsafe { std::mem::zeroed() }
}

fn done(answer: isize) -> io::Result<usize> {
    usize::try_from(answer).map_err(|_| io::Error::last_os_error())
}

/// Sets an option of a socket.
pub(super) fn set(socket: &UdpSocket, level: c_int, option: c_int, value: c_int) -> Result {
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the socket is open, and the kernel reads the value, which has that length.
    let done = unsafe {
        let value = (&raw const value).cast();
        libc::setsockopt(socket.as_raw_fd(), level, option, value, length)
    };
    if done == 0 { Ok(()) } else { Err(trouble(io::Error::last_os_error())) }
}

pub(super) fn trouble(error: io::Error) -> Failure {
    Failure::new(format!("a socket: {error}"))
}

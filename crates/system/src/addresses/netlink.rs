//! The interfaces and addresses of this network namespace, as the kernel lists them.
//!
//! `getifaddrs` would tell less: it does not say which IPv6 addresses are temporary or still being tested. And
//! `/sys/class/net` may show another namespace.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::descriptor;

/// A network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) index: u32,
    /// Up, and with a carrier.
    pub(super) running: bool,
    pub(super) loopback: bool,
    pub(super) mtu: u32,
    pub(super) hardware: Hardware,
}

/// A hardware address, padded with zeros. No kind is longer than the kernel's `MAX_ADDR_LEN`.
pub(super) type Hardware = [u8; 32];

/// An address of an interface that may be used as a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Assigned {
    pub(super) interface: u32,
    pub(super) address: IpAddr,
}

/// The size of the buffer for one answer, in bytes. The kernel never sends more than 32 KiB at once.
const ANSWER: usize = 64 << 10;

/// `struct nlmsghdr`.
const HEADER: usize = 16;

/// The name of an interface.
pub(super) fn interface_name(index: u32) -> Option<String> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None);
    rustix::net::netdevice::index_to_name(socket.ok()?, index).ok()
}

/// The index of the interface of a name.
pub(super) fn interface_index(name: &str) -> Option<u32> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None);
    rustix::net::netdevice::name_to_index(socket.ok()?, name).ok()
}

/// Tells when interfaces or addresses change.
pub(super) struct Watch(OwnedFd);

impl Watch {
    pub(super) fn new() -> io::Result<Self> {
        let groups = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
        Ok(Self(open(groups as u32)?))
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Whether any message came since the last call. Its content does not matter: the lists are read again.
    pub(super) fn drain(&self) -> bool {
        let mut told = false;
        let mut answer = [0; 4096];
        loop {
            match rustix::net::recv(&self.0, &mut answer, RecvFlags::DONTWAIT) {
                // There were more messages than the socket could hold.
                Ok(_) | Err(Errno::NOBUFS) => told = true,
                Err(Errno::INTR) => {}
                Err(_) => return told,
            }
        }
    }
}

fn open(groups: u32) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    let socket = descriptor::high(socket);
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// The interfaces and their addresses, each in the kernel's order.
pub(super) fn list() -> io::Result<(Vec<Interface>, Vec<Assigned>)> {
    let socket = open(0)?;
    let mut interfaces = Vec::new();
    dump(&socket, libc::RTM_GETLINK, |body| interfaces.extend(interface(body)))?;
    let mut addresses = Vec::new();
    dump(&socket, libc::RTM_GETADDR, |body| addresses.extend(assigned(body)))?;
    Ok((interfaces, addresses))
}

/// Asks for a whole list and hands out each message's body.
fn dump(socket: &OwnedFd, kind: u16, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    // A header, and a body that is all zeros: every family, every interface.
    let mut request = [0; HEADER + 16];
    let length = request.len() as u32;
    request[0..4].copy_from_slice(&length.to_ne_bytes());
    request[4..6].copy_from_slice(&kind.to_ne_bytes());
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    request[6..8].copy_from_slice(&flags.to_ne_bytes());
    rustix::net::sendto(socket, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = vec![0; ANSWER];
    loop {
        let (length, _) = match rustix::net::recv(socket, &mut answer[..], RecvFlags::empty()) {
            Err(Errno::INTR) => continue,
            received => received?,
        };
        if is_last(&answer[..length], &mut each)? {
            return Ok(());
        }
    }
}

/// Hands out the bodies of the messages in a part of an answer. Returns whether it is the last part.
fn is_last(mut part: &[u8], each: &mut impl FnMut(&[u8])) -> io::Result<bool> {
    while let Some((kind, body, after)) = message(part) {
        match i32::from(kind) {
            libc::NLMSG_DONE => return Ok(true),
            libc::NLMSG_ERROR => {
                let code = body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                return Err(io::Error::from_raw_os_error(code.saturating_neg()));
            }
            _ => each(body),
        }
        part = after;
    }
    Ok(false)
}

/// A part of an answer, for the fuzz target. Whatever it says, it yields no more than it has bytes for.
#[cfg(debug_assertions)]
pub(crate) fn fuzz(part: &[u8]) {
    let mut count = 0;
    let _ = is_last(part, &mut |body| {
        count += 1;
        let _ = interface(body);
        let _ = assigned(body);
    });
    assert!(count <= part.len() / HEADER);
}

/// The type and body of the first message, and the rest behind it.
fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let body = bytes.get(HEADER..length)?;
    Some((kind, body, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// The value of an attribute among those of a message.
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16::from_ne_bytes(*attributes.first_chunk()?));
        let kind = u16::from_ne_bytes(*attributes.get(2..)?.first_chunk()?);
        let value = attributes.get(4..length)?;
        if kind == wanted {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.first_chunk()?))
}

/// `struct ifinfomsg`: family, type, index, flags; then attributes.
fn interface(body: &[u8]) -> Option<Interface> {
    let flags = number(body.get(8..)?)?;
    let has = |flag: i32| flags & flag as u32 == flag as u32;
    Some(Interface {
        index: number(body.get(4..)?)?,
        running: has(libc::IFF_UP | libc::IFF_LOWER_UP),
        loopback: has(libc::IFF_LOOPBACK),
        mtu: attribute(body.get(16..)?, libc::IFLA_MTU).and_then(number)?,
        hardware: attribute(body.get(16..)?, libc::IFLA_ADDRESS).map(padded).unwrap_or_default(),
    })
}

fn padded(address: &[u8]) -> Hardware {
    let mut hardware = Hardware::default();
    hardware.iter_mut().zip(address).for_each(|(byte, given)| *byte = *given);
    hardware
}

/// `struct ifaddrmsg`: family, prefix length, flags, scope, interface; then attributes.
fn assigned(body: &[u8]) -> Option<Assigned> {
    let [family, _, flags, ..] = *body else { return None };
    let attributes = body.get(8..)?;
    let flags = attribute(attributes, libc::IFA_FLAGS).and_then(number).unwrap_or(flags.into());
    // On a point-to-point link the other attribute is the address of the far end.
    let own = attribute(attributes, libc::IFA_LOCAL);
    let own = own.or_else(|| attribute(attributes, libc::IFA_ADDRESS))?;
    let address = match i32::from(family) {
        libc::AF_INET => IpAddr::from(<[u8; 4]>::try_from(own).ok()?),
        // A temporary one (privacy extensions) is gone within days.
        libc::AF_INET6 if flags & libc::IFA_F_TEMPORARY == 0 => {
            IpAddr::from(<[u8; 16]>::try_from(own).ok()?)
        }
        _ => return None,
    };
    // Skip an address that is still being tested, or that is not for new connections. A link-local one is made of the
    // hardware address. Its place in the table must not depend on how long ago the interface came up.
    let unusable = match address {
        IpAddr::V6(address) if address.is_unicast_link_local() => libc::IFA_F_DADFAILED,
        _ => libc::IFA_F_TENTATIVE | libc::IFA_F_DADFAILED | libc::IFA_F_DEPRECATED,
    };
    if flags & unusable != 0 {
        return None;
    }
    Some(Assigned { interface: number(body.get(4..)?)?, address })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel has no error number below -4095, but the type has a larger range.
    #[test]
    fn an_error_of_any_number_is_an_error() {
        for code in [-libc::EPERM, 0, i32::MAX, i32::MIN] {
            let length = (HEADER + 4) as u32;
            let kind = libc::NLMSG_ERROR as u16;
            let mut part = [0; HEADER + 4];
            part[..4].copy_from_slice(&length.to_ne_bytes());
            part[4..6].copy_from_slice(&kind.to_ne_bytes());
            part[HEADER..].copy_from_slice(&code.to_ne_bytes());
            let told = is_last(&part, &mut |_| ()).unwrap_err();
            assert_eq!(told.raw_os_error(), Some(code.saturating_neg()));
        }
    }
}

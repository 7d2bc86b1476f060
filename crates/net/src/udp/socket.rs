//! UDP sockets as the kernel has them: opening the one that receives, options, addresses, system calls.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libc::c_int;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use tracing::debug;
use transom_system::descriptor;
use transom_wire::packet::PORT;

/// Bytes that we ask for in a socket's buffers. The kernel counts its own overhead in, so half of them hold data. It
/// gives less if the system's limit (`net.core.rmem_max`) is lower.
pub const ROOM: usize = 4 << 20;

/// Any address of IPv6, which includes IPv4; or of IPv4, if the kernel has no IPv6.
const ANY_V6: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), PORT);
const ANY_V4: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT);

/// The receiving socket, not on the port yet. It is for both families, so that there is one order to steer by.
pub(super) fn open_receiving() -> io::Result<OwnedFd> {
    let (socket, at) = match open(ANY_V6) {
        // A kernel without IPv6.
        Err(Errno::AFNOSUPPORT) => (open(ANY_V4)?, ANY_V4),
        opened => (opened?, ANY_V6),
    };
    let on = |level, option| set(&socket, level, option, &1_i32);
    // Only the groups that it joins itself, and not those that any socket of the host has joined. Old kernels have the
    // option for IPv4 alone.
    let joined_only = |level, option| drop(set(&socket, level, option, &0_i32));
    joined_only(libc::IPPROTO_IP, libc::IP_MULTICAST_ALL);
    if at.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, false)?;
        joined_only(libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL);
        on(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)?;
        on(libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS)?;
        on(libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT)?;
        // RoCEv2 packets have no UDP checksum over IPv6 either (rule NET-04).
        on(libc::SOL_UDP, libc::UDP_NO_CHECK6_RX)?;
    } else {
        // A socket of both families reports IPv4 by IPV6_PKTINFO too.
        on(libc::IPPROTO_IP, libc::IP_PKTINFO)?;
    }
    on(libc::IPPROTO_IP, libc::IP_RECVTOS)?;
    on(libc::IPPROTO_IP, libc::IP_RECVTTL)?;
    on(libc::SOL_SOCKET, libc::SO_RXQ_OVFL)?;
    // Without it each datagram comes alone, which is only slower.
    if let Err(error) = on(libc::SOL_UDP, libc::UDP_GRO) {
        debug!(%error, "datagrams come one by one");
    }
    if sockopt::set_socket_recv_buffer_size_force(&socket, ROOM).is_err() {
        sockopt::set_socket_recv_buffer_size(&socket, ROOM)?;
    }
    sockopt::set_socket_reuseport(&socket, true)?;
    Ok(socket)
}

/// Lets a receiving socket share the port, at any address, with the other processes of this user.
pub(super) fn enter_port(socket: &OwnedFd) -> io::Result<()> {
    let is_v6 = sockopt::socket_domain(socket)? == AddressFamily::INET6;
    Ok(bind(socket, if is_v6 { ANY_V6 } else { ANY_V4 })?)
}

/// Whether an address is one of this network namespace. If it is, the kernel sends packets for it from this same
/// address.
pub(super) fn is_of_this_host(address: IpAddr) -> bool {
    let to = SocketAddr::new(address, PORT);
    let from = || {
        let socket = open(to).ok()?;
        rustix::net::connect(&socket, &to).ok()?;
        SocketAddr::try_from(rustix::net::getsockname(&socket).ok()?).ok()
    };
    address.is_loopback() || from().is_some_and(|from| from.ip() == address)
}

/// Takes a receiving socket out of the kernel's list of those that share the port, though other processes have it open
/// too. Datagrams that have arrived stay in it, and no more come.
///
/// The kernel takes a socket out when it gets an address of its own, as a connected one does. Without a loopback
/// interface the socket cannot be connected. Then it stays until it is closed everywhere, and this returns false.
pub(super) fn leave_port(socket: &OwnedFd) -> bool {
    // An address that nobody else has, so that packets for this host do not come here meanwhile.
    let nobody = Ipv4Addr::new(127, 179, 18, 183);
    let to = match sockopt::socket_domain(socket) {
        Ok(AddressFamily::INET6) => SocketAddr::from((nobody.to_ipv6_mapped(), PORT)),
        _ => SocketAddr::from((nobody, PORT)),
    };
    let connected = rustix::net::connect(socket, &to);
    if let Err(error) = connected {
        debug!(%error, "the socket shares the port until it is closed");
    }
    connected.is_ok()
}

/// Joins a group on an interface. If it has joined already, nothing changes.
pub(super) fn join(socket: &OwnedFd, group: IpAddr, interface: u32) -> io::Result<()> {
    let any = Ipv4Addr::UNSPECIFIED;
    let joined = match group {
        IpAddr::V4(group) => {
            sockopt::set_ip_add_membership_with_ifindex(socket, &group, &any, interface)
        }
        IpAddr::V6(group) => sockopt::set_ipv6_add_membership(socket, &group, interface),
    };
    match joined {
        Err(Errno::ADDRINUSE) => Ok(()),
        joined => Ok(joined?),
    }
}

/// Leaves it.
pub(super) fn leave(socket: &OwnedFd, group: IpAddr, interface: u32) -> io::Result<()> {
    let any = Ipv4Addr::UNSPECIFIED;
    Ok(match group {
        IpAddr::V4(group) => {
            sockopt::set_ip_drop_membership_with_ifindex(socket, &group, &any, interface)
        }
        IpAddr::V6(group) => sockopt::set_ipv6_drop_membership(socket, &group, interface),
    }?)
}

pub(super) fn open(for_address: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = match for_address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, SocketType::DGRAM, flags, None).map(descriptor::high)
}

pub(super) fn bind(socket: &OwnedFd, at: SocketAddr) -> rustix::io::Result<()> {
    rustix::net::bind(socket, &at)
}

/// Sets an option that `rustix` does not have.
pub(super) fn set<T: Copy>(
    socket: &OwnedFd,
    level: c_int,
    option: c_int,
    value: &T,
) -> io::Result<()> {
    let length = size_of::<T>() as u32;
    // SAFETY: the kernel reads `length` bytes of `value`, which lives that long.
    let done = unsafe {
        let value = std::ptr::from_ref(value).cast();
        libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, value, length)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives a socket, or the group it shares its port with, a classic BPF program.
pub(super) fn filter(
    socket: &OwnedFd,
    option: c_int,
    program: &[libc::sock_filter],
) -> io::Result<()> {
    // The kernel copies the program and does not write to it.
    let filter = program.as_ptr().cast_mut();
    let program = libc::sock_fprog { len: program.len() as u16, filter };
    set(socket, libc::SOL_SOCKET, option, &program)
}

/// One instruction of a classic BPF program.
pub(super) fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// Repeats a system call after a signal, or after an error of an earlier datagram: if a datagram came to nobody, the
/// next call on its socket fails for that once, and the call after it does not.
///
/// It is for calls by their number. The C library's functions are cancellation points: a thread of the program could be
/// cancelled there while it holds our locks.
pub(super) fn retry(mut call: impl FnMut() -> isize) -> io::Result<isize> {
    let mut is_second = false;
    loop {
        let answer = call();
        if answer >= 0 {
            return Ok(answer);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR | libc::ECONNREFUSED) => {}
            Some(libc::EAGAIN) => return Err(error),
            _ if is_second => return Err(error),
            _ => is_second = true,
        }
    }
}

/// Reads an address that the kernel wrote. On a socket of both families, IPv4 addresses come mapped.
pub(super) fn address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says what it is, and a `sockaddr_storage` holds and aligns any.
            let address = unsafe { &*std::ptr::from_ref(storage).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(address.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let address = unsafe { &*std::ptr::from_ref(storage).cast::<libc::sockaddr_in6>() };
            let (ip, port) = (Ipv6Addr::from(address.sin6_addr.s6_addr), address.sin6_port);
            let port = u16::from_be(port);
            Some(match ip.to_ipv4_mapped() {
                Some(ip) => SocketAddrV4::new(ip, port).into(),
                None => SocketAddrV6::new(ip, port, 0, address.sin6_scope_id).into(),
            })
        }
        _ => None,
    }
}

/// An address for the kernel to read, and its length.
pub(super) fn encode(address: SocketAddr) -> (libc::sockaddr_storage, u32) {
    // SAFETY: all zeros is a valid `sockaddr_storage`.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let start = &raw mut storage;
    let length = match address {
        SocketAddr::V4(address) => {
            let address = libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: a `sockaddr_storage` has room for any address, and its alignment.
            unsafe { start.cast::<libc::sockaddr_in>().write(address) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(address) => {
            let address = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            };
            // SAFETY: as above.
            unsafe { start.cast::<libc::sockaddr_in6>().write(address) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, length as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_the_same_on_the_way_back() {
        for text in ["10.1.2.3:4791", "[fd00::7]:49152"] {
            let written: SocketAddr = text.parse().expect("an address");
            assert_eq!(address(&encode(written).0), Some(written));
        }
        let mapped = encode("[::ffff:10.1.2.3]:4791".parse().expect("an address")).0;
        assert_eq!(address(&mapped), "10.1.2.3:4791".parse().ok());
    }
}

//! A socket of the system's in the place of an rsocket that could not be connected: all that the program has
//! asked of the one holds for the other.

use std::ffi::c_int;

use libc::{sockaddr, sockaddr_storage, socklen_t};
use transom_thread::errno;

use crate::descriptors::stands_for_none;
use crate::next::next;
use crate::rsockets::Rsockets;
use crate::{epoll, table};

mod real {
    use super::*;

    next! {
        fn close(fd: c_int) -> c_int;
        fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int;
        fn bind(fd: c_int, addr: *const sockaddr, length: socklen_t) -> c_int;
        fn getsockname(fd: c_int, addr: *mut sockaddr, length: *mut socklen_t) -> c_int;
        fn setsockopt(
            fd: c_int,
            level: c_int,
            name: c_int,
            value: *const std::ffi::c_void,
            length: socklen_t
        ) -> c_int;
    }
}

/// Options that rsockets and the system's have.
const OPTIONS: [(c_int, c_int); 22] = [
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::SOL_SOCKET, libc::SO_DONTROUTE),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
    (libc::SOL_SOCKET, libc::SO_RCVBUF),
    (libc::SOL_SOCKET, libc::SO_SNDBUF),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_CORK),
    (libc::IPPROTO_TCP, libc::TCP_QUICKACK),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
];

/// An address and its length.
pub(crate) type Address = (sockaddr_storage, socklen_t);

/// The port of an address, which IPv6 has in the same place as IPv4.
fn port_of(address: &sockaddr_storage) -> u16 {
    // SAFETY: both families' addresses fit, and so does a port of either.
    unsafe { (*std::ptr::from_ref(address).cast::<libc::sockaddr_in>()).sin_port }
}

/// An address that leaves its port to the system, with a port that no socket of the system's has.
///
/// # Safety
/// The address is null or as long as that.
pub(crate) unsafe fn with_free_port(addr: *const sockaddr, length: socklen_t) -> Option<Address> {
    let short = (length as usize) < size_of::<libc::sockaddr_in>();
    // SAFETY: all zeroes are an address of no family.
    let mut address: sockaddr_storage = unsafe { std::mem::zeroed() };
    if addr.is_null() || short || length as usize > size_of_val(&address) {
        return None;
    }
    // SAFETY: by the contract of this function, and there is room for it.
    unsafe { (&raw mut address).cast::<u8>().copy_from(addr.cast(), length as usize) };
    let domain = c_int::from(address.ss_family);
    if port_of(&address) != 0 || !matches!(domain, libc::AF_INET | libc::AF_INET6) {
        return None;
    }
    // SAFETY: any socket may be made, which is nobody else's.
    let made = unsafe {
        libc::syscall(libc::SYS_socket, domain, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) as c_int
    };
    let mut room = length;
    // SAFETY: a socket of this function's own, or none, and room for the address.
    let chosen = unsafe {
        real::bind(made, (&raw const address).cast(), length) == 0
            && real::getsockname(made, (&raw mut address).cast(), &mut room) == 0
    };
    if made >= 0 {
        // SAFETY: it is this function's own.
        unsafe { real::close(made) };
    }
    chosen.then_some((address, length))
}

/// The address that the program has bound an rsocket to, if it has.
pub(crate) fn bound(number: c_int, rsockets: &Rsockets) -> Option<Address> {
    // SAFETY: all zeroes are an address of no family.
    let mut address: sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut length = size_of::<sockaddr_storage>() as socklen_t;
    // SAFETY: there is room for every address.
    let told =
        unsafe { (rsockets.rgetsockname)(number, (&raw mut address).cast(), &mut length) } == 0;
    (told && port_of(&address) != 0).then_some((address, length))
}

/// An option of an rsocket, if it has it.
fn option(
    number: c_int,
    (level, name): (c_int, c_int),
    rsockets: &Rsockets,
) -> Option<([u8; 16], socklen_t)> {
    let mut value = [0_u8; 16];
    let mut length = value.len() as socklen_t;
    let at = value.as_mut_ptr().cast();
    // SAFETY: so much room.
    let got = unsafe { (rsockets.rgetsockopt)(number, level, name, at, &mut length) };
    (got == 0 && length as usize <= value.len()).then_some((value, length))
}

fn number_of(option: ([u8; 16], socklen_t)) -> c_int {
    let [a, b, c, d, ..] = option.0;
    c_int::from_ne_bytes([a, b, c, d])
}

/// Puts a socket of the system's in the place of an rsocket, bound to the same address.
pub(crate) fn replace(
    fd: c_int,
    number: c_int,
    bound: Option<Address>,
    rsockets: &Rsockets,
) -> Result<(), c_int> {
    let domain = option(number, (libc::SOL_SOCKET, libc::SO_DOMAIN), rsockets);
    let domain = domain.map_or(libc::AF_INET, number_of);
    // SAFETY: flags of an open rsocket; then any socket may be made, which is nobody else's.
    let made = unsafe {
        let flags = (rsockets.rfcntl)(number, libc::F_GETFL, 0) & libc::O_NONBLOCK;
        libc::syscall(libc::SYS_socket, domain, libc::SOCK_STREAM | flags, 0) as c_int
    };
    if made < 0 {
        return Err(errno());
    }
    let replaced = set_options(made, number, domain, rsockets)
        .and_then(|()| bind(made, bound))
        .and_then(|()| take_its_place(made, fd, number));
    // SAFETY: it was made above, and has other names if it is used.
    unsafe { real::close(made) };
    replaced
}

/// What the program has set: what a new rsocket has otherwise.
fn set_options(
    made: c_int,
    number: c_int,
    domain: c_int,
    rsockets: &Rsockets,
) -> Result<(), c_int> {
    // SAFETY: an rsocket of this function's own.
    let new = unsafe { (rsockets.rsocket)(domain, libc::SOCK_STREAM, 0) };
    if new < 0 {
        return Err(errno());
    }
    for (level, name) in OPTIONS {
        let asked = option(number, (level, name), rsockets);
        if let Some((value, length)) = asked
            && asked != option(new, (level, name), rsockets)
        {
            // What the system refuses, it would have refused the program.
            // SAFETY: so many bytes.
            unsafe { real::setsockopt(made, level, name, value.as_ptr().cast(), length) };
        }
    }
    // SAFETY: nobody else has it.
    unsafe { (rsockets.rclose)(new) };
    Ok(())
}

fn bind(made: c_int, bound: Option<Address>) -> Result<(), c_int> {
    let Some((address, length)) = bound else { return Ok(()) };
    // SAFETY: an address as long as that.
    match unsafe { real::bind(made, (&raw const address).cast(), length) } {
        0 => Ok(()),
        _ => Err(errno()),
    }
}

/// Every descriptor that stands for the rsocket becomes one of the socket; the one that is connected, or none.
fn take_its_place(made: c_int, fd: c_int, number: c_int) -> Result<(), c_int> {
    let mut failed = Ok(());
    for name in table::names(number) {
        // SAFETY: descriptors of the program's, of which one takes the place of the other.
        let placed = unsafe {
            let closes = libc::fcntl(name, libc::F_GETFD) & libc::FD_CLOEXEC != 0;
            real::dup3(made, name, if closes { libc::O_CLOEXEC } else { 0 })
        };
        match placed {
            0.. => {
                stands_for_none(name);
                epoll::replaced(name);
            }
            _ if name == fd => failed = Err(errno()),
            _ => {}
        }
    }
    failed
}

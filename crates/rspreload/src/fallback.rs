//! Replaces an rsocket that could not connect by a socket of the system. Everything that the program has set on the
//! rsocket holds for that socket too.

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

/// Options that both rsockets and the system's sockets have.
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

/// The port of an address. IPv4 and IPv6 have it in the same place.
fn port_of(address: &sockaddr_storage) -> u16 {
    // SAFETY: a `sockaddr_storage` has room for a `sockaddr_in`.
    unsafe { (*std::ptr::from_ref(address).cast::<libc::sockaddr_in>()).sin_port }
}

/// Takes an address that leaves its port to the system, and returns it with a port that no socket of the system has.
///
/// # Safety
/// The address is null or has `length` bytes.
pub(crate) unsafe fn with_free_port(addr: *const sockaddr, length: socklen_t) -> Option<Address> {
    let short = (length as usize) < size_of::<libc::sockaddr_in>();
    // SAFETY: all zeroes are an address of no family.
    let mut address: sockaddr_storage = unsafe { std::mem::zeroed() };
    if addr.is_null() || short || length as usize > size_of_val(&address) {
        return None;
    }
    // SAFETY: by the contract of this function, and there is room for the address.
    unsafe { (&raw mut address).cast::<u8>().copy_from(addr.cast(), length as usize) };
    let domain = c_int::from(address.ss_family);
    if port_of(&address) != 0 || !matches!(domain, libc::AF_INET | libc::AF_INET6) {
        return None;
    }
    // SAFETY: the call takes any arguments.
    let made = unsafe {
        libc::syscall(libc::SYS_socket, domain, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) as c_int
    };
    let mut room = length;
    // SAFETY: the socket belongs to this function, or is -1. There is room for the address.
    let chosen = unsafe {
        real::bind(made, (&raw const address).cast(), length) == 0
            && real::getsockname(made, (&raw mut address).cast(), &mut room) == 0
    };
    if made >= 0 {
        // SAFETY: the socket belongs to this function.
        unsafe { real::close(made) };
    }
    chosen.then_some((address, length))
}

/// The address that the program has bound an rsocket to, if any.
pub(crate) fn bound(number: c_int, rsockets: &Rsockets) -> Option<Address> {
    // SAFETY: all zeroes are an address of no family.
    let mut address: sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut length = size_of::<sockaddr_storage>() as socklen_t;
    // SAFETY: there is room for every address.
    let told =
        unsafe { (rsockets.rgetsockname)(number, (&raw mut address).cast(), &mut length) } == 0;
    (told && port_of(&address) != 0).then_some((address, length))
}

/// The value of an rsocket's option, if it has the option.
fn option(
    number: c_int,
    (level, name): (c_int, c_int),
    rsockets: &Rsockets,
) -> Option<([u8; 16], socklen_t)> {
    let mut value = [0_u8; 16];
    let mut length = value.len() as socklen_t;
    let at = value.as_mut_ptr().cast();
    // SAFETY: `value` has room for `length` bytes.
    let got = unsafe { (rsockets.rgetsockopt)(number, level, name, at, &mut length) };
    (got == 0 && length as usize <= value.len()).then_some((value, length))
}

fn number_of(option: ([u8; 16], socklen_t)) -> c_int {
    let [a, b, c, d, ..] = option.0;
    c_int::from_ne_bytes([a, b, c, d])
}

/// Puts a socket of the system in the place of an rsocket, bound to the same address.
pub(crate) fn replace(
    fd: c_int,
    number: c_int,
    bound: Option<Address>,
    rsockets: &Rsockets,
) -> Result<(), c_int> {
    let domain = option(number, (libc::SOL_SOCKET, libc::SO_DOMAIN), rsockets);
    let domain = domain.map_or(libc::AF_INET, number_of);
    // SAFETY: the rsocket is open. The other call takes any arguments.
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
    // SAFETY: it was made above. If it is in use, other descriptors stand for it.
    unsafe { real::close(made) };
    replaced
}

/// Copies the options that the program has set: those whose value differs from a new rsocket's.
fn set_options(
    made: c_int,
    number: c_int,
    domain: c_int,
    rsockets: &Rsockets,
) -> Result<(), c_int> {
    // SAFETY: the call takes any arguments.
    let new = unsafe { (rsockets.rsocket)(domain, libc::SOCK_STREAM, 0) };
    if new < 0 {
        return Err(errno());
    }
    for (level, name) in OPTIONS {
        let asked = option(number, (level, name), rsockets);
        if let Some((value, length)) = asked
            && asked != option(new, (level, name), rsockets)
        {
            // If the system refuses an option, it would have refused it to the program too.
            // SAFETY: `value` has `length` bytes.
            unsafe { real::setsockopt(made, level, name, value.as_ptr().cast(), length) };
        }
    }
    // SAFETY: the rsocket belongs to this function.
    unsafe { (rsockets.rclose)(new) };
    Ok(())
}

fn bind(made: c_int, bound: Option<Address>) -> Result<(), c_int> {
    let Some((address, length)) = bound else { return Ok(()) };
    // SAFETY: `address` has `length` bytes.
    match unsafe { real::bind(made, (&raw const address).cast(), length) } {
        0 => Ok(()),
        _ => Err(errno()),
    }
}

/// Every descriptor that stands for the rsocket becomes a descriptor of the socket. It fails only if `fd`, the one
/// being connected, cannot.
fn take_its_place(made: c_int, fd: c_int, number: c_int) -> Result<(), c_int> {
    let mut failed = Ok(());
    for name in table::names(number) {
        // SAFETY: `made` takes the place of `name`, which stands for the rsocket.
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

//! Functions on one socket. Each has the name and the arguments of the C library's.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use libc::{iovec, msghdr, off_t, sockaddr, socklen_t};
use transom_thread::{errno, set_errno};

use crate::descriptors::Reserved;
use crate::fork::takes_rsockets;
use crate::next::next;
use crate::rsockets::{rsocket, rsockets};
use crate::{config, epoll, fallback};

mod real {
    use super::*;

    next! {
        fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
        fn bind(fd: c_int, addr: *const sockaddr, length: socklen_t) -> c_int;
        fn connect(fd: c_int, addr: *const sockaddr, length: socklen_t) -> c_int;
        fn accept4(fd: c_int, addr: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int;
        fn sendto(
            fd: c_int,
            from: *const c_void,
            length: usize,
            flags: c_int,
            addr: *const sockaddr,
            room: socklen_t
        ) -> isize;
        fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize;
        fn sendfile(out: c_int, from: c_int, offset: *mut off_t, count: usize) -> isize;
    }
}

/// The events to report again after a receive with these flags. One that only asks for errors has read nothing.
fn reads(flags: c_int) -> u32 {
    if flags & libc::MSG_ERRQUEUE == 0 { epoll::READ } else { 0 }
}

/// Functions that call the rsocket's function with the same arguments, or the C library's.
macro_rules! same {
    ($(fn $name:ident, $of_rsocket:ident($($argument:ident: $type:ty),*) -> $result:ty $(, $used:expr)?;)*) => {
        mod same {
            use super::*;
            next! { $(fn $name(fd: c_int $(, $argument: $type)*) -> $result;)* }
        }

        $(
            /// # Safety
            /// As for the C library's.
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name(fd: c_int $(, $argument: $type)*) -> $result {
                // SAFETY: by the contract of this function. Both functions have the same.
                unsafe {
                    match rsocket(fd) {
                        Some((number, rsockets)) => {
                            let answer = (rsockets.$of_rsocket)(number $(, $argument)*);
                            $(epoll::used(fd, $used);)?
                            answer
                        }
                        None => same::$name(fd $(, $argument)*),
                    }
                }
            }
        )*
    };
}

same! {
    fn listen, rlisten(backlog: c_int) -> c_int;
    fn shutdown, rshutdown(how: c_int) -> c_int, !0;
    fn recv, rrecv(to: *mut c_void, length: usize, flags: c_int) -> isize, reads(flags);
    fn recvfrom, rrecvfrom(
        to: *mut c_void,
        length: usize,
        flags: c_int,
        addr: *mut sockaddr,
        room: *mut socklen_t
    ) -> isize, reads(flags);
    fn recvmsg, rrecvmsg(message: *mut msghdr, flags: c_int) -> isize, reads(flags);
    fn read, rread(to: *mut c_void, length: usize) -> isize, epoll::READ;
    fn readv, rreadv(list: *const iovec, count: c_int) -> isize, epoll::READ;
    fn getpeername, rgetpeername(addr: *mut sockaddr, length: *mut socklen_t) -> c_int;
    fn getsockname, rgetsockname(addr: *mut sockaddr, length: *mut socklen_t) -> c_int;
    fn setsockopt, rsetsockopt(level: c_int, name: c_int, value: *const c_void, length: socklen_t)
        -> c_int;
    fn getsockopt, rgetsockopt(level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t)
        -> c_int;
}

/// An rsocket has sent something, or not. A program that goes on after the end of its peer gets SIGPIPE, unless it says
/// otherwise: rsockets know no signal. To send without a connection is the same for TCP.
fn sent(fd: c_int, answer: isize, flags: c_int) -> isize {
    epoll::used(fd, epoll::WRITE);
    if answer < 0 && matches!(errno(), libc::EPIPE | libc::ENOTCONN) {
        if flags & libc::MSG_NOSIGNAL == 0 {
            // SAFETY: takes a number.
            unsafe { libc::raise(libc::SIGPIPE) };
        }
        set_errno(libc::EPIPE);
    }
    answer
}

/// Functions that send. The last words are the flags that they have.
macro_rules! sends {
    ($(fn $name:ident, $of_rsocket:ident($($argument:ident: $type:ty),*), $flags:expr;)*) => {
        mod sends {
            use super::*;
            next! { $(fn $name(fd: c_int $(, $argument: $type)*) -> isize;)* }
        }

        $(
            /// # Safety
            /// As for the C library's.
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name(fd: c_int $(, $argument: $type)*) -> isize {
                // SAFETY: by the contract of this function. Both functions have the same.
                unsafe {
                    match rsocket(fd) {
                        Some((number, rsockets)) => {
                            sent(fd, (rsockets.$of_rsocket)(number $(, $argument)*), $flags)
                        }
                        None => sends::$name(fd $(, $argument)*),
                    }
                }
            }
        )*
    };
}

sends! {
    fn send, rsend(from: *const c_void, length: usize, flags: c_int), flags;
    fn write, rwrite(from: *const c_void, length: usize), 0;
    fn writev, rwritev(list: *const iovec, count: c_int), 0;
}

/// Binds. If the program leaves the port to the system, the port must be free for the system's own sockets too, because
/// the rsocket may become one of them.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn bind(fd: c_int, addr: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: by the contract of this function.
    unsafe {
        let Some((number, rsockets)) = rsocket(fd) else {
            return real::bind(fd, addr, length);
        };
        if let Some((free, length)) = fallback::with_free_port(addr, length)
            && (rsockets.rbind)(number, (&raw const free).cast(), length) == 0
        {
            return 0;
        }
        (rsockets.rbind)(number, addr, length)
    }
}

/// Sends to the peer of the connection. A stream has no other peer, and Linux ignores the address.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    from: *const c_void,
    length: usize,
    flags: c_int,
    addr: *const sockaddr,
    room: socklen_t,
) -> isize {
    // SAFETY: by the contract of this function.
    unsafe {
        match rsocket(fd) {
            Some(_) => send(fd, from, length, flags),
            None => real::sendto(fd, from, length, flags, addr, room),
        }
    }
}

/// The same as [`sendto`], for a message.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize {
    // SAFETY: by the contract of this function.
    unsafe {
        let Some((number, rsockets)) = rsocket(fd) else {
            return real::sendmsg(fd, message, flags);
        };
        let to_peer =
            message.as_ref().map(|it| msghdr { msg_name: null_mut(), msg_namelen: 0, ..*it });
        let to_peer = to_peer.as_ref().map_or(null(), std::ptr::from_ref);
        sent(fd, (rsockets.rsendmsg)(number, to_peer, flags), flags)
    }
}

/// The functions that programs built with `_FORTIFY_SOURCE` call. The compiler checks the room where it can; these
/// check it at run time.
macro_rules! checked {
    ($(fn $name:ident, $plain:ident($($argument:ident: $type:ty),*);)*) => {
        $(
            /// # Safety
            /// As for the C library's.
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name(
                fd: c_int,
                to: *mut c_void,
                length: usize,
                room: usize
                $(, $argument: $type)*
            ) -> isize {
                if length > room {
                    // SAFETY: it has no conditions. The C library ends the program too.
                    unsafe { libc::abort() }
                }
                // SAFETY: by the contract of this function.
                unsafe { $plain(fd, to, length $(, $argument)*) }
            }
        )*
    };
}

checked! {
    fn __read_chk, read();
    fn __recv_chk, recv(flags: c_int);
    fn __recvfrom_chk, recvfrom(flags: c_int, addr: *mut sockaddr, room_of_address: *mut socklen_t);
}

/// `socket`, with the place that it is called from.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn socket(_domain: c_int, _kind: c_int, _protocol: c_int) -> c_int {
    std::arch::naked_asm!("mov rcx, [rsp]", "jmp {called}", called = sym called)
}

/// `socket`, with the place that it is called from.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn socket(_domain: c_int, _kind: c_int, _protocol: c_int) -> c_int {
    std::arch::naked_asm!("mov x3, x30", "b {called}", called = sym called)
}

/// Makes a socket. If the program asks for a stream socket, it is an rsocket where possible.
unsafe extern "C-unwind" fn called(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
    caller: *mut c_void,
) -> c_int {
    let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    let is_stream = kind & !flags == libc::SOCK_STREAM
        && matches!(domain, libc::AF_INET | libc::AF_INET6)
        && matches!(protocol, 0 | libc::IPPROTO_TCP);
    // SAFETY: these functions take any arguments.
    unsafe {
        if is_stream
            && config::takes_stream(domain)
            && let Some(rsockets) = rsockets()
            && !rsockets.is_their_own(caller)
            && takes_rsockets()
            && let Some(reserved) = Reserved::lowest()
        {
            let number = (rsockets.rsocket)(domain, kind, protocol);
            if number >= 0 {
                config::set_sizes(number, rsockets);
                let descriptor = reserved.stand_for(number, flags, rsockets);
                if descriptor >= 0 {
                    return descriptor;
                }
            }
        }
        real::socket(domain, kind, protocol)
    }
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    addr: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: by the contract of this function.
    unsafe {
        let Some((number, rsockets)) = rsocket(fd) else {
            return real::accept4(fd, addr, length, flags);
        };
        // Without a descriptor the connection stays, as the system's would. None is kept meanwhile: this may take hours.
        if Reserved::lowest().is_none() {
            return -1;
        }
        let accepted = (rsockets.raccept)(number, addr, length);
        epoll::used(fd, epoll::READ);
        if accepted < 0 {
            return accepted;
        }
        if flags & libc::SOCK_NONBLOCK != 0 {
            (rsockets.rfcntl)(accepted, libc::F_SETFL, libc::O_NONBLOCK.into());
        }
        match Reserved::lowest() {
            Some(reserved) => reserved.stand_for(accepted, flags, rsockets),
            // Another thread has taken the last one just now.
            None => {
                let errno = errno();
                (rsockets.rclose)(accepted);
                set_errno(errno);
                -1
            }
        }
    }
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn accept(
    fd: c_int,
    addr: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: by the contract of this function.
    unsafe { accept4(fd, addr, length, 0) }
}

/// Connects. If no peer listens by rsockets there, or no device leads there, the socket becomes the system's.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn connect(fd: c_int, addr: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: by the contract of this function.
    unsafe {
        let Some((number, rsockets)) = rsocket(fd) else {
            return real::connect(fd, addr, length);
        };
        let bound = fallback::bound(number, rsockets);
        let connected = (rsockets.rconnect)(number, addr, length);
        epoll::used(fd, !0);
        let other_way = matches!(
            errno(),
            libc::ECONNREFUSED
                | libc::ETIMEDOUT
                | libc::ENODEV
                | libc::ENETUNREACH
                | libc::EHOSTUNREACH
                | libc::EADDRNOTAVAIL
                | libc::EPROTO
        );
        if connected == 0 || !other_way {
            return connected;
        }
        match fallback::replace(fd, number, bound, rsockets) {
            Ok(()) => real::connect(fd, addr, length),
            Err(errno) => {
                set_errno(errno);
                -1
            }
        }
    }
}

/// Sends a file. To an rsocket it goes piece by piece.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendfile(
    out: c_int,
    from: c_int,
    offset: *mut off_t,
    count: usize,
) -> isize {
    // SAFETY: by the contract of this function.
    unsafe {
        let Some((number, rsockets)) = rsocket(out) else {
            return real::sendfile(out, from, offset, count);
        };
        let mut piece = [0_u8; 1 << 14];
        let mut total = 0;
        while total < count {
            let want = piece.len().min(count - total);
            let at = match offset.as_ref() {
                Some(offset) => *offset,
                None => libc::lseek(from, 0, libc::SEEK_CUR),
            };
            let length = libc::pread(from, piece.as_mut_ptr().cast(), want, at);
            let went = match length {
                1.. => {
                    let flags = if total > 0 { libc::MSG_NOSIGNAL } else { 0 };
                    let answer =
                        (rsockets.rsend)(number, piece.as_ptr().cast(), length as usize, 0);
                    sent(out, answer, flags)
                }
                other => other,
            };
            if went <= 0 {
                return if total > 0 { total as isize } else { went };
            }
            match offset.as_mut() {
                Some(offset) => *offset += went as off_t,
                None => _ = libc::lseek(from, at + went as off_t, libc::SEEK_SET),
            }
            total += went as usize;
        }
        total as isize
    }
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendfile64(
    out: c_int,
    from: c_int,
    offset: *mut off_t,
    count: usize,
) -> isize {
    // SAFETY: by the contract of this function. An offset has 64 bits in both.
    unsafe { sendfile(out, from, offset, count) }
}

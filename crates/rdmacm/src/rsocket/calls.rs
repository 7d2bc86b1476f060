//! The functions of `rsocket(7)` that make sockets, give them addresses and end them.

use std::ffi::{CStr, c_int, c_long};
use std::sync::Once;
use std::time::Duration;

use transom_abi::*;

use super::entry::{attempt, zero_of};
use super::socket::{SOCKETS, Socket, State};
use super::transfer::{deadline, give_peer};
use super::wait::{Deadline, of_call};
use super::{fork, names};
use crate::entry::answered;
use crate::provider::{self, provider};
use crate::sanitized;
use crate::wrong::{NotNow, Wrong};

/// At its exit, a program waits at most this long until the data of all its sockets has arrived.
const AT_EXIT: Duration = Duration::from_secs(2);

fn number_of(function: &'static CStr, body: impl FnOnce() -> Result<c_int, Wrong>) -> c_int {
    answered(function, attempt(body)).unwrap_or(-1)
}

/// If a program exits without closing its sockets, data that it has sent still arrives.
fn finish_at_exit() {
    static ONCE: Once = Once::new();
    extern "C" fn finish() {
        let _ = attempt(|| {
            let deadline = Deadline::after(Some(AT_EXIT));
            let sockets = SOCKETS.all();
            sockets.iter().for_each(|socket| socket.begin_to_end());
            sockets.iter().for_each(|socket| socket.await_end(Some(deadline)));
            Ok(())
        });
    }
    // SAFETY: the function stays, because this library runs code at exit.
    ONCE.call_once(|| unsafe { _ = libc::atexit(finish) });
}

/// Makes a socket.
pub extern "C" fn rsocket<S: provider::Source>(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
) -> c_int {
    number_of(c"rsocket", || {
        if domain != libc::AF_INET && domain != libc::AF_INET6 {
            let said = "domain is neither AF_INET nor AF_INET6";
            return Err(Wrong::new(libc::EAFNOSUPPORT, said));
        }
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let socket = match (kind & !flags, protocol) {
            (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => Socket::stream(provider::<S>()?, domain)?,
            (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => {
                Socket::datagram(provider::<S>()?, domain)?
            }
            (libc::SOCK_STREAM | libc::SOCK_DGRAM, _) => {
                let said = "protocol is neither 0 nor that of the type, IPPROTO_TCP or IPPROTO_UDP";
                return Err(Wrong::new(libc::EPROTONOSUPPORT, said));
            }
            _ => {
                let said = "type is neither SOCK_STREAM nor SOCK_DGRAM";
                return Err(Wrong::new(libc::ESOCKTNOSUPPORT, said));
            }
        };
        socket.set_nonblocking(kind & libc::SOCK_NONBLOCK != 0);
        fork::watch();
        finish_at_exit();
        Ok(socket.number())
    })
}

/// Binds a socket to an address.
///
/// # Safety
/// The address has `addrlen` bytes.
pub unsafe extern "C" fn rbind(socket: c_int, addr: *const sockaddr, addrlen: u32) -> c_int {
    zero_of(c"rbind", || {
        let socket = SOCKETS.get(socket)?;
        // SAFETY: by the contract of this function.
        let address = unsafe { names::read(addr, addrlen, socket.family) }?;
        socket.with(|state| match state {
            State::Datagram(datagrams) => {
                // SAFETY: by the contract of this function.
                let address = unsafe { names::read_as_is(addr, addrlen) }?;
                datagrams.bind(address, &socket.waiting)
            }
            state => state.stream()?.bind(address),
        })
    })
}

/// Makes a socket listen.
pub extern "C" fn rlisten(socket: c_int, backlog: c_int) -> c_int {
    zero_of(c"rlisten", || {
        let socket = SOCKETS.get(socket)?;
        socket.with(|state| state.stream()?.listen(backlog, &socket.waiting))
    })
}

/// Accepts a peer's connection.
///
/// # Safety
/// The pointers are null or valid, and `addr` has the room that `addrlen` says.
pub unsafe extern "C" fn raccept(socket: c_int, addr: *mut sockaddr, addrlen: *mut u32) -> c_int {
    number_of(c"raccept", || {
        let listener = SOCKETS.get(socket)?;
        let deadline = deadline(&listener, 0, |state| Ok(state.options()?.1.receive_timeout))?;
        let accepted = listener.until(deadline, |state| state.stream()?.accept())?;
        sanitized::is_told(&SOCKETS);
        let socket = listener.accepted(accepted)?;
        if !addr.is_null() {
            // SAFETY: by the contract of this function.
            let given = unsafe { give_peer(&socket, addr, addrlen) };
            if let Err(wrong) = given {
                let _ = close(socket.number());
                return Err(wrong);
            }
        }
        Ok(socket.number())
    })
}

/// Connects a socket.
///
/// # Safety
/// The address has `addrlen` bytes.
pub unsafe extern "C" fn rconnect(socket: c_int, addr: *const sockaddr, addrlen: u32) -> c_int {
    zero_of(c"rconnect", || {
        let socket = SOCKETS.get(socket)?;
        sanitized::tells(&SOCKETS);
        // SAFETY: by the contract of this function.
        if let Some(connected) = unsafe { connect_datagrams(&socket, addr, addrlen) } {
            return connected;
        }
        // SAFETY: by the contract of this function.
        let address = unsafe { names::read(addr, addrlen, socket.family) }?;
        let deadline = deadline(&socket, 0, |state| Ok(state.options()?.1.send_timeout))?;
        socket.with(|state| {
            let stream = state.stream()?;
            stream.advance(&socket.waiting);
            stream.connect(address, &socket.waiting)
        })?;
        let connected = |state: &mut State| {
            let stream = state.stream()?;
            Ok(stream.is_connected()?.then_some(()))
        };
        match socket.until(deadline, connected) {
            Err(wrong) if wrong == Wrong::not_now(NotNow::Again) => {
                Err(Wrong::not_now(NotNow::InProgress))
            }
            answer => answer,
        }
    })
}

/// Connects a datagram socket to a peer, or to none if the address has no family. `None` if it is not a datagram
/// socket.
///
/// # Safety
/// The address has `length` bytes.
unsafe fn connect_datagrams(
    socket: &Socket,
    addr: *const sockaddr,
    length: u32,
) -> Option<Result<(), Wrong>> {
    socket.with(|state| {
        let State::Datagram(datagrams) = state else { return None };
        // SAFETY: by the contract of this function.
        let to = match unsafe { names::read_as_is(addr, length) } {
            Ok((address, _)) => names::address(&address),
            Err(wrong) if wrong.errno() == libc::EAFNOSUPPORT => None,
            Err(wrong) => return Some(Err(wrong)),
        };
        Some(datagrams.connect(to))
    })
}

/// Ends one or both directions of a connection.
pub extern "C" fn rshutdown(socket: c_int, how: c_int) -> c_int {
    zero_of(c"rshutdown", || {
        let socket = SOCKETS.get(socket)?;
        sanitized::tells(&SOCKETS);
        let (read, write) = match how {
            libc::SHUT_RD => (true, false),
            libc::SHUT_WR => (false, true),
            libc::SHUT_RDWR => (true, true),
            _ => return Err(Wrong::invalid("how is none of SHUT_RD, SHUT_WR and SHUT_RDWR")),
        };
        let shut = socket.with(|state| {
            let stream = state.stream()?;
            if stream.is_listening() {
                // A listener sends nothing in any case.
                return if read { stream.stop_listening(&socket.waiting) } else { Ok(()) };
            }
            stream.advance(&socket.waiting);
            if stream.is_connecting() {
                stream.give_up(&socket.waiting);
                return Ok(());
            }
            stream.connected()?.ok_or(Wrong::not_connected())?.shut(read, write);
            Ok(())
        });
        socket.waiting.nudge();
        shut?;
        // The peer must get the message even if the program does not use the socket again. If the call must not wait,
        // or no longer, the message goes with the socket's next call.
        let deadline = deadline(&socket, 0, |state| Ok(state.options()?.1.send_timeout))?;
        let _ = socket.until(deadline, |state| match state {
            State::Stream(stream) => Ok(stream.is_told().then_some(())),
            State::Datagram(_) | State::Closed => Ok(Some(())),
        });
        Ok(())
    })
}

/// Closes a socket. If a forked child closes its parent's socket, the parent can still use it.
pub extern "C" fn rclose(socket: c_int) -> c_int {
    zero_of(c"rclose", || close(socket))
}

fn close(number: c_int) -> Result<(), Wrong> {
    sanitized::tells(&SOCKETS);
    match SOCKETS.remove(number)? {
        Some(socket) => socket.close(),
        // SAFETY: this process does not use the parent's socket, so nothing uses its descriptor.
        None => _ = of_call("close", unsafe { libc::close(number) })?,
    }
    Ok(())
}

/// The address of the peer.
///
/// # Safety
/// The pointers are null or valid, and `addr` has the room that `addrlen` says.
pub unsafe extern "C" fn rgetpeername(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut u32,
) -> c_int {
    // SAFETY: by the contract of this function.
    zero_of(c"rgetpeername", || unsafe { give_peer(&*SOCKETS.get(socket)?, addr, addrlen) })
}

/// The address of a socket.
///
/// # Safety
/// The pointers are null or valid, and `addr` has the room that `addrlen` says.
pub unsafe extern "C" fn rgetsockname(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut u32,
) -> c_int {
    zero_of(c"rgetsockname", || {
        let socket = SOCKETS.get(socket)?;
        let address = socket.with(|state| match state {
            State::Datagram(datagrams) => {
                datagrams.address().map(|address| names::storage(address).0).ok_or(Wrong::new(
                    libc::EIO,
                    "the kernel does not tell the address of the UDP socket",
                ))
            }
            state => Ok(state.stream()?.address()),
        })?;
        // SAFETY: by the contract of this function.
        unsafe { names::give(names::shown(&address, socket.family), addr, addrlen) }
    })
}

/// Reads and sets flags of a socket and of its descriptor. In C the last argument may be left out.
pub extern "C" fn rfcntl(socket: c_int, cmd: c_int, arg: c_long) -> c_int {
    number_of(c"rfcntl", || {
        let socket = SOCKETS.get(socket)?;
        match cmd {
            libc::F_GETFL => {
                let nonblocking = if socket.is_nonblocking() { libc::O_NONBLOCK } else { 0 };
                Ok(libc::O_RDWR | nonblocking)
            }
            libc::F_SETFL => {
                socket.set_nonblocking(arg & c_long::from(libc::O_NONBLOCK) != 0);
                Ok(0)
            }
            libc::F_GETFD | libc::F_SETFD => {
                // SAFETY: the descriptor is open.
                of_call("fcntl", unsafe { libc::fcntl(socket.number(), cmd, arg) })
            }
            _ => Err(Wrong::invalid("cmd is none of F_GETFL, F_SETFL, F_GETFD and F_SETFD")),
        }
    })
}

//! Sending and receiving: the functions of `rsocket(7)` that move data.

use std::ffi::{CStr, c_int, c_void};
use std::time::Duration;

use libc::{iovec, msghdr};
use transom_abi::*;

use super::datagram::{DEVICE_GONE, Read};
use super::entry::attempt;
use super::iovec::{Sink, Source};
use super::names;
use super::socket::{CLOSED, SOCKETS, Socket, State};
use super::wait::Deadline;
use crate::entry::answered;
use crate::sanitized;
use crate::wrong::{NotNow, Wrong};

const NO_MESSAGE: Wrong = Wrong::new(libc::EFAULT, "msg is null");
const NO_URGENT: Wrong = Wrong::new(libc::EOPNOTSUPP, "MSG_OOB: there is no urgent data here");

/// The most buffers of one call.
const MOST_BUFFERS: c_int = 1024;

pub(crate) fn length_of(
    function: &'static CStr,
    body: impl FnOnce() -> Result<usize, Wrong>,
) -> isize {
    answered(function, attempt(body)).map_or(-1, |length| length as isize)
}

/// The time until which a call may wait.
pub(crate) fn deadline(
    socket: &Socket,
    flags: c_int,
    timeout: impl FnOnce(&mut State) -> Result<Option<Duration>, Wrong>,
) -> Result<Deadline, Wrong> {
    if flags & libc::MSG_DONTWAIT != 0 || socket.is_nonblocking() {
        return Ok(Deadline::Now);
    }
    Ok(Deadline::after(socket.with(timeout)?))
}

/// The result of a receive.
struct Received {
    /// The number of bytes written to the buffers.
    length: usize,
    /// For a datagram: its length and its source.
    datagram: Option<Read>,
}

/// Receives into buffers.
///
/// # Safety
/// The buffers are writable.
unsafe fn receive(socket: &Socket, list: &[iovec], flags: c_int) -> Result<Received, Wrong> {
    if flags & libc::MSG_OOB != 0 {
        return Err(NO_URGENT);
    }
    if flags & libc::MSG_ERRQUEUE != 0 {
        // There is no queue of errors, and such a call never waits.
        return Err(Wrong::not_now(NotNow::Again));
    }
    // What a stream's program does not want, it takes out by this flag.
    let drops =
        flags & libc::MSG_TRUNC != 0 && socket.with(|state| matches!(state, State::Stream(_)));
    // SAFETY: by the contract of this function.
    let mut sink = if drops { Sink::nowhere(list) } else { unsafe { Sink::new(list) }? };
    let peek = flags & libc::MSG_PEEK != 0;
    let all = flags & libc::MSG_WAITALL != 0 && !peek;
    let deadline = deadline(socket, flags, |state| Ok(state.options()?.1.receive_timeout))?;
    let nothing = sink.left() == 0;
    let mut received = Received { length: 0, datagram: None };
    while received.length == 0 || all && sink.left() > 0 {
        let read = socket.until(deadline, |state| match state {
            State::Datagram(datagrams) => {
                let read = datagrams.read(&mut sink, peek, &socket.waiting);
                match read.map(|read| (read.length, Some(read))) {
                    None if datagrams.is_gone() => Err(DEVICE_GONE),
                    read => Ok(read),
                }
            }
            state => match state.stream()?.connected()? {
                Some(_) if nothing => Ok(Some((0, None))),
                Some(stream) => {
                    let read = stream.read(&mut sink, peek, received.length == 0)?;
                    Ok(read.map(|length| (length, None)))
                }
                None => Ok(None),
            },
        });
        match read {
            Ok((0, datagram)) => {
                received.datagram = datagram;
                break;
            }
            Ok((length, datagram)) => {
                received.length += length;
                received.datagram = datagram;
                if datagram.is_some() {
                    break;
                }
            }
            Err(_) if received.length > 0 => break,
            Err(wrong) => return Err(wrong),
        }
    }
    sanitized::is_told(&SOCKETS);
    Ok(received)
}

impl Received {
    /// The result of the call.
    fn answer(&self, flags: c_int) -> usize {
        match self.datagram {
            Some(Read { whole, .. }) if flags & libc::MSG_TRUNC != 0 => whole,
            _ => self.length,
        }
    }
}

/// Sends from buffers. A datagram goes to the address, if one is given.
///
/// # Safety
/// The buffers are readable, and the address has `length` bytes.
unsafe fn send(
    socket: c_int,
    list: &[iovec],
    flags: c_int,
    (to, length): (*const sockaddr, u32),
) -> Result<usize, Wrong> {
    let socket = SOCKETS.get(socket)?;
    sanitized::tells(&SOCKETS);
    if flags & libc::MSG_OOB != 0 {
        return Err(NO_URGENT);
    }
    // SAFETY: by the contract of this function.
    let mut source = unsafe { Source::new(list) }?;
    let deadline = deadline(&socket, flags, |state| Ok(state.options()?.1.send_timeout))?;
    if socket.with(|state| matches!(state, State::Datagram(_))) {
        let to = if to.is_null() {
            None
        } else {
            // SAFETY: by the contract of this function.
            names::address(&unsafe { names::read_as_is(to, length) }?.0)
        };
        return socket.until(deadline, |state| match state {
            State::Datagram(datagrams) => datagrams.send(&mut source, to, &socket.waiting),
            _ => Err(CLOSED),
        });
    }
    if !to.is_null() {
        let said = "an address is given, and the socket is a stream: it is connected already";
        return Err(Wrong::new(libc::EISCONN, said));
    }
    let mut total = 0;
    loop {
        let sent = socket.until(deadline, |state| {
            let Some(stream) = state.stream()?.connected()? else { return Ok(None) };
            let sent = stream.write(&mut source, total == 0)?;
            Ok((sent > 0 || source.left() == 0).then_some(sent))
        });
        match sent {
            Ok(length) => total += length,
            Err(_) if total > 0 => return Ok(total),
            Err(wrong) => return Err(wrong),
        }
        if source.left() == 0 || matches!(deadline, Deadline::Now) {
            return Ok(total);
        }
    }
}

/// No address.
const NOWHERE: (*const sockaddr, u32) = (std::ptr::null(), 0);

/// The buffers of a call.
///
/// # Safety
/// `list` has `count` buffers.
unsafe fn buffers<'a>(list: *const iovec, count: c_int) -> Result<&'a [iovec], Wrong> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        // SAFETY: by the contract of this function.
        Ok(length) if count <= MOST_BUFFERS && !list.is_null() => unsafe {
            Ok(std::slice::from_raw_parts(list, length))
        },
        _ => Err(Wrong::invalid("the buffers are null, or not 0 to 1024")),
    }
}

/// The number of a message's buffers.
fn count_of(message: &msghdr) -> Result<c_int, Wrong> {
    let count = c_int::try_from(message.msg_iovlen).ok();
    count
        .filter(|count| *count <= MOST_BUFFERS)
        .ok_or(Wrong::new(libc::EMSGSIZE, "msg_iovlen is above 1024"))
}

/// One buffer.
pub(crate) fn buffer(base: *const c_void, iov_len: usize) -> [iovec; 1] {
    [iovec { iov_base: base.cast_mut(), iov_len }]
}

/// Receives.
///
/// # Safety
/// `buf` has room for `len` bytes.
pub unsafe extern "C" fn rrecv(socket: c_int, buf: *mut c_void, len: usize, flags: c_int) -> isize {
    // SAFETY: by the contract of this function.
    length_of(c"rrecv", || unsafe {
        let received = receive(&*SOCKETS.get(socket)?, &buffer(buf, len), flags)?;
        Ok(received.answer(flags))
    })
}

/// Receives, and returns the source.
///
/// # Safety
/// `buf` has room for `len` bytes, and `src_addr` has the room that `addrlen` says.
pub unsafe extern "C" fn rrecvfrom(
    socket: c_int,
    buf: *mut c_void,
    len: usize,
    flags: c_int,
    src_addr: *mut sockaddr,
    addrlen: *mut u32,
) -> isize {
    length_of(c"rrecvfrom", || {
        let socket = SOCKETS.get(socket)?;
        // SAFETY: by the contract of this function.
        let received = unsafe { receive(&socket, &buffer(buf, len), flags) }?;
        if !src_addr.is_null() {
            // SAFETY: by the contract of this function.
            unsafe { give_source(&socket, &received, src_addr, addrlen) }?;
        }
        Ok(received.answer(flags))
    })
}

/// Receives into several buffers.
///
/// # Safety
/// The message and everything that it points to are valid.
pub unsafe extern "C" fn rrecvmsg(socket: c_int, msg: *mut msghdr, flags: c_int) -> isize {
    length_of(c"rrecvmsg", || {
        // SAFETY: by the contract of this function.
        let message = unsafe { msg.as_mut() }.ok_or(NO_MESSAGE)?;
        let count = count_of(message)?;
        let socket = SOCKETS.get(socket)?;
        // SAFETY: by the contract of this function.
        let received = unsafe { receive(&socket, buffers(message.msg_iov, count)?, flags) }?;
        message.msg_controllen = 0;
        message.msg_flags = 0;
        if received.datagram.is_some_and(|read| read.whole > read.length) {
            message.msg_flags |= libc::MSG_TRUNC;
        }
        sanitized::written(&raw const message.msg_flags);
        sanitized::written(&raw const message.msg_controllen);
        if !message.msg_name.is_null() {
            let name = message.msg_name.cast();
            // SAFETY: by the contract of this function.
            unsafe { give_source(&socket, &received, name, &mut message.msg_namelen) }?;
        }
        Ok(received.answer(flags))
    })
}

/// Receives, as `read(2)`.
///
/// # Safety
/// `buf` has room for `count` bytes.
pub unsafe extern "C" fn rread(socket: c_int, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: by the contract of this function.
    length_of(c"rread", || unsafe {
        Ok(receive(&*SOCKETS.get(socket)?, &buffer(buf, count), 0)?.length)
    })
}

/// Receives into several buffers, as `readv(2)`.
///
/// # Safety
/// `iov` has `iovcnt` buffers, and they are writable.
pub unsafe extern "C" fn rreadv(socket: c_int, iov: *const iovec, iovcnt: c_int) -> isize {
    // SAFETY: by the contract of this function.
    length_of(c"rreadv", || unsafe {
        Ok(receive(&*SOCKETS.get(socket)?, buffers(iov, iovcnt)?, 0)?.length)
    })
}

/// Sends.
///
/// # Safety
/// `buf` has `len` bytes.
pub unsafe extern "C" fn rsend(
    socket: c_int,
    buf: *const c_void,
    len: usize,
    flags: c_int,
) -> isize {
    // SAFETY: by the contract of this function.
    length_of(c"rsend", || unsafe { send(socket, &buffer(buf, len), flags, NOWHERE) })
}

/// Sends to an address, or to the peer of a connected socket.
///
/// # Safety
/// `buf` has `len` bytes, and the address has `addrlen` bytes.
pub unsafe extern "C" fn rsendto(
    socket: c_int,
    buf: *const c_void,
    len: usize,
    flags: c_int,
    dest_addr: *const sockaddr,
    addrlen: u32,
) -> isize {
    // SAFETY: by the contract of this function.
    length_of(c"rsendto", || unsafe {
        send(socket, &buffer(buf, len), flags, (dest_addr, addrlen))
    })
}

/// Sends from several buffers.
///
/// # Safety
/// The message and everything that it points to are valid.
pub unsafe extern "C" fn rsendmsg(socket: c_int, msg: *const msghdr, flags: c_int) -> isize {
    length_of(c"rsendmsg", || {
        // SAFETY: by the contract of this function.
        let message = unsafe { msg.as_ref() }.ok_or(NO_MESSAGE)?;
        if message.msg_controllen > 0 {
            return Err(Wrong::new(libc::EOPNOTSUPP, "msg_controllen is not 0"));
        }
        let count = count_of(message)?;
        // SAFETY: by the contract of this function.
        unsafe {
            let to = (message.msg_name.cast_const().cast(), message.msg_namelen);
            send(socket, buffers(message.msg_iov, count)?, flags, to)
        }
    })
}

/// Sends, as `write(2)`.
///
/// # Safety
/// `buf` has `count` bytes.
pub unsafe extern "C" fn rwrite(socket: c_int, buf: *const c_void, count: usize) -> isize {
    // SAFETY: by the contract of this function.
    length_of(c"rwrite", || unsafe { send(socket, &buffer(buf, count), 0, NOWHERE) })
}

/// Sends from several buffers, as `writev(2)`.
///
/// # Safety
/// `iov` has `iovcnt` buffers, and they are readable.
pub unsafe extern "C" fn rwritev(socket: c_int, iov: *const iovec, iovcnt: c_int) -> isize {
    // SAFETY: by the contract of this function.
    length_of(c"rwritev", || unsafe { send(socket, buffers(iov, iovcnt)?, 0, NOWHERE) })
}

/// # Safety
/// The pointers are null or valid, and `to` has the room that `length` says.
pub(crate) unsafe fn give_peer(
    socket: &Socket,
    to: *mut sockaddr,
    length: *mut u32,
) -> Result<(), Wrong> {
    let address = socket.with(|state| {
        if let State::Datagram(datagrams) = state {
            let peer = datagrams.peer().ok_or(Wrong::not_connected())?;
            return Ok(names::storage(peer).0);
        }
        let stream = state.stream()?;
        // An ended connection still has its address.
        if stream.stream.is_none() || stream.is_connecting() {
            return Err(Wrong::not_connected());
        }
        // SAFETY: every address can be read as bytes.
        Ok(unsafe { stream.id().seen().route.addr.dst.dst_storage })
    })?;
    // SAFETY: by the contract of this function.
    unsafe { names::give(names::shown(&address, socket.family), to, length) }
}

/// Writes the source of received data for the program.
///
/// # Safety
/// The pointers are null or valid, and `to` has the room that `length` says.
unsafe fn give_source(
    socket: &Socket,
    received: &Received,
    to: *mut sockaddr,
    length: *mut u32,
) -> Result<(), Wrong> {
    // SAFETY: by the contract of this function.
    unsafe {
        match received.datagram {
            Some(Read { from, .. }) => {
                names::give(names::shown(&names::storage(from).0, socket.family), to, length)
            }
            None => give_peer(socket, to, length),
        }
    }
}

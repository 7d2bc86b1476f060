//! Options of sockets: `rsetsockopt`, `rgetsockopt`.

use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::time::Duration;

use libc::{linger, timeval};
use transom_abi::*;

use super::datagram::DatagramSocket;
use super::entry::zero_of;
use super::settings::Settings;
use super::socket::{CLOSED, SOCKETS, Socket, State};
use super::stream_socket::StreamSocket;
use super::wait::of_call;
use crate::query;
use crate::sanitized;
use crate::wrong::Wrong;

/// Options that are only stored, for programs that set them as on sockets. They change nothing: data is never held back
/// here, and the adapter finds a dead peer when it sends to it.
const KEPT: [(c_int, c_int); 15] = [
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::SOL_SOCKET, libc::SO_BROADCAST),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::SOL_SOCKET, libc::SO_DONTROUTE),
    (libc::IPPROTO_TCP, libc::TCP_CORK),
    (libc::IPPROTO_TCP, libc::TCP_QUICKACK),
    (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    (libc::IPPROTO_IP, libc::IP_TTL),
];

const NO_VALUE: Wrong = Wrong::new(libc::EFAULT, "optval or optlen is null");
const NO_OPTION: Wrong =
    Wrong::new(libc::ENOPROTOOPT, "stream sockets have no option of this level and name");

/// Reads a program's value.
///
/// # Safety
/// `value` has `length` bytes.
unsafe fn given<T: Copy>(value: *const c_void, length: u32) -> Result<T, Wrong> {
    if value.is_null() {
        return Err(NO_VALUE);
    }
    if (length as usize) < size_of::<T>() {
        return Err(Wrong::invalid("optlen is shorter than the option's value"));
    }
    // SAFETY: by the contract of this function.
    Ok(unsafe { value.cast::<T>().read_unaligned() })
}

/// Writes a value for the program, or the part of it that there is room for.
///
/// # Safety
/// `to` has the room that `length` says.
unsafe fn give<T>(value: &T, to: *mut c_void, length: *mut u32) -> Result<(), Wrong> {
    if to.is_null() || length.is_null() {
        return Err(NO_VALUE);
    }
    // SAFETY: by the contract of this function.
    unsafe {
        let room = (length.read_unaligned() as usize).min(size_of::<T>());
        to.cast::<u8>().copy_from(std::ptr::from_ref(value).cast(), room);
        length.write_unaligned(room as u32);
        sanitized::bytes_written(to.cast(), room);
        sanitized::written(length);
    }
    Ok(())
}

/// The timeout of a call. Zero means none.
fn time(value: timeval) -> Result<Option<Duration>, Wrong> {
    let (seconds, more) = (u64::try_from(value.tv_sec), u32::try_from(value.tv_usec));
    match (seconds, more) {
        (Ok(0), Ok(0)) => Ok(None),
        (Ok(seconds), Ok(more @ ..1_000_000)) => Ok(Some(Duration::new(seconds, more * 1000))),
        _ => {
            Err(Wrong::new(libc::EDOM, "a timeout has seconds from 0 and microseconds below 10^6"))
        }
    }
}

fn told(time: Option<Duration>) -> timeval {
    let time = time.unwrap_or_default();
    timeval { tv_sec: time.as_secs() as i64, tv_usec: time.subsec_micros().into() }
}

/// # Safety
/// `value` has `length` bytes.
unsafe fn set(
    stream: &mut StreamSocket,
    option: (c_int, c_int),
    value: *const c_void,
    length: u32,
) -> Result<(), Wrong> {
    if option == (SOL_RDMA, RDMA_ROUTE) {
        // SAFETY: by the contract of this function.
        let paths = unsafe {
            given::<ibv_path_data>(value, length)?;
            std::slice::from_raw_parts(value.cast::<u8>(), length as usize)
        };
        return stream.set_route(paths);
    }
    if option == (libc::SOL_SOCKET, libc::SO_LINGER) {
        // SAFETY: by the contract of this function.
        let linger { l_onoff, l_linger } = unsafe { given(value, length) }?;
        // The kernel takes the time for one without a sign.
        let seconds = Duration::from_secs(l_linger.cast_unsigned().into());
        stream.options.linger = (l_onoff != 0).then_some(seconds);
        return Ok(());
    }
    if let (libc::SOL_SOCKET, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) = option {
        // SAFETY: by the contract of this function.
        let time = time(unsafe { given(value, length) }?)?;
        if option.1 == libc::SO_RCVTIMEO {
            stream.options.receive_timeout = time;
        } else {
            stream.options.send_timeout = time;
        }
        return Ok(());
    }
    // SAFETY: by the contract of this function.
    let number: c_int = unsafe {
        match option.0 {
            // The kernel takes one byte there too.
            libc::IPPROTO_IP if (1..4).contains(&length) => given::<u8>(value, length)?.into(),
            _ => given(value, length)?,
        }
    };
    let settings = &mut stream.settings;
    match option {
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => settings.set_send_buffer(number),
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => settings.set_receive_buffer(number),
        // Data is never held back, so TCP_NODELAY is always on.
        (libc::SOL_SOCKET, libc::SO_REUSEADDR)
        | (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY)
        | (libc::IPPROTO_TCP, libc::TCP_NODELAY) => {
            stream.keep(option, c_int::from(number != 0))?;
        }
        (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            stream.keep(option, number)?;
        }
        // The network decides the path MTU.
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => {}
        (SOL_RDMA, RDMA_SQSIZE | RDMA_RQSIZE | RDMA_INLINE | RDMA_IOMAPSIZE) => {
            if stream.stream.is_some() {
                let said =
                    "the queue pair exists already: set its sizes before rconnect or rlisten";
                return Err(Wrong::invalid(said));
            }
            set_size(settings, option.1, number);
        }
        _ if KEPT.contains(&option) => stream.keep(option, number)?,
        _ => return Err(NO_OPTION),
    }
    Ok(())
}

/// Sets one of the sizes of a queue pair.
fn set_size(settings: &mut Settings, option: c_int, number: c_int) {
    match option {
        RDMA_SQSIZE => settings.set_sends(number),
        RDMA_RQSIZE => settings.set_receives(number),
        RDMA_INLINE => settings.set_inline(number),
        _ => settings.set_mappings(number),
    }
}

/// Reads one of these sizes.
fn size(settings: &Settings, option: c_int) -> c_int {
    match option {
        RDMA_SQSIZE => settings.sends.into(),
        RDMA_RQSIZE => settings.receives.into(),
        RDMA_INLINE => settings.inline as c_int,
        _ => settings.mappings.into(),
    }
}

/// Sets an option of a datagram socket. Options that are not sizes of the queue pair go to the UDP socket.
///
/// # Safety
/// `value` has `length` bytes.
unsafe fn set_of_datagrams(
    datagrams: &mut DatagramSocket,
    option: (c_int, c_int),
    value: *const c_void,
    length: u32,
) -> Result<(), Wrong> {
    if let (SOL_RDMA, RDMA_SQSIZE | RDMA_RQSIZE | RDMA_INLINE | RDMA_IOMAPSIZE) = option {
        // SAFETY: by the contract of this function.
        set_size(&mut datagrams.settings, option.1, unsafe { given(value, length) }?);
        return Ok(());
    }
    let (level, name) = option;
    // SAFETY: by the contract of this function.
    of_call("setsockopt", unsafe {
        libc::setsockopt(datagrams.descriptor(), level, name, value, length)
    })?;
    match option {
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => {
            // SAFETY: by the contract of this function.
            datagrams.settings.set_receive_buffer(unsafe { given(value, length) }?);
        }
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => {
            // SAFETY: by the contract of this function.
            datagrams.options.receive_timeout = time(unsafe { given(value, length) }?)?;
        }
        (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => {
            // SAFETY: by the contract of this function.
            datagrams.options.send_timeout = time(unsafe { given(value, length) }?)?;
        }
        _ => {}
    }
    Ok(())
}

fn get_number(
    socket: &Socket,
    stream: &mut StreamSocket,
    option: (c_int, c_int),
) -> Result<c_int, Wrong> {
    let settings = &stream.settings;
    Ok(match option {
        (libc::SOL_SOCKET, libc::SO_ERROR) => {
            stream.advance(&socket.waiting);
            stream.take_error()
        }
        (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => socket.family,
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_TCP,
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => stream.is_listening().into(),
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => settings.send_buffer as c_int,
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => settings.receive_buffer as c_int,
        (libc::SOL_SOCKET, libc::SO_REUSEADDR)
        | (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY | libc::IPV6_TCLASS)
        | (libc::IPPROTO_IP, libc::IP_TOS) => stream.kept(option).unwrap_or(0),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => stream.kept(option).unwrap_or(1),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => stream.mtu(),
        _ if KEPT.contains(&option) => stream.kept(option).unwrap_or(0),
        _ => return Err(NO_OPTION),
    })
}

/// Sets an option.
///
/// # Safety
/// `optval` has `optlen` bytes.
pub unsafe extern "C" fn rsetsockopt(
    socket: c_int,
    level: c_int,
    optname: c_int,
    optval: *const c_void,
    optlen: u32,
) -> c_int {
    zero_of(c"rsetsockopt", || {
        let socket = SOCKETS.get(socket)?;
        socket.with(|state| match state {
            State::Stream(stream) => {
                // SAFETY: by the contract of this function.
                let set = unsafe { set(stream, (level, optname), optval, optlen) };
                stream.pass_on_options();
                set
            }
            State::Datagram(datagrams) => {
                // SAFETY: by the contract of this function.
                unsafe { set_of_datagrams(datagrams, (level, optname), optval, optlen) }
            }
            State::Closed => Err(CLOSED),
        })
    })
}

/// Reads an option.
///
/// # Safety
/// `optval` has the room that `optlen` says.
pub unsafe extern "C" fn rgetsockopt(
    socket: c_int,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: *mut u32,
) -> c_int {
    zero_of(c"rgetsockopt", || {
        let socket = SOCKETS.get(socket)?;
        socket.with(|state| {
            if let State::Datagram(datagrams) = state
                && level != SOL_RDMA
            {
                let descriptor = datagrams.descriptor();
                // SAFETY: by the contract of this function.
                return of_call("getsockopt", unsafe {
                    libc::getsockopt(descriptor, level, optname, optval, optlen)
                })
                .map(drop);
            }
            if let (SOL_RDMA, RDMA_SQSIZE | RDMA_RQSIZE | RDMA_INLINE | RDMA_IOMAPSIZE) =
                (level, optname)
            {
                let size = size(state.options()?.0, optname);
                // SAFETY: by the contract of this function.
                return unsafe { give(&size, optval, optlen) };
            }
            let stream = state.stream()?;
            // SAFETY: by the contract of this function.
            unsafe {
                match (level, optname) {
                    (libc::SOL_SOCKET, libc::SO_LINGER) => {
                        let time = stream.options.linger;
                        let l_linger = time.map_or(0, |time| time.as_secs() as c_int);
                        let value = linger { l_onoff: time.is_some().into(), l_linger };
                        give(&value, optval, optlen)
                    }
                    (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => {
                        give(&told(stream.options.receive_timeout), optval, optlen)
                    }
                    (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => {
                        give(&told(stream.options.send_timeout), optval, optlen)
                    }
                    (SOL_RDMA, RDMA_ROUTE) => {
                        let path = query::first_path(stream.id())?.ok_or(Wrong::not_connected())?;
                        give(&path, optval, optlen)
                    }
                    option => give(&get_number(&socket, stream, option)?, optval, optlen),
                }
            }
        })
    })
}

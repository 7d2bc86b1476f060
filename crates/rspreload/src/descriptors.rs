//! Functions of descriptors, some of which stand for rsockets.

use std::ffi::{c_int, c_long, c_ulong, c_void};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use transom_thread::{errno, set_errno};

use crate::next::next;
use crate::rsockets::{Rsockets, rsocket};
use crate::table;

mod real {
    use super::*;

    next! {
        fn close(fd: c_int) -> c_int;
        fn dup(fd: c_int) -> c_int;
        fn dup2(old: c_int, new: c_int) -> c_int;
        fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int;
        fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int;
        fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int;
    }
}

/// The process that has made rsockets. In a child it forks they cannot be used, only closed.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// A descriptor that stands for an rsocket, which is closed if there is none.
pub(crate) fn stand_for(number: c_int, rsockets: &Rsockets) -> c_int {
    PROCESS.store(std::process::id(), Relaxed);
    // SAFETY: the rsocket's own descriptor is open.
    let descriptor = unsafe { real::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) };
    if descriptor >= 0 && table::add(descriptor, number) {
        return descriptor;
    }
    let errno = errno();
    // SAFETY: nobody has either.
    unsafe {
        (rsockets.rclose)(number);
        if descriptor >= 0 {
            real::close(descriptor);
        }
    }
    set_errno(if descriptor >= 0 { libc::EMFILE } else { errno });
    -1
}

/// Puts a socket of the system's in the place of an rsocket that could not be connected.
pub(crate) fn replace(fd: c_int, number: c_int, rsockets: &Rsockets) -> Result<(), c_int> {
    let number_of = |name| {
        let (mut value, mut length) = (0, 4);
        let at = (&raw mut value).cast();
        // SAFETY: room for a number.
        match unsafe { (rsockets.rgetsockopt)(number, libc::SOL_SOCKET, name, at, &mut length) } {
            0 => value,
            _ => 0,
        }
    };
    // SAFETY: the descriptor is the program's; the new one is moved to its place.
    unsafe {
        let flags = (rsockets.rfcntl)(number, libc::F_GETFL, 0) & libc::O_NONBLOCK;
        let domain = number_of(libc::SO_DOMAIN);
        let made = libc::syscall(libc::SYS_socket, domain, libc::SOCK_STREAM | flags, 0) as c_int;
        if made < 0 || real::dup2(made, fd) < 0 {
            let errno = errno();
            real::close(made);
            return Err(errno);
        }
        real::close(made);
    }
    close_rsocket(table::remove(fd));
    Ok(())
}

/// Closes an rsocket for which nothing stands any more.
fn close_rsocket(number: Option<c_int>) -> c_int {
    let Some((number, rsockets)) = number.zip(crate::rsockets::rsockets()) else { return 0 };
    if PROCESS.load(Relaxed) != std::process::id() {
        return 0;
    }
    // SAFETY: nothing stands for it, so nobody uses it any more.
    unsafe { (rsockets.rclose)(number) }
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if table::rsocket(fd).is_some() {
        close_rsocket(table::remove(fd));
    }
    // SAFETY: by the contract of this function.
    unsafe { real::close(fd) }
}

/// Has a new descriptor stand for what an old one stands for.
fn same(old: c_int, new: c_int) -> c_int {
    if new >= 0
        && let Some(number) = table::rsocket(old)
    {
        table::add(new, number);
    }
    new
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    // SAFETY: by the contract of this function.
    same(fd, unsafe { real::dup(fd) })
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup2(old: c_int, new: c_int) -> c_int {
    if old != new && table::rsocket(new).is_some() {
        close_rsocket(table::remove(new));
    }
    // SAFETY: by the contract of this function.
    let made = unsafe { real::dup2(old, new) };
    if old == new { made } else { same(old, made) }
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    if old != new && table::rsocket(new).is_some() {
        close_rsocket(table::remove(new));
    }
    // SAFETY: by the contract of this function.
    same(old, unsafe { real::dup3(old, new, flags) })
}

/// (In C the last argument may be left out: then nobody looks at it.)
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    // SAFETY: by the contract of this function.
    unsafe {
        match (rsocket(fd), command) {
            (Some((number, rsockets)), libc::F_GETFL | libc::F_SETFL) => {
                (rsockets.rfcntl)(number, command, argument)
            }
            (Some(_), libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) => {
                same(fd, real::fcntl(fd, command, argument))
            }
            _ => real::fcntl(fd, command, argument),
        }
    }
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: c_long) -> c_int {
    // SAFETY: by the contract of this function.
    unsafe { fcntl(fd, command, argument) }
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: by the contract of this function.
    unsafe {
        match rsocket(fd) {
            Some((number, rsockets)) if request == libc::FIONBIO && !argument.is_null() => {
                let nonblocking = argument.cast::<c_int>().read_unaligned() != 0;
                let flags = if nonblocking { libc::O_NONBLOCK } else { 0 };
                (rsockets.rfcntl)(number, libc::F_SETFL, flags.into())
            }
            _ => real::ioctl(fd, request, argument),
        }
    }
}

//! Functions on descriptors, some of which stand for rsockets.

use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};

use transom_thread::{errno, set_errno};

use crate::fork::takes_rsockets;
use crate::next::next;
use crate::process::has_rsockets;
use crate::rsockets::{Rsockets, rsocket};
use crate::{epoll, table};

mod real {
    use super::*;

    next! {
        fn close(fd: c_int) -> c_int;
        fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
        fn dup(fd: c_int) -> c_int;
        fn dup2(old: c_int, new: c_int) -> c_int;
        fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int;
        fn epoll_create(size: c_int) -> c_int;
        fn epoll_create1(flags: c_int) -> c_int;
        fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int;
        fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int;
    }
}

/// The lowest free descriptor, for an rsocket that is about to be made: an rsocket takes descriptors of its own, and none
/// may be left then.
pub(crate) struct Reserved(c_int);

impl Reserved {
    /// `None` with the errno if no descriptor is left that can stand for an rsocket.
    pub(crate) fn lowest() -> Option<Self> {
        // SAFETY: the call takes any arguments.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        let reserved = (descriptor >= 0).then_some(Self(descriptor))?;
        if table::has_place(descriptor) {
            return Some(reserved);
        }
        drop(reserved);
        set_errno(libc::EMFILE);
        None
    }

    /// Makes it stand for an rsocket. If that fails, it closes the rsocket. A program started by `exec` inherits the
    /// descriptor unless the flags forbid it, as it would inherit the system's socket. An rsocket is of no use there,
    /// but a system socket in its place may be.
    pub(crate) fn stand_for(self, number: c_int, flags: c_int, rsockets: &Rsockets) -> c_int {
        let closes = if flags & libc::SOCK_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
        // SAFETY: the rsocket's own descriptor is open, and so is this one.
        let descriptor = unsafe { real::dup3(number, self.0, closes) };
        if descriptor >= 0 && table::add(descriptor, number) {
            std::mem::forget(self);
            return descriptor;
        }
        let errno = if descriptor >= 0 { libc::EMFILE } else { errno() };
        // SAFETY: the program does not have it.
        unsafe { (rsockets.rclose)(number) };
        drop(self);
        set_errno(errno);
        -1
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let before = errno();
        // By its number, because the C library's function is a cancellation point.
        // SAFETY: the descriptor belongs to this value.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
        set_errno(before);
    }
}

/// A descriptor stands for no rsocket any more. The rsocket is closed with its last descriptor.
pub(crate) fn stands_for_none(fd: c_int) {
    if table::rsocket(fd).is_none() || !has_rsockets() {
        return;
    }
    if let Some((number, rsockets)) = table::remove(fd).zip(crate::rsockets::rsockets()) {
        // SAFETY: no descriptor stands for it, so nobody uses it any more.
        unsafe { (rsockets.rclose)(number) };
    }
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    epoll::closed(fd..=fd);
    stands_for_none(fd);
    // SAFETY: by the contract of this function.
    unsafe { real::close(fd) }
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let number = |fd| c_int::try_from(fd).unwrap_or(c_int::MAX);
    if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
        epoll::closed(number(first)..=number(last));
        table::within(number(first)..=number(last)).for_each(stands_for_none);
    }
    // SAFETY: by the contract of this function.
    unsafe { real::close_range(first, last, flags) }
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn closefrom(first: c_int) {
    // SAFETY: by the contract of this function. If the kernel cannot close all, the C library cannot either.
    unsafe { close_range(first.max(0).unsigned_abs(), c_uint::MAX, 0) };
}

/// A new set of epoll. It gets a number before the program can give it another name.
fn new_set(set: c_int) -> c_int {
    if set >= 0 && takes_rsockets() {
        // A set of this name may have been closed past this library.
        epoll::closed(set..=set);
        table::SETS.add_new(set);
    }
    set
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: by the contract of this function.
    new_set(unsafe { real::epoll_create(size) })
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: by the contract of this function.
    new_set(unsafe { real::epoll_create1(flags) })
}

/// Makes a new descriptor stand for the rsocket of an old one, or name its set of epoll, if it has one.
fn same(old: c_int, new: c_int) -> c_int {
    let (rsocket, set) = (table::rsocket(old), table::SETS.get(old));
    if new >= 0 && (rsocket.is_some() || set.is_some()) && has_rsockets() {
        rsocket.inspect(|number| _ = table::add(new, *number));
        set.inspect(|number| _ = table::SETS.add(new, *number));
    }
    new
}

/// The same, for a new descriptor that may have stood for another rsocket.
fn same_instead(old: c_int, new: c_int) -> c_int {
    if new >= 0 && old != new {
        epoll::closed(new..=new);
        stands_for_none(new);
        return same(old, new);
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
    // SAFETY: by the contract of this function.
    same_instead(old, unsafe { real::dup2(old, new) })
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    // SAFETY: by the contract of this function.
    same_instead(old, unsafe { real::dup3(old, new, flags) })
}

/// In C the last argument may be left out. Then nothing looks at it.
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
            (_, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) => {
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

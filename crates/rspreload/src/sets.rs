//! Waiting for several descriptors, some of which stand for rsockets.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use libc::{FD_ISSET, FD_SET, FD_ZERO, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use transom_thread::{errno, set_errno};

use crate::next::next;
use crate::rsockets::rsockets;
use crate::table;

mod real {
    use super::*;

    next! {
        fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
        fn ppoll(
            fds: *mut pollfd,
            count: nfds_t,
            timeout: *const timespec,
            mask: *const sigset_t
        ) -> c_int;
        fn select(
            count: c_int,
            read: *mut fd_set,
            write: *mut fd_set,
            except: *mut fd_set,
            timeout: *mut timeval
        ) -> c_int;
        fn pselect(
            count: c_int,
            read: *mut fd_set,
            write: *mut fd_set,
            except: *mut fd_set,
            timeout: *const timespec,
            mask: *const sigset_t
        ) -> c_int;
    }
}

/// What a program waits for, if something of that stands for an rsocket. More than fits into memory is left
/// to the C library, which refuses it.
unsafe fn with_rsockets<'a>(fds: *const pollfd, count: nfds_t) -> Option<&'a [pollfd]> {
    let most = isize::MAX as usize / size_of::<pollfd>();
    let count = usize::try_from(count).ok().filter(|count| *count <= most)?;
    if fds.is_null() {
        return None;
    }
    // SAFETY: by the caller there are so many.
    let fds = unsafe { std::slice::from_raw_parts(fds, count) };
    fds.iter().any(|entry| table::rsocket(entry.fd).is_some()).then_some(fds)
}

/// With the numbers of rsockets in the place of what stands for them; nothing if there is no memory for that.
fn translated(fds: &[pollfd]) -> Option<Vec<pollfd>> {
    let mut asked = Vec::new();
    asked.try_reserve_exact(fds.len()).ok()?;
    let number = |entry: &pollfd| table::rsocket(entry.fd).unwrap_or(entry.fd);
    asked.extend(fds.iter().map(|entry| pollfd { fd: number(entry), revents: 0, ..*entry }));
    Some(asked)
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: by the contract of this function.
    unsafe {
        let Some((wanted, rsockets)) = with_rsockets(fds, count).zip(rsockets()) else {
            return real::poll(fds, count, timeout);
        };
        let Some(mut asked) = translated(wanted) else {
            set_errno(libc::ENOMEM);
            return -1;
        };
        let answer = (rsockets.rpoll)(asked.as_mut_ptr(), count, timeout);
        if answer >= 0 {
            for (at, entry) in asked.iter().enumerate() {
                (*fds.add(at)).revents = entry.revents;
            }
        }
        answer
    }
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    _room: usize,
) -> c_int {
    // SAFETY: by the contract of this function.
    unsafe { poll(fds, count, timeout) }
}

/// The milliseconds of a time, rounded up; no time is for ever.
unsafe fn milliseconds(timeout: *const timespec) -> c_int {
    // SAFETY: it is null or a time.
    unsafe { timeout.as_ref() }.map_or(-1, |time| {
        let whole = time.tv_sec.saturating_mul(1000);
        let all = whole.saturating_add((time.tv_nsec + 999_999) / 1_000_000);
        c_int::try_from(all.max(0)).unwrap_or(c_int::MAX)
    })
}

/// Does something with the signals of a mask blocked.
unsafe fn masked(mask: *const sigset_t, wait: impl FnOnce() -> c_int) -> c_int {
    if mask.is_null() {
        return wait();
    }
    let mut old = MaybeUninit::uninit();
    // SAFETY: by the caller it is a mask, and there is room for the old one, which is put back.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, mask, old.as_mut_ptr());
        let answer = wait();
        let errno = errno();
        libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), std::ptr::null_mut());
        set_errno(errno);
        answer
    }
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: by the contract of this function.
    unsafe {
        if with_rsockets(fds, count).is_none() {
            return real::ppoll(fds, count, timeout, mask);
        }
        masked(mask, || poll(fds, count, milliseconds(timeout)))
    }
}

/// The descriptors of a set, with the others' numbers.
unsafe fn each(count: c_int, set: *const fd_set, mut with: impl FnMut(c_int)) {
    if !set.is_null() {
        for fd in 0..count.min(libc::FD_SETSIZE as c_int) {
            // SAFETY: a set has so many.
            if unsafe { FD_ISSET(fd, set) } {
                with(fd);
            }
        }
    }
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let sets = [read, write, except];
    let mut any = false;
    // SAFETY: by the contract of this function.
    unsafe {
        for set in sets {
            each(count, set, |fd| any |= table::rsocket(fd).is_some());
        }
        let Some(rsockets) = rsockets().filter(|_| any) else {
            return real::select(count, read, write, except, timeout);
        };
        let number = |fd| table::rsocket(fd).unwrap_or(fd);
        let mut most = 0;
        let mut asked = sets.map(|set| {
            let mut asked = MaybeUninit::<fd_set>::uninit();
            FD_ZERO(asked.as_mut_ptr());
            let mut fits = true;
            each(count, set, |fd| match number(fd) {
                number if number < libc::FD_SETSIZE as c_int => {
                    FD_SET(number, asked.as_mut_ptr());
                    most = most.max(number + 1);
                }
                _ => fits = false,
            });
            (asked.assume_init(), fits)
        });
        if asked.iter().any(|(_, fits)| !fits) {
            set_errno(libc::EINVAL);
            return -1;
        }
        let [(r, _), (w, _), (e, _)] = &mut asked;
        let answer = (rsockets.rselect)(most, r, w, e, timeout);
        if answer >= 0 {
            for (set, (asked, _)) in sets.into_iter().zip(&asked) {
                let mut found = MaybeUninit::<fd_set>::uninit();
                FD_ZERO(found.as_mut_ptr());
                each(count, set, |fd| {
                    if FD_ISSET(number(fd), asked) {
                        FD_SET(fd, found.as_mut_ptr());
                    }
                });
                if !set.is_null() {
                    *set = found.assume_init();
                }
            }
        }
        answer
    }
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let mut any = false;
    // SAFETY: by the contract of this function.
    unsafe {
        for set in [read, write, except] {
            each(count, set, |fd| any |= table::rsocket(fd).is_some());
        }
        if !any {
            return real::pselect(count, read, write, except, timeout, mask);
        }
        let mut time = timeout
            .as_ref()
            .map(|time| timeval { tv_sec: time.tv_sec, tv_usec: (time.tv_nsec + 999) / 1000 });
        let time = time.as_mut().map_or(std::ptr::null_mut(), |time| &raw mut *time);
        masked(mask, || select(count, read, write, except, time))
    }
}

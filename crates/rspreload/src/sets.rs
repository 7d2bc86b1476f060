//! Waiting for several descriptors, some of which stand for rsockets.

use std::ffi::c_int;
use std::ptr::null;
use std::time::{Duration, Instant};

use libc::{FD_CLR, FD_ISSET, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use transom_thread::{errno, set_errno};

use crate::masked::Masked;
use crate::next::next;
use crate::rsockets::{Rsockets, rsockets};
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

/// Room for `count` entries. The program chooses the count, so it may be too much for memory.
fn room(count: usize) -> Result<Vec<pollfd>, c_int> {
    let mut room = Vec::new();
    room.try_reserve_exact(count).map_err(|_| libc::ENOMEM)?;
    Ok(room)
}

/// A time in milliseconds, rounded up. `None` means for ever.
pub(crate) fn milliseconds(time: Option<Duration>) -> c_int {
    let all = |time: Duration| c_int::try_from(time.as_nanos().div_ceil(1_000_000));
    time.map_or(-1, |time| all(time).unwrap_or(c_int::MAX))
}

/// Waits for rsockets and other descriptors. Returns how many have events. `mask` replaces the thread's signal mask
/// meanwhile, unless it is null.
///
/// # Safety
/// `mask` is null or a mask.
pub(crate) unsafe fn wait(
    fds: &mut [pollfd],
    milliseconds: c_int,
    mask: *const sigset_t,
    rsockets: &Rsockets,
) -> Result<c_int, c_int> {
    let mut asked = room(fds.len() + 1)?;
    let number = |entry: &pollfd| table::rsocket(entry.fd).unwrap_or(entry.fd);
    asked.extend(fds.iter().map(|entry| pollfd { fd: number(entry), revents: 0, ..*entry }));
    let masked = match mask.is_null() {
        true => None,
        // SAFETY: by the contract of this function.
        false => Some(unsafe { Masked::new(mask) }?),
    };
    let told = masked.as_ref().and_then(Masked::told);
    asked.extend(told.map(|fd| pollfd { fd, events: libc::POLLIN, revents: 0 }));
    let count = asked.len() as nfds_t;
    // SAFETY: `asked` has `count` entries.
    let answer = unsafe { (rsockets.rpoll)(asked.as_mut_ptr(), count, milliseconds) };
    let answer = if answer < 0 { Err(errno()) } else { Ok(answer) };
    let has_come = told.is_some() && asked.pop().is_some_and(|told| told.revents != 0);
    let ready = answer? - c_int::from(has_come);
    if has_come && ready == 0 {
        drop(asked);
        masked.into_iter().for_each(Masked::let_in);
        return Err(libc::EINTR);
    }
    for (entry, asked) in fds.iter_mut().zip(&asked) {
        entry.revents = asked.revents;
    }
    Ok(ready)
}

/// The result of a C function: a number, or -1 and errno.
pub(crate) fn answered(answer: Result<c_int, c_int>) -> c_int {
    answer.unwrap_or_else(|errno| {
        set_errno(errno);
        -1
    })
}

/// The descriptors that a program waits for, if one of them stands for an rsocket. A count that is too much for memory
/// goes to the C library, which refuses it.
unsafe fn with_rsockets<'a>(
    fds: *mut pollfd,
    count: nfds_t,
) -> Option<(&'a mut [pollfd], &'static Rsockets)> {
    let most = isize::MAX as usize / size_of::<pollfd>();
    let count = usize::try_from(count).ok().filter(|count| *count <= most)?;
    if fds.is_null() {
        return None;
    }
    // SAFETY: the caller says that there are `count` entries.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, count) };
    let any = fds.iter().any(|entry| table::rsocket(entry.fd).is_some());
    Some(fds).filter(|_| any).zip(rsockets())
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: by the contract of this function.
    unsafe {
        match with_rsockets(fds, count) {
            Some((fds, rsockets)) => answered(wait(fds, timeout, null(), rsockets)),
            None => real::poll(fds, count, timeout),
        }
    }
}

/// Ends the program, as the C library does, if its memory is too small for `count` entries. `_FORTIFY_SOURCE` promises
/// that to the programs built with it.
fn check_room(count: nfds_t, room: usize) {
    if ((room / size_of::<pollfd>()) as nfds_t) < count {
        // SAFETY: it has no conditions.
        unsafe { libc::abort() }
    }
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    room: usize,
) -> c_int {
    check_room(count, room);
    // SAFETY: by the contract of this function.
    unsafe { poll(fds, count, timeout) }
}

/// The timeout that a program gives. `None` means for ever.
///
/// # Safety
/// `timeout` is null or a time.
pub(crate) unsafe fn time_of(timeout: *const timespec) -> Result<Option<Duration>, c_int> {
    // SAFETY: by the contract of this function.
    let Some(time) = (unsafe { timeout.as_ref() }) else { return Ok(None) };
    match (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec)) {
        (Ok(seconds), Ok(more @ ..1_000_000_000)) => Ok(Some(Duration::new(seconds, more))),
        _ => Err(libc::EINVAL),
    }
}

/// The timeout of `select(2)`, which may have more microseconds than a second has.
fn time_of_select(time: &timeval) -> Result<Duration, c_int> {
    let seconds = u64::try_from(time.tv_sec).map_err(|_| libc::EINVAL)?;
    let more = u64::try_from(time.tv_usec).map_err(|_| libc::EINVAL)?;
    Ok(Duration::from_secs(seconds).saturating_add(Duration::from_micros(more)))
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
        match with_rsockets(fds, count) {
            Some((fds, rsockets)) => {
                let time = time_of(timeout).map(milliseconds);
                answered(time.and_then(|time| wait(fds, time, mask, rsockets)))
            }
            None => real::ppoll(fds, count, timeout, mask),
        }
    }
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: usize,
) -> c_int {
    check_room(count, room);
    // SAFETY: by the contract of this function.
    unsafe { ppoll(fds, count, timeout, mask) }
}

/// The sets of `select(2)`: the events that each asks for, and the events that it reports.
const SETS: [(i16, i16); 3] = [
    (libc::POLLIN, libc::POLLIN | libc::POLLHUP | libc::POLLERR),
    (libc::POLLOUT, libc::POLLOUT | libc::POLLERR),
    (libc::POLLPRI, libc::POLLPRI),
];

/// The sets that a program waits for. At least one of them has a descriptor that stands for an rsocket.
struct Sets {
    count: c_int,
    sets: [*mut fd_set; 3],
    rsockets: &'static Rsockets,
}

impl Sets {
    /// # Safety
    /// Each set is null, or has room for `count` descriptors.
    unsafe fn with_rsockets(count: c_int, sets: [*mut fd_set; 3]) -> Option<Self> {
        let asked = |fd| {
            // SAFETY: by the contract of this function.
            sets.iter().any(|set| !set.is_null() && unsafe { FD_ISSET(fd, *set) })
        };
        let most = count.clamp(0, libc::FD_SETSIZE as c_int);
        let any = table::within(0..=most - 1).any(asked);
        Some(Self { count, sets, rsockets: rsockets().filter(|_| any)? })
    }

    /// Each descriptor in a set, with the events that the program asks for.
    fn asked(&self) -> Result<Vec<pollfd>, c_int> {
        if self.count > libc::FD_SETSIZE as c_int {
            return Err(libc::EINVAL);
        }
        let mut all = room(self.count as usize)?;
        for fd in 0..self.count {
            let asks = self.sets.iter().zip(SETS).filter(|(set, _)| {
                // SAFETY: the sets have room for `count` descriptors.
                !set.is_null() && unsafe { FD_ISSET(fd, **set) }
            });
            let events = asks.fold(0, |events, (_, (asks, _))| events | asks);
            if events != 0 {
                all.push(pollfd { fd, events, revents: 0 });
            }
        }
        Ok(all)
    }

    /// Leaves only descriptors with events in the sets. Returns how many entries are left.
    fn leave(&self, all: &[pollfd]) -> c_int {
        let mut count = 0;
        for (set, (asks, tells)) in self.sets.iter().zip(SETS) {
            // Go by entry, not by set: a set may have room for no more than `count` descriptors.
            for entry in all.iter().filter(|entry| !set.is_null() && entry.events & asks != 0) {
                if entry.revents & tells != 0 {
                    count += 1;
                } else {
                    // SAFETY: the descriptor is below the count.
                    unsafe { FD_CLR(entry.fd, *set) };
                }
            }
        }
        count
    }

    /// Waits for the first event.
    ///
    /// # Safety
    /// `mask` is null or a mask.
    unsafe fn wait(&self, time: Option<Duration>, mask: *const sigset_t) -> Result<c_int, c_int> {
        let mut all = self.asked()?;
        // SAFETY: by the contract of this function.
        unsafe { wait(&mut all, milliseconds(time), mask, self.rsockets) }?;
        if all.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
            return Err(libc::EBADF);
        }
        Ok(self.leave(&all))
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
    // SAFETY: by the contract of this function.
    unsafe {
        let Some(sets) = Sets::with_rsockets(count, [read, write, except]) else {
            return real::select(count, read, write, except, timeout);
        };
        let Some(timeout) = timeout.as_mut() else { return answered(sets.wait(None, null())) };
        let (begun, given) = (Instant::now(), time_of_select(timeout));
        let answer = given.and_then(|time| sets.wait(Some(time), null()));
        if let Ok(time) = given {
            // Linux writes back the time that is left.
            let left = time.saturating_sub(begun.elapsed());
            timeout.tv_sec = left.as_secs() as libc::time_t;
            timeout.tv_usec = left.subsec_micros().into();
        }
        answered(answer)
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
    // SAFETY: by the contract of this function.
    unsafe {
        match Sets::with_rsockets(count, [read, write, except]) {
            Some(sets) => answered(time_of(timeout).and_then(|time| sets.wait(time, mask))),
            None => real::pselect(count, read, write, except, timeout, mask),
        }
    }
}

//! `rpoll`, `rselect`: waiting for rsockets and other descriptors together.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::{fd_set, nfds_t, pollfd, timeval};

use super::entry::attempt;
use super::settings::Settings;
use super::socket::{SOCKETS, Socket, State};
use super::wait::{Deadline, Waiter, of_call};
use crate::entry::answered;
use crate::sanitized;
use crate::wrong::Wrong;

/// A timeout is negative.
const PAST: Wrong = Wrong::invalid("timeout is below 0");

/// Events that are reported even if the program does not ask for them.
const ALWAYS: i16 = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;

/// The rsockets of a call, with their positions.
type Sockets = Vec<(usize, Arc<Socket>)>;

/// The descriptors of a call.
struct Polled<'a> {
    fds: &'a mut [pollfd],
    /// The rsockets among them.
    sockets: Sockets,
    /// The entries for the system's `poll`. For an rsocket, they ask whether anything has happened to it.
    asked: Vec<pollfd>,
    /// This thread's registration at each rsocket while it sleeps. There is room for all.
    waiters: Vec<Waiter>,
}

impl Polled<'_> {
    /// Looks at the rsockets. Returns how many have events.
    fn look(&mut self) -> c_int {
        let mut count = 0;
        for (at, socket) in &self.sockets {
            let entry = &mut self.fds[*at];
            let asked = &mut self.asked[*at];
            asked.events = libc::POLLIN;
            entry.revents = socket.with(|state| {
                let events = match state {
                    State::Stream(stream) => {
                        if stream.is_connecting() {
                            stream.advance(&socket.waiting);
                        }
                        let events = stream.events();
                        // If the program does not ask for POLLIN, a waiting connection would wake it again and again.
                        if stream.is_listening() && events & !entry.events & libc::POLLIN != 0 {
                            asked.events = 0;
                        }
                        events
                    }
                    State::Datagram(datagrams) => {
                        datagrams.progress(&socket.waiting);
                        let mut events = if datagrams.is_readable() { libc::POLLIN } else { 0 };
                        events |= if datagrams.is_writable() { libc::POLLOUT } else { 0 };
                        // Waiting datagrams can still be read. After them, reading fails.
                        events | if datagrams.is_gone() { libc::POLLIN | libc::POLLERR } else { 0 }
                    }
                    State::Closed => libc::POLLNVAL,
                };
                alias(events) & (entry.events | ALWAYS)
            });
            count += c_int::from(entry.revents != 0);
        }
        count
    }

    /// Asks the system about all descriptors. Returns how many have events. The caller must look at the rsockets among
    /// them next.
    fn ask(&mut self, milliseconds: c_int) -> Result<c_int, Wrong> {
        let count = self.asked.len() as nfds_t;
        // SAFETY: `asked` has `count` entries.
        of_call("poll", unsafe { libc::poll(self.asked.as_mut_ptr(), count, milliseconds) })
    }

    /// Takes the system's answer for the other descriptors. Returns how many have events.
    fn others(&mut self) -> c_int {
        let mut sockets = self.sockets.iter().map(|(at, _)| *at).peekable();
        let mut count = 0;
        for (at, (entry, asked)) in self.fds.iter_mut().zip(&self.asked).enumerate() {
            if sockets.next_if_eq(&at).is_none() {
                entry.revents = asked.revents;
                count += c_int::from(entry.revents != 0);
            }
        }
        count
    }

    /// Registers this thread at all rsockets before it sleeps.
    fn enter(&mut self) {
        self.waiters.extend(self.sockets.iter().map(|(_, socket)| socket.waiting.enter()));
    }

    /// Ends these registrations.
    fn leave(&mut self) {
        for ((_, socket), waiter) in self.sockets.iter().zip(self.waiters.drain(..)) {
            socket.waiting.leave(waiter);
        }
    }

    /// Waits for the first event.
    fn wait(&mut self, deadline: Deadline) -> Result<c_int, Wrong> {
        if self.sockets.is_empty() {
            let milliseconds = match deadline {
                Deadline::Now => 0,
                deadline => deadline.milliseconds().unwrap_or(0),
            };
            self.ask(milliseconds)?;
            return Ok(self.others());
        }
        let (mut polling_time, begun) = (Settings::new().polling_time, Instant::now());
        loop {
            let ready = self.look();
            let none_waits = ready > 0 || matches!(deadline, Deadline::Now);
            if none_waits || begun.elapsed() < polling_time {
                let asks = self.sockets.len() < self.fds.len();
                let count = if asks { self.ask(0).map(|_| self.others())? } else { 0 };
                if none_waits || count > 0 {
                    return Ok(ready + count);
                }
                continue;
            }
            // From here on, sleep.
            polling_time = Duration::ZERO;
            // Register before arming. If another thread takes the event meant for this one, it nudges this one.
            self.enter();
            for (_, socket) in &self.sockets {
                // For a closed rsocket this fails, but its events report that.
                let _ = socket.arm();
            }
            // Look again. Other threads may have taken events that came since the last look.
            if self.look() > 0 {
                self.leave();
                continue;
            }
            let asked = deadline.milliseconds().map(|milliseconds| self.ask(milliseconds));
            self.leave();
            for (at, socket) in &self.sockets {
                if self.asked[*at].revents != 0 {
                    socket.advance();
                }
            }
            match asked {
                Some(Ok(1..)) => {
                    let count = self.others() + self.look();
                    if count > 0 {
                        return Ok(count);
                    }
                }
                Some(Err(errno)) => return Err(errno),
                Some(Ok(_)) | None => return Ok(self.look()),
            }
        }
    }
}

/// The events, with the other names of readable and writable.
fn alias(events: i16) -> i16 {
    let mut all = events;
    if events & libc::POLLIN != 0 {
        all |= libc::POLLRDNORM;
    }
    if events & libc::POLLOUT != 0 {
        all |= libc::POLLWRNORM;
    }
    all
}

/// Room for `count` entries. The program chooses the count, so it may be too much for memory.
fn room<T>(count: usize) -> Result<Vec<T>, Wrong> {
    let mut room = Vec::new();
    room.try_reserve_exact(count).map_err(|_| Wrong::no_memory())?;
    Ok(room)
}

/// Returns how many have events, and the rsockets among all.
fn poll(
    fds: &mut [pollfd],
    mut asked: Vec<pollfd>,
    deadline: Deadline,
) -> Result<(c_int, Sockets), Wrong> {
    asked.extend_from_slice(fds);
    let mut sockets = Vec::new();
    for (at, entry) in fds.iter_mut().enumerate() {
        entry.revents = 0;
        if let Some(socket) = SOCKETS.find(entry.fd) {
            if matches!(deadline, Deadline::Now) && socket.waiting.has_happened() {
                socket.advance();
            }
            asked[at].events = libc::POLLIN;
            sockets.try_reserve(1).map_err(|_| Wrong::no_memory())?;
            sockets.push((at, socket));
        }
    }
    let waiters = room(sockets.len())?;
    let mut polled = Polled { fds: &mut *fds, sockets, asked, waiters };
    let count = polled.wait(deadline);
    let sockets = polled.sockets;
    fds.iter().for_each(|entry| sanitized::written(&raw const entry.revents));
    Ok((count?, sockets))
}

/// The program is told of an event of an rsocket, if there is one. Only then may it rely on what its peer did before.
fn tell(fds: &[pollfd], sockets: &[(usize, Arc<Socket>)], has_event: impl Fn(&pollfd) -> bool) {
    if sockets.iter().any(|(at, _)| has_event(&fds[*at])) {
        sanitized::is_told(&SOCKETS);
    }
}

/// `poll(2)` for rsockets and other descriptors.
///
/// # Safety
/// `fds` has `nfds` entries.
pub unsafe extern "C" fn rpoll(fds: *mut pollfd, nfds: nfds_t, timeout: c_int) -> c_int {
    let polled = attempt(|| {
        let count = usize::try_from(nfds);
        let count = count.map_err(|_| Wrong::invalid("nfds is too large"))?;
        if fds.is_null() && count > 0 {
            return Err(Wrong::new(libc::EFAULT, "fds is null, and nfds is not 0"));
        }
        // This fails for more entries than memory can hold, so the slice below is not too long.
        let asked = room(count)?;
        let fds = if count > 0 {
            // SAFETY: by the contract of this function.
            unsafe { std::slice::from_raw_parts_mut(fds, count) }
        } else {
            &mut []
        };
        let deadline = match u64::try_from(timeout) {
            Ok(0) => Deadline::Now,
            Ok(milliseconds) => Deadline::after(Some(Duration::from_millis(milliseconds))),
            Err(_) => Deadline::Never,
        };
        let (count, sockets) = poll(fds, asked, deadline)?;
        tell(fds, &sockets, |entry| entry.revents != 0);
        Ok(count)
    });
    answered(c"rpoll", polled).unwrap_or(-1)
}

/// The three sets of `select(2)`: the events that each asks for, and the events that it reports.
const SETS: [(i16, i16); 3] = [
    (libc::POLLIN, libc::POLLIN | libc::POLLHUP | libc::POLLERR),
    (libc::POLLOUT, libc::POLLOUT | libc::POLLERR),
    (libc::POLLPRI, libc::POLLPRI),
];

/// `select(2)` for rsockets and other descriptors.
///
/// # Safety
/// The pointers are null or valid, and each set has room for `nfds` descriptors.
pub unsafe extern "C" fn rselect(
    nfds: c_int,
    readfds: *mut fd_set,
    writefds: *mut fd_set,
    exceptfds: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let sets = [readfds, writefds, exceptfds];
    let selected = attempt(|| {
        if !(0..=libc::FD_SETSIZE as c_int).contains(&nfds) {
            return Err(Wrong::invalid("nfds is below 0 or above FD_SETSIZE"));
        }
        // SAFETY: by the contract of this function.
        let deadline = match unsafe { timeout.as_ref() } {
            None => Deadline::Never,
            Some(timeval { tv_sec: 0, tv_usec: 0 }) => Deadline::Now,
            Some(time) => {
                let seconds = u64::try_from(time.tv_sec).map_err(|_| PAST)?;
                let more = u64::try_from(time.tv_usec).map_err(|_| PAST)?;
                let time = Duration::from_secs(seconds).checked_add(Duration::from_micros(more));
                Deadline::after(time)
            }
        };
        let mut fds = Vec::new();
        for fd in 0..nfds {
            let mut events = 0;
            for (set, (asks, _)) in sets.iter().zip(SETS) {
                // SAFETY: by the contract of this function.
                if !set.is_null() && unsafe { libc::FD_ISSET(fd, *set) } {
                    events |= asks;
                }
            }
            if events != 0 {
                fds.push(pollfd { fd, events, revents: 0 });
            }
        }
        let asked = room(fds.len())?;
        let (_, sockets) = poll(&mut fds, asked, deadline)?;
        if fds.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
            return Err(Wrong::new(libc::EBADF, "a set has a descriptor that is not open"));
        }
        tell(&fds, &sockets, |entry| {
            SETS.iter().any(|(asks, tells)| entry.events & asks != 0 && entry.revents & tells != 0)
        });
        let mut count = 0;
        for (set, (asks, tells)) in sets.into_iter().zip(SETS) {
            // Go by entry, not by set: a set may have room for no more than `nfds` descriptors.
            for entry in fds.iter().filter(|entry| !set.is_null() && entry.events & asks != 0) {
                if entry.revents & tells != 0 {
                    count += 1;
                } else {
                    // SAFETY: by the contract of this function. The descriptor is below `nfds`.
                    unsafe { libc::FD_CLR(entry.fd, set) };
                }
            }
        }
        Ok(count)
    });
    answered(c"rselect", selected).unwrap_or(-1)
}

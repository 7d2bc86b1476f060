//! Waiting for a socket. A socket has one descriptor that is readable while it has events, and threads that wait for
//! that.
//!
//! The thread that wakes first takes the events, and the descriptor is not readable any more when the others look. So a
//! thread that takes events wakes the others by one more descriptor.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::AcqRel, Ordering::Acquire};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::wrong::{Wrong, last_errno};

/// The result of a system call, or its fault.
pub(crate) fn of_call(call: &str, answer: c_int) -> Result<c_int, Wrong> {
    if answer < 0 { Err(Wrong::of_system(call, last_errno())) } else { Ok(answer) }
}

/// A new descriptor from a system call.
fn owned(call: &str, answer: c_int) -> Result<OwnedFd, Wrong> {
    // SAFETY: it was just made, and nobody else has it.
    of_call(call, answer).map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// A descriptor that is readable once it is set.
#[derive(Debug)]
pub(crate) struct Flag(OwnedFd);

impl Flag {
    pub(crate) fn new() -> Result<Self, Wrong> {
        // SAFETY: the call takes any arguments.
        owned("eventfd", unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
            .map(Self)
    }

    pub(crate) fn set(&self) {
        let one = 1_u64;
        // SAFETY: `one` has 8 bytes. The write fails only if the flag is set 2^64 times.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    pub(crate) fn clear(&self) {
        let mut count = 0_u64;
        // SAFETY: `count` has 8 bytes. The read fails if the flag was not set.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

impl AsRawFd for Flag {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A flag that is set for ever. It is made before the first socket, so that waking a thread needs no new descriptor. At
/// that time the process may have used up its descriptors.
fn set_for_ever() -> Result<&'static Flag, Wrong> {
    /// The flag, with the process that made it. A forked child may have closed its inherited descriptors.
    static SET: AtomicPtr<(u32, Flag)> = AtomicPtr::new(null_mut());
    let process = std::process::id();
    let before = SET.load(Acquire);
    // SAFETY: the value is never freed.
    if let Some((of, flag)) = unsafe { before.as_ref() }
        && *of == process
    {
        return Ok(flag);
    }
    let flag = Flag::new()?;
    flag.set();
    let new = Box::into_raw(Box::new((process, flag)));
    let set = match SET.compare_exchange(before, new, AcqRel, Acquire) {
        Ok(_) => new,
        Err(other) => {
            // SAFETY: it was made above, and nobody else has it.
            drop(unsafe { Box::from_raw(new) });
            other
        }
    };
    // SAFETY: as above. If this thread has not made it, another thread of this process has.
    Ok(unsafe { &(*set).1 })
}

/// The time until which a call may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deadline {
    /// It does not wait.
    Now,
    At(Instant),
    Never,
}

impl Deadline {
    /// A deadline in this time from now. `None` means for ever.
    pub(crate) fn after(time: Option<Duration>) -> Self {
        let at = time.map(|time| Instant::now().checked_add(time));
        at.flatten().map_or(Self::Never, Self::At)
    }

    /// The time left in milliseconds, rounded up, for `poll(2)`. `None` if the deadline has passed.
    pub(crate) fn milliseconds(self) -> Option<c_int> {
        match self {
            Self::Now => None,
            Self::Never => Some(-1),
            Self::At(at) => {
                let left = at.checked_duration_since(Instant::now())?;
                Some(c_int::try_from(left.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX))
            }
        }
    }
}

/// The descriptor of a socket, and the threads that wait for it.
#[derive(Debug)]
pub(crate) struct Waiting {
    epoll: OwnedFd,
    waiters: Mutex<Waiters>,
    /// It is watched while nudged threads have not woken yet.
    nudge: &'static Flag,
}

#[derive(Debug, Default)]
struct Waiters {
    count: usize,
    /// The number of nudges so far.
    nudges: u64,
    /// The number of nudged threads that have not woken yet.
    nudged: usize,
}

/// A waiting thread.
#[derive(Debug)]
#[must_use]
pub(crate) struct Waiter {
    /// The number of nudges before it began to wait.
    nudges: u64,
}

impl Waiting {
    pub(crate) fn new() -> Result<Self, Wrong> {
        // SAFETY: the call takes any arguments.
        let epoll = owned("epoll_create1", unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        Ok(Self { epoll, waiters: Mutex::default(), nudge: set_for_ever()? })
    }

    /// The descriptor.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Whether there are events that nobody has taken. This is one call; a look at each source of events would be
    /// several.
    pub(crate) fn has_happened(&self) -> bool {
        is_readable(self.descriptor(), 0).unwrap_or(true)
    }

    /// From now on, the socket's descriptor is readable if this one is, until this one is closed.
    pub(crate) fn watch(&self, descriptor: RawFd) -> Result<(), Wrong> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        let epoll = self.epoll.as_raw_fd();
        // SAFETY: both are open.
        of_call("epoll_ctl", unsafe {
            libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, descriptor, &mut event)
        })?;
        Ok(())
    }

    /// Like [`watch`](Self::watch). With `room`, the socket's descriptor is also readable while this one has room to
    /// write.
    pub(crate) fn watch_room(&self, descriptor: RawFd, room: bool) -> Result<(), Wrong> {
        let events = if room { libc::EPOLLIN | libc::EPOLLOUT } else { libc::EPOLLIN };
        let mut event = libc::epoll_event { events: events as u32, u64: 0 };
        let epoll = self.epoll.as_raw_fd();
        // SAFETY: both are open.
        of_call("epoll_ctl", unsafe {
            libc::epoll_ctl(epoll, libc::EPOLL_CTL_MOD, descriptor, &mut event)
        })?;
        Ok(())
    }

    /// Stops watching this descriptor.
    pub(crate) fn forget(&self, descriptor: RawFd) {
        let epoll = self.epoll.as_raw_fd();
        // SAFETY: both are open.
        unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, descriptor, null_mut()) };
    }

    /// A thread begins to wait. It holds the socket's lock, so it misses nothing.
    pub(crate) fn enter(&self) -> Waiter {
        let mut waiters = self.waiters.lock();
        waiters.count += 1;
        Waiter { nudges: waiters.nudges }
    }

    /// The thread has waited.
    pub(crate) fn leave(&self, waiter: Waiter) {
        let mut waiters = self.waiters.lock();
        waiters.count -= 1;
        if waiter.nudges < waiters.nudges {
            waiters.nudged -= 1;
            if waiters.nudged == 0 {
                self.forget(self.nudge.as_raw_fd());
            }
        }
    }

    /// Wakes all waiting threads, because this thread has taken or changed something that they may wait for. Do not
    /// call it otherwise. If a thread that was merely woken nudged the others, they would nudge it in turn, and none
    /// would sleep any more.
    pub(crate) fn nudge(&self) {
        let mut waiters = self.waiters.lock();
        if waiters.count == 0 {
            return;
        }
        if waiters.nudged == 0 && self.watch(self.nudge.as_raw_fd()).is_err() {
            return;
        }
        waiters.nudges += 1;
        waiters.nudged = waiters.count;
    }
}

/// Waits for one descriptor. False if the deadline has passed.
pub(crate) fn wait_for(descriptor: RawFd, deadline: Deadline) -> Result<bool, Wrong> {
    let Some(milliseconds) = deadline.milliseconds() else { return Ok(false) };
    is_readable(descriptor, milliseconds)
}

/// Whether a descriptor has room to write.
pub(crate) fn is_writable(descriptor: RawFd) -> bool {
    is_ready(descriptor, libc::POLLOUT, 0).unwrap_or(true)
}

/// Whether a descriptor becomes readable within this time in milliseconds.
fn is_readable(descriptor: RawFd, milliseconds: c_int) -> Result<bool, Wrong> {
    is_ready(descriptor, libc::POLLIN, milliseconds)
}

fn is_ready(descriptor: RawFd, events: i16, milliseconds: c_int) -> Result<bool, Wrong> {
    let mut polled = libc::pollfd { fd: descriptor, events, revents: 0 };
    let ready = transom_thread::poll(std::slice::from_mut(&mut polled), timespec(milliseconds));
    Ok(of_call("poll", ready)? > 0)
}

/// A time in milliseconds. `None`, for ever, if it is negative.
pub(crate) fn timespec(milliseconds: c_int) -> Option<libc::timespec> {
    let left = Duration::from_millis(milliseconds.try_into().ok()?);
    Some(libc::timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_who_wait_are_nudged_and_the_last_clears_it() {
        let waiting = Waiting::new().unwrap();
        let readable =
            || wait_for(waiting.descriptor(), Deadline::after(Some(Duration::from_millis(20))));
        waiting.nudge();
        assert_eq!(readable(), Ok(false));
        let (one, other) = (waiting.enter(), waiting.enter());
        waiting.nudge();
        assert_eq!(readable(), Ok(true));
        waiting.leave(one);
        // A thread that begins to wait now was not nudged, and does not delay the end of the nudge.
        let late = waiting.enter();
        assert_eq!(readable(), Ok(true));
        waiting.leave(other);
        assert_eq!(readable(), Ok(false));
        waiting.nudge();
        assert_eq!(readable(), Ok(true));
        waiting.leave(late);
        assert_eq!(readable(), Ok(false));
    }
}

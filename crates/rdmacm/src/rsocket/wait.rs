//! Waiting for a socket: one descriptor that is readable while something has happened to it, and threads
//! that wait for it.
//!
//! Who wakes first takes the events, and the descriptor is quiet again before another has looked. So
//! whoever takes events tells the others by one more descriptor.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::AcqRel, Ordering::Acquire};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::wrong::{Wrong, last_errno};

/// An answer of one of the system's calls, or what is wrong with that.
pub(crate) fn of_call(call: &str, answer: c_int) -> Result<c_int, Wrong> {
    if answer < 0 { Err(Wrong::of_system(call, last_errno())) } else { Ok(answer) }
}

/// A descriptor of the system's that is not answered to anybody else.
fn owned(call: &str, answer: c_int) -> Result<OwnedFd, Wrong> {
    // SAFETY: it was just made, and nobody else has it.
    of_call(call, answer).map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// A descriptor that is readable once it is set.
#[derive(Debug)]
pub(crate) struct Flag(OwnedFd);

impl Flag {
    pub(crate) fn new() -> Result<Self, Wrong> {
        // SAFETY: any such descriptor may be made.
        owned("eventfd", unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
            .map(Self)
    }

    pub(crate) fn set(&self) {
        let one = 1_u64;
        // SAFETY: eight bytes. It fails only if it is set two to the 64 times.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    pub(crate) fn clear(&self) {
        let mut count = 0_u64;
        // SAFETY: room for eight bytes. It fails if it was not set.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

impl AsRawFd for Flag {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// One that is set for ever. It is made before there is a socket, so that nothing has to be made when a thread is to
/// be woken: a process may have all its descriptors by then.
fn set_for_ever() -> Result<&'static Flag, Wrong> {
    /// With the process that made it: a forked child may have closed what it inherited.
    static SET: AtomicPtr<(u32, Flag)> = AtomicPtr::new(null_mut());
    let process = std::process::id();
    let before = SET.load(Acquire);
    // SAFETY: what is there is never freed.
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
            // SAFETY: made above, and nobody has it.
            drop(unsafe { Box::from_raw(new) });
            other
        }
    };
    // SAFETY: as above; another thread of this process has made it if this one has not.
    Ok(unsafe { &(*set).1 })
}

/// Until when a call may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deadline {
    /// It does not.
    Now,
    At(Instant),
    Never,
}

impl Deadline {
    /// So long from now.
    pub(crate) fn after(time: Option<Duration>) -> Self {
        let at = time.map(|time| Instant::now().checked_add(time));
        at.flatten().map_or(Self::Never, Self::At)
    }

    /// What is left, as `poll(2)` takes it, rounded up; nothing if it has passed.
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

/// What threads wait for.
#[derive(Debug)]
pub(crate) struct Waiting {
    epoll: OwnedFd,
    waiters: Mutex<Waiters>,
    /// Watched while threads that have been nudged still wait.
    nudge: &'static Flag,
}

#[derive(Debug, Default)]
struct Waiters {
    count: usize,
    /// How many nudges there were.
    nudges: u64,
    /// Threads that have been nudged and still wait.
    nudged: usize,
}

/// A thread that waits.
#[derive(Debug)]
#[must_use]
pub(crate) struct Waiter {
    /// The nudges before it came.
    nudges: u64,
}

impl Waiting {
    pub(crate) fn new() -> Result<Self, Wrong> {
        // SAFETY: any such descriptor may be made.
        let epoll = owned("epoll_create1", unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        Ok(Self { epoll, waiters: Mutex::default(), nudge: set_for_ever()? })
    }

    /// The descriptor.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Whether anything has happened that nobody has taken: one call, where looking for each of what may have
    /// happened is several.
    pub(crate) fn has_happened(&self) -> bool {
        is_readable(self.descriptor(), 0).unwrap_or(true)
    }

    /// The descriptor is readable if this one is. It ends with that one.
    pub(crate) fn watch(&self, descriptor: RawFd) -> Result<(), Wrong> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        let epoll = self.epoll.as_raw_fd();
        // SAFETY: both are open.
        of_call("epoll_ctl", unsafe {
            libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, descriptor, &mut event)
        })?;
        Ok(())
    }

    /// The same, also while that one has room to write, or no more so.
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

    /// What happens to this descriptor is another thread's.
    pub(crate) fn forget(&self, descriptor: RawFd) {
        let epoll = self.epoll.as_raw_fd();
        // SAFETY: both are open.
        unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, descriptor, null_mut()) };
    }

    /// A thread is about to wait. It has the socket locked, so it misses nothing.
    pub(crate) fn enter(&self) -> Waiter {
        let mut waiters = self.waiters.lock();
        waiters.count += 1;
        Waiter { nudges: waiters.nudges }
    }

    /// It has waited.
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

    /// What a thread has taken or changed, others may wait for: they look. Only then: who has merely been woken, and
    /// wakes the others in turn, is woken by them again, and none would sleep any more.
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

/// Waits for one descriptor; false if the time has passed.
pub(crate) fn wait_for(descriptor: RawFd, deadline: Deadline) -> Result<bool, Wrong> {
    let Some(milliseconds) = deadline.milliseconds() else { return Ok(false) };
    is_readable(descriptor, milliseconds)
}

/// Whether a descriptor has room to write.
pub(crate) fn is_writable(descriptor: RawFd) -> bool {
    is_ready(descriptor, libc::POLLOUT, 0).unwrap_or(true)
}

/// Whether a descriptor is readable within so many milliseconds.
fn is_readable(descriptor: RawFd, milliseconds: c_int) -> Result<bool, Wrong> {
    is_ready(descriptor, libc::POLLIN, milliseconds)
}

fn is_ready(descriptor: RawFd, events: i16, milliseconds: c_int) -> Result<bool, Wrong> {
    let mut polled = libc::pollfd { fd: descriptor, events, revents: 0 };
    let ready = transom_thread::poll(std::slice::from_mut(&mut polled), timespec(milliseconds));
    Ok(of_call("poll", ready)? > 0)
}

/// A time in milliseconds, without end if they are negative.
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
        // Who comes now is not meant, and does not keep it from being cleared.
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

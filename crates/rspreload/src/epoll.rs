//! `epoll(7)`, of sets that have descriptors which stand for rsockets.
//!
//! The kernel knows nothing of those, so each is kept here, with what the program wants to be told of it. Who
//! waits for such a set asks about them and about the set itself together, by `rpoll`. A descriptor in the
//! kernel's set (`nudge`) wakes all who wait when they change: it is readable until the last has looked.
//!
//! A readiness that is told once (`EPOLLET`) is told again when the program has used the socket: has read or
//! accepted, or could not write all.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ops::RangeInclusive;
use std::ptr::null;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use libc::{epoll_event, pollfd, sigset_t, timespec};
use parking_lot::Mutex;
use transom_thread::{errno, set_errno};

use crate::next::next;
use crate::process::has_rsockets;
use crate::rsockets::{Rsockets, rsockets};
use crate::sets::{answered, milliseconds, time_of, wait};
use crate::table;

mod real {
    use super::*;

    next! {
        fn close(fd: c_int) -> c_int;
        fn epoll_ctl(set: c_int, what: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
        fn epoll_wait(set: c_int, to: *mut epoll_event, room: c_int, timeout: c_int) -> c_int;
        fn epoll_pwait(
            set: c_int,
            to: *mut epoll_event,
            room: c_int,
            timeout: c_int,
            mask: *const sigset_t
        ) -> c_int;
        fn epoll_pwait2(
            set: c_int,
            to: *mut epoll_event,
            room: c_int,
            timeout: *const timespec,
            mask: *const sigset_t
        ) -> c_int;
    }
}

/// What tells of the nudge, in the place of a program's own data.
const NUDGE: u64 = 0x7472_616e_736f_6d21;
/// What is told unasked.
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
/// The bits that `poll(2)` has too.
const READY: u32 = 0x3fff;
const ONCE: u32 = libc::EPOLLONESHOT as u32;
const EDGE: u32 = libc::EPOLLET as u32;
/// What there is to be told of again when the program has read, and when it could not write.
pub(crate) const READ: u32 = !(libc::EPOLLOUT as u32);
pub(crate) const WRITE: u32 = libc::EPOLLOUT as u32 | ALWAYS;

/// The sets that have had rsockets, by their descriptors.
static SETS: Mutex<BTreeMap<c_int, Set>> = Mutex::new(BTreeMap::new());
/// How many they are: most programs have none, and do not lock them.
static COUNT: AtomicUsize = AtomicUsize::new(0);

struct Set {
    members: Vec<Member>,
    nudge: c_int,
    /// Threads that wait for it.
    waiting: usize,
    /// How many nudges there were, and how many threads have yet to wake from the last.
    nudges: u64,
    nudged: usize,
    /// Who is told of first when there is no room for all; it changes.
    rsockets_first: bool,
}

/// A descriptor that stands for an rsocket.
struct Member {
    fd: c_int,
    /// What is asked for, and how; of the readiness nothing is left once it has been told once for all.
    events: u32,
    data: u64,
    /// What may be told: all that is asked for, but for what is told once.
    untold: u32,
}

impl Member {
    fn new(fd: c_int, event: epoll_event) -> Self {
        Self { fd, events: event.events | ALWAYS, data: event.u64, untold: !0 }
    }

    /// What it is to be asked for; nothing if all of it has been told.
    fn asks(&self) -> Option<pollfd> {
        let events = (self.events & self.untold & READY) as i16;
        // What is told unasked would end every wait.
        let told = self.events & READY == 0 || self.untold & ALWAYS != ALWAYS;
        (!told).then_some(pollfd { fd: self.fd, events, revents: 0 })
    }

    /// What is told of this readiness.
    fn tell(&mut self, ready: i16) -> Option<epoll_event> {
        let ready = u32::from(ready as u16) & self.events & self.untold & READY;
        if ready == 0 {
            return None;
        }
        if self.events & EDGE != 0 {
            self.untold &= !ready;
        }
        if self.events & ONCE != 0 {
            self.events &= !READY;
        }
        Some(epoll_event { events: ready, u64: self.data })
    }
}

impl Set {
    /// Begins to keep one.
    fn new(set: c_int) -> Result<Self, c_int> {
        // SAFETY: any such descriptor may be made.
        let nudge = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if nudge < 0 {
            return Err(errno());
        }
        let members = Vec::new();
        let this = Self { members, nudge, waiting: 0, nudges: 0, nudged: 0, rsockets_first: false };
        let mut event = epoll_event { events: libc::EPOLLIN as u32, u64: NUDGE };
        // SAFETY: an event of this function's own.
        if unsafe { real::epoll_ctl(set, libc::EPOLL_CTL_ADD, nudge, &mut event) } != 0 {
            return Err(errno());
        }
        // Who waits already, waits in the kernel.
        this.set_nudge();
        Ok(this)
    }

    fn set_nudge(&self) {
        let one = 1_u64;
        // SAFETY: eight bytes. It fails only if it is set two to the 64 times.
        unsafe { libc::write(self.nudge, (&raw const one).cast(), 8) };
    }

    fn clear_nudge(&self) {
        let mut count = 0_u64;
        // SAFETY: room for eight bytes. It fails if it was not set.
        unsafe { libc::read(self.nudge, (&raw mut count).cast(), 8) };
    }

    /// What it has of rsockets has changed.
    fn nudge(&mut self) {
        if self.waiting > 0 {
            self.set_nudge();
            self.nudges += 1;
            self.nudged = self.waiting;
        }
    }

    /// A thread begins to wait: what it asks for, and the nudges before.
    fn enter(&mut self) -> (Vec<pollfd>, u64) {
        self.waiting += 1;
        (self.members.iter().filter_map(Member::asks).collect(), self.nudges)
    }

    /// It has waited.
    fn leave(&mut self, nudges: u64) {
        self.waiting -= 1;
        if nudges < self.nudges {
            self.nudged = self.nudged.saturating_sub(1);
            if self.nudged == 0 {
                self.clear_nudge();
            }
        }
    }

    fn place(&self, fd: c_int) -> Option<usize> {
        self.members.iter().position(|member| member.fd == fd)
    }

    /// # Safety
    /// It is null or an event.
    unsafe fn change(
        &mut self,
        what: c_int,
        fd: c_int,
        event: *const epoll_event,
    ) -> Result<(), c_int> {
        let place = self.place(fd);
        // SAFETY: by the contract of this function.
        let event = (!event.is_null()).then(|| unsafe { event.read_unaligned() });
        match (what, place, event) {
            (libc::EPOLL_CTL_ADD, None, Some(event)) => {
                self.members.try_reserve(1).map_err(|_| libc::ENOMEM)?;
                self.members.push(Member::new(fd, event));
            }
            (libc::EPOLL_CTL_MOD, Some(at), Some(event)) => {
                self.members[at] = Member::new(fd, event);
            }
            (libc::EPOLL_CTL_DEL, Some(at), _) => drop(self.members.remove(at)),
            (libc::EPOLL_CTL_ADD, Some(_), Some(_)) => return Err(libc::EEXIST),
            (libc::EPOLL_CTL_MOD, None, Some(_)) | (libc::EPOLL_CTL_DEL, None, _) => {
                return Err(libc::ENOENT);
            }
            (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, _, None) => return Err(libc::EFAULT),
            _ => return Err(libc::EINVAL),
        }
        self.nudge();
        Ok(())
    }

    /// Tells of its rsockets, by what `rpoll` has found.
    fn tell(&mut self, polled: &[pollfd], told: &mut Vec<epoll_event>, room: usize) {
        for entry in polled.iter().filter(|entry| entry.revents != 0) {
            if told.len() >= room {
                break;
            }
            let Some(at) = self.place(entry.fd) else { continue };
            if let Some(event) = self.members[at].tell(entry.revents) {
                told.push(event);
                // Whoever was told of comes last the next time.
                let member = self.members.remove(at);
                self.members.push(member);
            }
        }
    }

    /// Tells of what the kernel's set has.
    fn tell_of_others(&self, set: c_int, told: &mut Vec<epoll_event>, room: usize) {
        let begin = told.len();
        let left = room.saturating_sub(begin);
        if left == 0 || told.try_reserve(left).is_err() {
            return;
        }
        // SAFETY: there is so much room behind what is there, and so many are filled.
        unsafe {
            let to = told.as_mut_ptr().add(begin);
            let count = real::epoll_wait(set, to, c_int::try_from(left).unwrap_or(c_int::MAX), 0);
            told.set_len(begin + usize::try_from(count).unwrap_or(0));
        }
        let others = told.len();
        told.retain(|event| { event.u64 } != NUDGE);
        if told.len() < others && self.nudged == 0 {
            self.clear_nudge();
        }
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        // Not by this library's: the sets may be locked.
        // SAFETY: it is this value's own.
        unsafe { real::close(self.nudge) };
    }
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_ctl(
    set: c_int,
    what: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    if table::rsocket(set).is_some() {
        // The kernel would take it for a set.
        return answered(Err(libc::EINVAL));
    }
    if table::rsocket(fd).is_none() || !has_rsockets() {
        // SAFETY: by the contract of this function.
        return unsafe { real::epoll_ctl(set, what, fd, event) };
    }
    let mut sets = SETS.lock();
    let changed = match sets.get_mut(&set) {
        // SAFETY: by the contract of this function.
        Some(set) => unsafe { set.change(what, fd, event) },
        None => Set::new(set).and_then(|mut new| {
            // SAFETY: by the contract of this function.
            unsafe { new.change(what, fd, event) }?;
            sets.insert(set, new);
            COUNT.store(sets.len(), Relaxed);
            Ok(())
        }),
    };
    answered(changed.map(|()| 0))
}

/// Descriptors are closed, be they sets or in them.
pub(crate) fn closed(range: RangeInclusive<c_int>) {
    if COUNT.load(Relaxed) == 0 || !has_rsockets() {
        return;
    }
    let mut sets = SETS.lock();
    sets.retain(|set, _| !range.contains(set));
    COUNT.store(sets.len(), Relaxed);
    for set in sets.values_mut() {
        set.members.retain(|member| !range.contains(&member.fd));
    }
}

/// The program has used a socket, which is told of once: these may be told again.
#[inline]
pub(crate) fn used(fd: c_int, events: u32) {
    if COUNT.load(Relaxed) > 0 {
        tell_again(fd, events);
    }
}

#[cold]
fn tell_again(fd: c_int, events: u32) {
    let before = errno();
    for set in SETS.lock().values_mut() {
        let Some(at) = set.place(fd) else { continue };
        let member = &mut set.members[at];
        if member.untold & events != events {
            member.untold |= events;
            set.nudge();
        }
    }
    set_errno(before);
}

/// A socket of the system's has taken an rsocket's place: the kernel tells of it.
pub(crate) fn replaced(fd: c_int) {
    if COUNT.load(Relaxed) == 0 {
        return;
    }
    for (set, kept) in SETS.lock().iter_mut() {
        if let Some(at) = kept.place(fd) {
            let Member { events, data, .. } = kept.members.remove(at);
            let mut event = epoll_event { events, u64: data };
            // SAFETY: an event of this function's own.
            unsafe { real::epoll_ctl(*set, libc::EPOLL_CTL_ADD, fd, &mut event) };
        }
    }
}

/// Held from before a fork until after it.
pub(crate) fn hold() {
    std::mem::forget(SETS.lock());
}

/// Undoes [`hold`]. A child has no rsockets in its sets.
///
/// # Safety
/// This thread holds them, or is the copy of the one that does.
pub(crate) unsafe fn release(is_child: bool) {
    // SAFETY: by the contract of this function.
    unsafe {
        if is_child {
            COUNT.store(0, Relaxed);
            // The nudges stay, for the kernel's sets are the parent's too.
            std::mem::forget(std::mem::take(&mut *SETS.data_ptr()));
        }
        SETS.force_unlock();
    }
}

/// Waits for a set: how many events were told; nothing if the kernel knows all of it.
///
/// # Safety
/// There is so much room, and the mask is null or a mask.
unsafe fn wait_for(
    set: c_int,
    to: *mut epoll_event,
    room: c_int,
    time: impl Fn() -> Result<Option<Duration>, c_int>,
    mask: *const sigset_t,
) -> Option<Result<c_int, c_int>> {
    if table::rsocket(set).is_some() {
        return Some(Err(libc::EINVAL));
    }
    if COUNT.load(Relaxed) == 0 || !SETS.lock().contains_key(&set) {
        return None;
    }
    let rsockets = rsockets()?;
    let waited = time().and_then(|time| {
        let room = usize::try_from(room).ok().filter(|room| *room > 0).ok_or(libc::EINVAL)?;
        // SAFETY: by the contract of this function.
        let told = unsafe { events(set, room, time, mask, rsockets) }?;
        // SAFETY: there is room for so many.
        unsafe { to.copy_from_nonoverlapping(told.as_ptr(), told.len()) };
        Ok(told.len() as c_int)
    });
    Some(waited)
}

/// # Safety
/// The mask is null or a mask.
unsafe fn events(
    set: c_int,
    room: usize,
    time: Option<Duration>,
    mask: *const sigset_t,
    rsockets: &Rsockets,
) -> Result<Vec<epoll_event>, c_int> {
    let end = time.and_then(|time| Instant::now().checked_add(time));
    loop {
        let entered = SETS.lock().get_mut(&set).map(Set::enter);
        let (mut polled, nudges) = entered.ok_or(libc::EBADF)?;
        polled.push(pollfd { fd: set, events: libc::POLLIN, revents: 0 });
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        // SAFETY: by the contract of this function.
        let count = unsafe { wait(&mut polled, milliseconds(left), mask, rsockets) };
        let mut sets = SETS.lock();
        // It may have been closed meanwhile, and another have its number.
        let kept = sets.get_mut(&set).filter(|kept| kept.waiting > 0).ok_or(libc::EBADF)?;
        kept.leave(nudges);
        let mut told = Vec::new();
        if count? > 0 {
            let others = polled.pop().is_some_and(|set| set.revents != 0);
            kept.rsockets_first = !kept.rsockets_first;
            if kept.rsockets_first {
                kept.tell(&polled, &mut told, room);
            }
            if others {
                kept.tell_of_others(set, &mut told, room);
            }
            if !kept.rsockets_first {
                kept.tell(&polled, &mut told, room);
            }
        }
        let is_over = end.is_some_and(|end| Instant::now() >= end);
        if !told.is_empty() || is_over {
            return Ok(told);
        }
    }
}

/// Waits for a set: in the kernel if that knows all of it. Another thread may add the first rsocket meanwhile; then
/// it is waited for here, for what is left of the time.
///
/// # Safety
/// There is so much room, and the mask is null or a mask.
unsafe fn wait_wherever(
    set: c_int,
    to: *mut epoll_event,
    room: c_int,
    time: impl Fn() -> Result<Option<Duration>, c_int>,
    mask: *const sigset_t,
    in_the_kernel: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: by the contract of this function.
    if let Some(waited) = unsafe { wait_for(set, to, room, &time, mask) } {
        return answered(waited);
    }
    let begun = Instant::now();
    let count = in_the_kernel();
    let Some(found) = usize::try_from(count).ok().filter(|found| *found > 0) else { return count };
    // SAFETY: so many were filled.
    let kept = without_nudge(unsafe { std::slice::from_raw_parts_mut(to, found) });
    if kept > 0 {
        return kept as c_int;
    }
    // Who adds the first has the sets locked until this one is among them.
    drop(SETS.lock());
    let left = || Ok(time()?.map(|time| time.saturating_sub(begun.elapsed())));
    // SAFETY: by the contract of this function. Where the set has been closed, nothing is told either.
    answered(unsafe { wait_for(set, to, room, left, mask) }.unwrap_or(Err(libc::EINTR)))
}

/// Moves to the front what the program is to be told: how many.
fn without_nudge(events: &mut [epoll_event]) -> usize {
    let mut kept = 0;
    for at in 0..events.len() {
        if { events[at].u64 } != NUDGE {
            events.swap(kept, at);
            kept += 1;
        }
    }
    kept
}

/// The time of `epoll_wait`: none if it is negative.
fn time_of_milliseconds(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_wait(
    set: c_int,
    to: *mut epoll_event,
    room: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: by the contract of this function.
    unsafe {
        wait_wherever(
            set,
            to,
            room,
            || Ok(time_of_milliseconds(timeout)),
            null(),
            || real::epoll_wait(set, to, room, timeout),
        )
    }
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_pwait(
    set: c_int,
    to: *mut epoll_event,
    room: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: by the contract of this function.
    unsafe {
        wait_wherever(
            set,
            to,
            room,
            || Ok(time_of_milliseconds(timeout)),
            mask,
            || real::epoll_pwait(set, to, room, timeout, mask),
        )
    }
}

/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_pwait2(
    set: c_int,
    to: *mut epoll_event,
    room: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: by the contract of this function.
    unsafe {
        wait_wherever(
            set,
            to,
            room,
            || time_of(timeout),
            mask,
            || real::epoll_pwait2(set, to, room, timeout, mask),
        )
    }
}

//! `epoll(7)` for sets with descriptors that stand for rsockets.
//!
//! The kernel knows nothing of these descriptors. So each is kept here, with the events that the program wants. A
//! thread that waits for such a set waits for these descriptors and for the kernel's set together, by `rpoll`. If these
//! descriptors change, another descriptor in the kernel's set (`nudge`) wakes all waiting threads. It stays readable
//! until the last of them has looked.
//!
//! A program may give a set several descriptors by `dup(2)`, add by one and wait by another. So a set is known by a
//! number, which all its descriptors have.
//!
//! An edge-triggered event (`EPOLLET`) is reported once. It is reported again after the program has used the socket: it
//! has read or accepted, or could not write everything.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ops::{Deref, DerefMut, RangeInclusive};
use std::ptr::null;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use libc::{epoll_event, pollfd, sigset_t, timespec};
use parking_lot::{Mutex, MutexGuard};
use transom_thread::{SignalsBlocked, errno, set_errno};

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

/// The data of the nudge's event, in the place of a program's own data.
const NUDGE: u64 = 0x7472_616e_736f_6d21;
/// Events that are reported even if the program does not ask for them.
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
/// The bits that `poll(2)` has too.
const READY: u32 = 0x3fff;
const ONCE: u32 = libc::EPOLLONESHOT as u32;
const EDGE: u32 = libc::EPOLLET as u32;
/// Events to report again after the program has read, and after it could not write.
pub(crate) const READ: u32 = !(libc::EPOLLOUT as u32);
pub(crate) const WRITE: u32 = libc::EPOLLOUT as u32 | ALWAYS;

static SETS: Mutex<Kept> = Mutex::new(Kept { sets: BTreeMap::new(), held: None });
/// The number of these sets. Most programs have none, and never take the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

struct Kept {
    /// The sets that have had rsockets, by number ([`table::SETS`]): a set may have several descriptors.
    sets: BTreeMap<c_int, Set>,
    /// The signals that wait from before a fork until after it.
    held: Option<SignalsBlocked>,
}

/// The sets, locked. Signals wait meanwhile: a handler may close a descriptor or fork, and would wait for its own thread.
struct Sets {
    kept: MutexGuard<'static, Kept>,
    /// Behind the lock, so that it is dropped after it.
    blocked: SignalsBlocked,
}

fn lock() -> Sets {
    let blocked = SignalsBlocked::all();
    Sets { kept: SETS.lock(), blocked }
}

impl Deref for Sets {
    type Target = BTreeMap<c_int, Set>;

    fn deref(&self) -> &Self::Target {
        &self.kept.sets
    }
}

impl DerefMut for Sets {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.kept.sets
    }
}

struct Set {
    members: Vec<Member>,
    nudge: c_int,
    /// The threads that wait for it.
    waiting: usize,
    /// The number of nudges so far, and the number of threads that have yet to wake from the last one.
    nudges: u64,
    nudged: usize,
    /// Whether rsockets are reported first. It alternates, because there may be no room for all events.
    rsockets_first: bool,
}

/// A descriptor that stands for an rsocket.
struct Member {
    fd: c_int,
    /// The events that the program asks for, and its flags. With `EPOLLONESHOT`, no events are left after one report.
    events: u32,
    data: u64,
    /// The events that may be reported now. With `EPOLLET`, those already reported are missing.
    untold: u32,
}

impl Member {
    fn new(fd: c_int, event: epoll_event) -> Self {
        Self { fd, events: event.events | ALWAYS, data: event.u64, untold: !0 }
    }

    /// The entry for `rpoll`. `None` if every event has been reported.
    fn asks(&self) -> Option<pollfd> {
        let events = (self.events & self.untold & READY) as i16;
        // `rpoll` reports errors and hang-ups unasked. If these have been reported, they would end every wait.
        let told = self.events & READY == 0 || self.untold & ALWAYS != ALWAYS;
        (!told).then_some(pollfd { fd: self.fd, events, revents: 0 })
    }

    /// The event to report if the descriptor has these events, if any.
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
    /// A new set, for an epoll descriptor of the program.
    fn new(set: c_int) -> Result<Self, c_int> {
        // SAFETY: the call takes any arguments.
        let nudge = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if nudge < 0 {
            return Err(errno());
        }
        let members = Vec::new();
        let this = Self { members, nudge, waiting: 0, nudges: 0, nudged: 0, rsockets_first: false };
        let mut event = epoll_event { events: libc::EPOLLIN as u32, u64: NUDGE };
        // SAFETY: the event belongs to this function.
        if unsafe { real::epoll_ctl(set, libc::EPOLL_CTL_ADD, nudge, &mut event) } != 0 {
            return Err(errno());
        }
        // Threads that already wait do so in the kernel.
        this.set_nudge();
        Ok(this)
    }

    fn set_nudge(&self) {
        let one = 1_u64;
        // SAFETY: `one` has 8 bytes. The write fails only if the nudge is set 2^64 times.
        unsafe { libc::write(self.nudge, (&raw const one).cast(), 8) };
    }

    fn clear_nudge(&self) {
        let mut count = 0_u64;
        // SAFETY: `count` has 8 bytes. The read fails if the nudge was not set.
        unsafe { libc::read(self.nudge, (&raw mut count).cast(), 8) };
    }

    /// Wakes all waiting threads: the set's rsockets have changed.
    fn nudge(&mut self) {
        if self.waiting > 0 {
            self.set_nudge();
            self.nudges += 1;
            self.nudged = self.waiting;
        }
    }

    /// A thread begins to wait. Returns the entries for `rpoll`, and the number of nudges so far.
    fn enter(&mut self) -> (Vec<pollfd>, u64) {
        self.waiting += 1;
        (self.members.iter().filter_map(Member::asks).collect(), self.nudges)
    }

    /// The thread has waited.
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
    /// `event` is null or an event.
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

    /// Reports the events of its rsockets that `rpoll` has found.
    fn tell(&mut self, polled: &[pollfd], told: &mut Vec<epoll_event>, room: usize) {
        for entry in polled.iter().filter(|entry| entry.revents != 0) {
            if told.len() >= room {
                break;
            }
            let Some(at) = self.place(entry.fd) else { continue };
            if let Some(event) = self.members[at].tell(entry.revents) {
                told.push(event);
                // A reported member comes last the next time.
                let member = self.members.remove(at);
                self.members.push(member);
            }
        }
    }

    /// Reports the events of the kernel's set.
    fn tell_of_others(&self, set: c_int, told: &mut Vec<epoll_event>, room: usize) {
        let begin = told.len();
        let left = room.saturating_sub(begin);
        if left == 0 || told.try_reserve(left).is_err() {
            return;
        }
        // SAFETY: there is room for `left` events after those already there, and `count` of them are filled.
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
        // Not `close` of this library: it locks the sets, and they may be locked already.
        // SAFETY: the descriptor belongs to this value.
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
        // An rsocket is no epoll set, but the kernel might take its descriptor for one.
        return answered(Err(libc::EINVAL));
    }
    if table::rsocket(fd).is_none() || !has_rsockets() {
        // SAFETY: by the contract of this function.
        return unsafe { real::epoll_ctl(set, what, fd, event) };
    }
    let mut sets = lock();
    let number = table::SETS.get(set);
    let changed = match number.and_then(|number| sets.get_mut(&number)) {
        // SAFETY: by the contract of this function.
        Some(set) => unsafe { set.change(what, fd, event) },
        None => Set::new(set).and_then(|mut new| {
            // SAFETY: by the contract of this function.
            unsafe { new.change(what, fd, event) }?;
            // One that another program has made has no number yet.
            let number = number.or_else(|| table::SETS.add_new(set)).ok_or(libc::ENOSPC)?;
            sets.insert(number, new);
            COUNT.store(sets.len(), Relaxed);
            Ok(())
        }),
    };
    answered(changed.map(|()| 0))
}

/// Descriptors are being closed. They may be members, or names of sets. A set ends with its last name.
pub(crate) fn closed(range: RangeInclusive<c_int>) {
    let has_members = || COUNT.load(Relaxed) > 0 && table::within(range.clone()).next().is_some();
    let is_known = table::SETS.within(range.clone()).next().is_some() || has_members();
    if !is_known || !has_rsockets() {
        return;
    }
    let mut sets = lock();
    for last in table::SETS.within(range.clone()).filter_map(|name| table::SETS.remove(name)) {
        sets.remove(&last);
    }
    COUNT.store(sets.len(), Relaxed);
    for set in sets.values_mut() {
        set.members.retain(|member| !range.contains(&member.fd));
    }
}

/// The program has used a socket. Its edge-triggered events of these kinds may be reported again.
#[inline]
pub(crate) fn used(fd: c_int, events: u32) {
    if COUNT.load(Relaxed) > 0 {
        tell_again(fd, events);
    }
}

#[cold]
fn tell_again(fd: c_int, events: u32) {
    let before = errno();
    for set in lock().values_mut() {
        let Some(at) = set.place(fd) else { continue };
        let member = &mut set.members[at];
        if member.untold & events != events {
            member.untold |= events;
            set.nudge();
        }
    }
    set_errno(before);
}

/// A socket of the system has taken an rsocket's place. From now on the kernel reports its events.
pub(crate) fn replaced(fd: c_int) {
    if COUNT.load(Relaxed) == 0 {
        return;
    }
    for (set, kept) in lock().iter_mut() {
        if let Some(at) = kept.place(fd) {
            let Member { events, data, .. } = kept.members.remove(at);
            let mut event = epoll_event { events, u64: data };
            let Some(name) = table::SETS.all_of(*set).next() else { continue };
            // SAFETY: the event belongs to this function.
            unsafe { real::epoll_ctl(name, libc::EPOLL_CTL_ADD, fd, &mut event) };
        }
    }
}

/// Locks the sets, from before a fork until after it.
pub(crate) fn hold() {
    let Sets { mut kept, blocked } = lock();
    kept.held = Some(blocked);
    std::mem::forget(kept);
}

/// Undoes [`hold`]. A child has no rsockets in its sets.
///
/// # Safety
/// This thread has locked them, or is the copy of the one that has.
pub(crate) unsafe fn release(is_child: bool) {
    // SAFETY: by the contract of this function.
    unsafe {
        let kept = &mut *SETS.data_ptr();
        if is_child {
            COUNT.store(0, Relaxed);
            // The nudges stay open, because the parent has the kernel's sets too.
            std::mem::forget(std::mem::take(&mut kept.sets));
        }
        let blocked = kept.held.take();
        SETS.force_unlock();
        drop(blocked);
    }
}

/// Waits for a set. Returns how many events were reported. `None` if the set has no rsockets, so that the kernel can
/// wait.
///
/// # Safety
/// `to` has room for `room` events, and `mask` is null or a mask.
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
    if COUNT.load(Relaxed) == 0 {
        return None;
    }
    let number = table::SETS.get(set).filter(|number| lock().contains_key(number))?;
    let rsockets = rsockets()?;
    let waited = time().and_then(|time| {
        let room = usize::try_from(room).ok().filter(|room| *room > 0).ok_or(libc::EINVAL)?;
        // SAFETY: by the contract of this function.
        let told = unsafe { events((set, number), room, time, mask, rsockets) }?;
        // SAFETY: `events` returns at most `room` events.
        unsafe { to.copy_from_nonoverlapping(told.as_ptr(), told.len()) };
        Ok(told.len() as c_int)
    });
    Some(waited)
}

/// Waits for a set, by this descriptor and number.
///
/// # Safety
/// `mask` is null or a mask.
unsafe fn events(
    (set, number): (c_int, c_int),
    room: usize,
    time: Option<Duration>,
    mask: *const sigset_t,
    rsockets: &Rsockets,
) -> Result<Vec<epoll_event>, c_int> {
    let end = time.and_then(|time| Instant::now().checked_add(time));
    loop {
        let entered = lock().get_mut(&number).map(Set::enter);
        let (mut polled, nudges) = entered.ok_or(libc::EBADF)?;
        polled.push(pollfd { fd: set, events: libc::POLLIN, revents: 0 });
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        // SAFETY: by the contract of this function.
        let count = unsafe { wait(&mut polled, milliseconds(left), mask, rsockets) };
        let mut sets = lock();
        // The set may have been closed meanwhile, and another one may have its number.
        let kept = sets.get_mut(&number).filter(|kept| kept.waiting > 0).ok_or(libc::EBADF)?;
        kept.leave(nudges);
        // Or only this descriptor was closed, and the set has others.
        if table::SETS.get(set) != Some(number) {
            return Err(libc::EBADF);
        }
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

/// Waits for a set: in the kernel if the set has no rsockets. Another thread may add the first rsocket meanwhile. Then
/// the rest of the wait happens here.
///
/// # Safety
/// `to` has room for `room` events, and `mask` is null or a mask.
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
    // SAFETY: the kernel has filled `found` events.
    let kept = without_nudge(unsafe { std::slice::from_raw_parts_mut(to, found) });
    if kept > 0 {
        return kept as c_int;
    }
    // A thread that adds the first rsocket holds the lock until the set is in the table. Wait for that.
    drop(lock());
    let left = || Ok(time()?.map(|time| time.saturating_sub(begun.elapsed())));
    // SAFETY: by the contract of this function. If the set has been closed, there is nothing to report either.
    answered(unsafe { wait_for(set, to, room, left, mask) }.unwrap_or(Err(libc::EINTR)))
}

/// Moves the program's events to the front. Returns how many there are.
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

/// The timeout of `epoll_wait`. `None`, for ever, if it is negative.
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

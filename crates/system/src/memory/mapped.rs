//! The registered pages of this process that lie in its address-space file.
//!
//! A page is moved there when it has been used often enough, or at once when a region of it is registered, and
//! back when the last region has ended. It stays private, and the kernel copies, where moving it could be noticed:
//! see [`movable`].

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::*};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use tracing::debug;

use super::address_space::AddressSpace;
use super::maps::{self, Line, Maps};
use super::movable::{are_movable, has_locked, has_pinning, movable};
use super::page_size;
use super::registered::Registered;
use super::take_over::{self, Pages};
use super::uses::CHUNK_BITS;
use crate::fork::{self, ForkHandler};
use crate::say;
use crate::stopped_threads::{is_under_valgrind, retried};
use crate::this_process::this_process;

/// How long taking memory over again after a fork waits for those who use it.
const TAKE_OVER_TIMEOUT: Duration = Duration::from_millis(100);
/// How long it is tried to stop the program's threads where memory is to be moved, and not only better moved.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// Moved at once: the program stands still for so long.
const STEP: u64 = 1 << CHUNK_BITS;

/// What this process has in its file; none if it has no file.
static MAPPED: AtomicPtr<Mapped> = AtomicPtr::new(std::ptr::null_mut());

/// Whose peers and threads may be at work on registered pages.
static USERS: Mutex<Vec<Weak<dyn Accessed>>> = Mutex::new(Vec::new());

/// When registered memory is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// When it has been used so often that this pays.
    Used,
    /// When it is registered.
    Registered,
}

/// The pages of this process.
pub(crate) struct Mapped {
    space: Arc<AddressSpace>,
    /// Pages are moved when a region of them is registered, whether they are used or not.
    at_once: AtomicBool,
    /// It has been tried that pages can be moved.
    works: AtomicBool,
    maps: Maps,
    /// Locked while pages are moved, and from before a fork until after it.
    registered: Mutex<Registered>,
    _forks: Arc<Forks>,
}

/// A device of this process, whose peers and threads copy from and to registered memory.
pub trait Accessed: Send + Sync {
    /// Does something while none of them copies. False, and nothing is done, if one of them does not come
    /// to an end for some milliseconds: it may wait for something that this thread has.
    fn exclusively(&self, act: &mut dyn FnMut()) -> bool;

    /// Has a thread of this process call [`take_over_used`] soon.
    fn wake(&self);
}

/// That of this process, if it has one.
#[inline]
pub(super) fn mapped() -> Option<&'static Mapped> {
    // SAFETY: once made it stays for ever.
    unsafe { MAPPED.load(Acquire).as_ref() }
}

/// Has registered pages be mapped from now on, where the system allows it; the descriptor of the file.
///
/// # Errors
///
/// Why that cannot be. Whether pages can be moved is tried at once for [`When::Registered`] only; else they stay
/// private without an error.
pub fn begin(when: When) -> io::Result<u32> {
    if is_under_valgrind() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    static BEGINNING: Mutex<()> = Mutex::new(());
    let _one = BEGINNING.lock();
    if mapped().is_none() {
        let space = Arc::new(AddressSpace::create()?);
        let forks = Arc::new(Forks::default());
        let handler: Arc<dyn ForkHandler> = forks.clone();
        fork::watch(Arc::downgrade(&handler))?;
        let maps = Maps::default();
        maps.open();
        let made = Box::new(Mapped {
            space,
            at_once: AtomicBool::new(false),
            works: AtomicBool::new(false),
            maps,
            registered: Mutex::default(),
            _forks: forks,
        });
        MAPPED.store(Box::into_raw(made), Release);
    }
    let mapped = mapped().ok_or(io::ErrorKind::NotFound)?;
    if when == When::Registered {
        let _registered = mapped.registered.lock();
        mapped.check_works()?;
        mapped.at_once.store(true, Release);
    }
    Ok(mapped.space.descriptor())
}

/// Moves what the kernel has copied often, and what may be moved of that. It may wait for those who use it, and
/// stops the program's threads.
pub fn take_over_used() {
    let Some(mapped) = mapped() else { return };
    for chunk in mapped.space.uses().take_asked() {
        let mut registered = mapped.registered.lock();
        let bits = CHUNK_BITS - page_size().trailing_zeros();
        let private: Vec<_> =
            registered.private_of(&(chunk << bits..(chunk + 1) << bits)).collect();
        let mut all = !private.is_empty();
        for pages in private {
            let now = Instant::now();
            all &= mapped.take_over(&mut registered, pages, now, &mut |act| mapped.alone(now, act));
        }
        match all {
            true => mapped.space.uses().forget(chunk << CHUNK_BITS..(chunk + 1) << CHUNK_BITS),
            false => mapped.space.uses().put_off(chunk),
        }
    }
}

/// Has the device of this process look for what to move.
pub(super) fn wake_owner() {
    let user = USERS.lock().iter().find_map(Weak::upgrade);
    if let Some(user) = user {
        user.wake();
    }
}

/// The address-space file of a process, by its PID and the descriptor it has there. This process's own is
/// mapped once: what else it has of that file is the program's.
///
/// # Errors
///
/// What the system says, or that it is no such file.
pub fn attach(pid: u32, descriptor: u32) -> io::Result<Arc<AddressSpace>> {
    match mapped() {
        Some(own) if pid == this_process() && descriptor == own.space.descriptor() => {
            Ok(own.space.clone())
        }
        _ => Ok(Arc::new(AddressSpace::attach(pid, descriptor)?)),
    }
}

/// Has memory be moved only while nobody copies by this device.
pub fn add_user(user: Weak<dyn Accessed>) {
    let mut users = USERS.lock();
    users.retain(|known| known.strong_count() > 0);
    users.push(user);
}

/// A region of these bytes is about to be registered, which nobody can name yet. Those that are paged on
/// demand stay where they are, and so does what other regions share with them.
pub fn enter(address: u64, length: u64, on_demand: bool) {
    let Some(mapped) = mapped() else { return };
    let Some(pages) = whole_pages(address, length) else { return };
    let mut registered = mapped.registered.lock();
    let mut fresh = registered.add(pages.clone(), on_demand);
    fresh.extend(mapped.let_go_of_replaced(&mut registered, &pages));
    if on_demand || !mapped.at_once.load(Acquire) {
        return;
    }
    for pages in fresh {
        // Nobody can name the region yet. The pages are in no other, or their memory there is gone.
        let until = Instant::now() + STOP_TIMEOUT;
        mapped.take_over(&mut registered, pages, until, &mut |act| {
            act();
            true
        });
    }
}

/// Has fresh memory lie in the file from the start; false if it stays private. It counts as a region does, and
/// is to [`leave`] when it has been unmapped.
///
/// # Safety
///
/// The pages are private memory of zeros, and nobody knows of them yet.
pub(super) unsafe fn adopt(address: u64, length: u64) -> bool {
    let Some(mapped) = mapped() else { return false };
    let Some(pages) = whole_pages(address, length) else { return false };
    let mut registered = mapped.registered.lock();
    // Before a fork they are to be private.
    if let Err(error) = mapped.check_works() {
        debug!(address, %error, "memory stays private");
        return false;
    }
    registered.add(pages.clone(), false);
    let length = |pages: Range<u64>| pages.end - pages.start;
    let in_file: u64 = registered.mapped_of(&pages).map(length).sum();
    let free: u64 =
        mapped.let_go_of_replaced(&mut registered, &pages).into_iter().map(length).sum();
    let placed = match free == in_file {
        // SAFETY: as the caller says.
        true => unsafe { take_over::place(&mapped.space, Pages::of(&pages)) },
        // The program has moved memory that was here, and still has it in these pages of the file.
        false => Err(io::ErrorKind::ResourceBusy.into()),
    };
    if let Err(error) = placed {
        debug!(address, %error, "memory stays private");
        registered.remove(pages);
        return false;
    }
    registered.set_mapped(pages.clone(), true);
    mapped.space.set_present(pages.start, pages.end - 1, true);
    true
}

/// A region of these bytes has ended, and nobody uses it any more.
pub fn leave(address: u64, length: u64) {
    let Some(mapped) = mapped() else { return };
    let Some(pages) = whole_pages(address, length) else { return };
    let mut registered = mapped.registered.lock();
    let mut left = registered.take_kept();
    mapped.space.uses().forget(address..address.saturating_add(length));
    left.extend(registered.remove(pages));
    mapped.let_go(&mut registered, left);
}

/// Does something while nobody else uses the pages that it moves; false if that cannot be.
type Alone<'a> = dyn FnMut(&mut dyn FnMut()) -> bool + 'a;

/// Where the program has pages that lie in the file.
#[derive(Default)]
struct Whereabouts {
    /// In parts that are moved one after the other.
    here: Vec<Part>,
    /// It has unmapped them.
    gone: Vec<Range<u64>>,
}

/// Pages of the file that the program has.
struct Part {
    pages: Range<u64>,
    /// Where: at their address, unless it has moved them (`mremap(2)`).
    at: u64,
    /// What it may do with them.
    rights: ProtFlags,
}

impl Part {
    fn is_moved(&self) -> bool {
        self.at != Pages::of(&self.pages).address
    }

    fn give_back(&self, Mapped { space, maps, .. }: &Mapped) -> io::Result<()> {
        let Pages { address, length } = Pages::of(&self.pages);
        let here = Pages { address: self.at, length };
        let was_locked = Cell::new(false);
        let is_there = |line: &Line| {
            let begins = line.start.wrapping_sub(line.offset) == self.at.wrapping_sub(address);
            begins && space.is_behind(line) && line.rights() == self.rights
        };
        let are_there = || {
            was_locked.set(has_locked(here) == Some(true));
            if !maps.all(self.at..self.at + length, is_there) {
                return Err(Errno::NOENT);
            }
            // Another thread may have opened something just now.
            if has_pinning() { Err(Errno::BUSY) } else { Ok(()) }
        };
        take_over::give_back(space, address, (here, self.rights), are_there)?;
        if was_locked.get() {
            // SAFETY: it changes no byte.
            let locked = unsafe { rustix::mm::mlock(self.at as *mut _, length as usize) };
            locked
                .unwrap_or_else(|error| debug!(address = self.at, %error, "memory is not locked"));
        }
        Ok(())
    }
}

impl Mapped {
    #[inline]
    pub(super) fn space(&self) -> &AddressSpace {
        &self.space
    }

    /// Tries whether pages can be moved at all, unless that is known. Nobody else moves any meanwhile.
    fn check_works(&self) -> io::Result<()> {
        if !self.works.load(Acquire) {
            retried(Instant::now() + STOP_TIMEOUT, || take_over::try_out(&self.space))?;
            self.works.store(true, Release);
        }
        Ok(())
    }

    /// Moves those of some registered pages to the file that may be moved; whether all of those were, and some. Until a
    /// time it is tried again if threads do not stop.
    fn take_over(
        &self,
        registered: &mut Registered,
        pages: Range<u64>,
        until: Instant,
        alone: &mut Alone<'_>,
    ) -> bool {
        let parts: Vec<_> = movable(&self.maps, &pages).into_iter().flat_map(parts).collect();
        let mut all = !parts.is_empty();
        for part in parts {
            let taken = retried(until, || {
                let mut taken = Err(io::ErrorKind::ResourceBusy.into());
                alone(&mut || {
                    let are_movable = || are_movable(&self.maps, &part);
                    taken = take_over::take_over(&self.space, Pages::of(&part), are_movable);
                    if taken.is_ok() {
                        self.space.set_present(part.start, part.end - 1, true);
                    }
                });
                taken
            });
            match taken {
                Ok(()) => registered.set_mapped(part, true),
                Err(error) => {
                    debug!(address = Pages::of(&part).address, %error, "memory stays private");
                    all = false;
                }
            }
        }
        all
    }

    /// Has pages in no region be private memory again; if that cannot be now, with the next that end.
    fn let_go(&self, registered: &mut Registered, left: Vec<Range<u64>>) {
        let mut may_be_pinned = None;
        for pages in left {
            let Ok(Whereabouts { here, gone }) = self.whereabouts(&pages) else {
                registered.keep();
                continue;
            };
            for part in here {
                let give_back = || self.give_back_unless_pinned(&part, &mut may_be_pinned);
                match self.unless_it_fails(&part.pages, give_back) {
                    Ok(()) => registered.forget(part.pages),
                    Err(error) => {
                        debug!(address = part.at, %error, "memory stays shared");
                        registered.keep();
                    }
                }
            }
            for pages in gone {
                self.space.set_present(pages.start, pages.end - 1, false);
                let Pages { address, length } = Pages::of(&pages);
                let _ = self.space.discard(address, length);
                registered.forget(pages);
            }
        }
    }

    /// Has pages that nobody uses be private memory again, unless something may have pinned them.
    fn give_back_unless_pinned(
        &self,
        part: &Part,
        may_be_pinned: &mut Option<bool>,
    ) -> io::Result<()> {
        match *may_be_pinned.get_or_insert_with(has_pinning) {
            false => retried(Instant::now() + STOP_TIMEOUT, || part.give_back(self)),
            true => Err(io::ErrorKind::ResourceBusy.into()),
        }
    }

    /// Has pages that may be in use be private memory again.
    fn give_back(&self, part: &Part, alone: &mut Alone<'_>) -> io::Result<()> {
        let mut given = Err(io::ErrorKind::ResourceBusy.into());
        alone(&mut || given = self.unless_it_fails(&part.pages, || part.give_back(self)));
        given
    }

    /// Has pages that leave the file not be reached there any more. If they cannot leave it, those are again that
    /// were before: at the address of what the program has moved there may be other memory.
    fn unless_it_fails(
        &self,
        pages: &Range<u64>,
        leave: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let present = self.space.present_of(pages);
        self.space.set_present(pages.start, pages.end - 1, false);
        leave().inspect_err(|_| {
            present.iter().for_each(|it| self.space.set_present(it.start, it.end - 1, true));
        })
    }

    /// Has no pages in the file of which the program has unmapped the memory, or moved it, under a region,
    /// and has other memory at their addresses now; answers them, but for those that cannot leave the file.
    fn let_go_of_replaced(
        &self,
        registered: &mut Registered,
        pages: &Range<u64>,
    ) -> Vec<Range<u64>> {
        let mut replaced: Vec<_> = registered.mapped_of(pages).collect();
        // What cannot be found counts as replaced, for the kernel copies in any case; but the program may have it.
        let (mut parts, mut unknown) = (Vec::new(), Vec::new());
        for pages in &replaced {
            match self.whereabouts(pages) {
                Ok(found) => parts.extend(found.here),
                Err(_) => unknown.push(pages.clone()),
            }
        }
        let (moved, here): (Vec<_>, Vec<_>) = parts.into_iter().partition(Part::is_moved);
        for part in here {
            replaced =
                replaced.into_iter().flat_map(|it| without(it, part.pages.clone())).collect();
        }
        for pages in &replaced {
            self.space.set_present(pages.start, pages.end - 1, false);
        }
        let mut may_be_pinned = None;
        for part in moved {
            if let Err(error) = self.give_back_unless_pinned(&part, &mut may_be_pinned) {
                debug!(address = part.at, %error, "memory stays shared");
                unknown.push(part.pages);
            }
        }
        let is_apart =
            |it: &Range<u64>, from: &Range<u64>| without(it.clone(), from.clone()).eq([it.clone()]);
        replaced.retain(|it| unknown.iter().all(|pages| is_apart(it, pages)));
        replaced.iter().for_each(|pages| registered.set_mapped(pages.clone(), false));
        replaced
    }

    /// Where some pages are that lie in the file. Mostly they are where they were, and then the list, which
    /// may be long, is not read.
    ///
    /// # Errors
    ///
    /// The list cannot be read, or there is no memory for what it says.
    fn whereabouts(&self, pages: &Range<u64>) -> io::Result<Whereabouts> {
        let Pages { address, length } = Pages::of(pages);
        let found = self.found(pages, self.maps.lines_of(address..address + length)?)?;
        if found.gone.is_empty() && !found.here.iter().any(Part::is_moved) {
            return Ok(found);
        }
        self.found(pages, maps::lines()?)
    }

    /// What lines of the list say of where pages are. The program may have them in many parts.
    fn found(
        &self,
        pages: &Range<u64>,
        lines: impl IntoIterator<Item = Line>,
    ) -> io::Result<Whereabouts> {
        let (mut here, mut gone) = (Vec::new(), vec![pages.clone()]);
        for line in lines.into_iter().filter(|line| self.space.is_behind(line)) {
            let first = line.offset / page_size();
            let start = first.max(pages.start);
            let end = (first + (line.end - line.start) / page_size()).min(pages.end);
            if start >= end {
                continue;
            }
            gone = gone.into_iter().flat_map(|it| without(it, start..end)).collect();
            for pages in parts(start..end) {
                let at = line.start + (pages.start - first) * page_size();
                here.try_reserve(1)?;
                here.push(Part { at, pages, rights: line.rights() });
            }
        }
        Ok(Whereabouts { here, gone })
    }

    /// Does something while no device's peers and threads copy, unless that cannot be until `until`.
    fn alone(&self, until: Instant, act: &mut dyn FnMut()) -> bool {
        let users: Vec<_> = USERS.lock().iter().filter_map(Weak::upgrade).collect();
        loop {
            if exclusively(&users, act) {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
        }
    }
}

/// Does something while none of the users copies.
fn exclusively(users: &[Arc<dyn Accessed>], act: &mut dyn FnMut()) -> bool {
    let Some((first, rest)) = users.split_first() else {
        act();
        return true;
    };
    let mut done = false;
    first.exclusively(&mut || done = exclusively(rest, act)) && done
}

/// Pages are private while the process forks: its child is to have its own, as they are then. Parts of a
/// page that are not registered may be the C library's, which a child needs before anything here runs.
#[derive(Default)]
struct Forks {
    /// What is taken over again after the fork.
    given: Mutex<Vec<Range<u64>>>,
    /// How many forks there were that gave anything back: it takes the more use until memory is moved again, for a
    /// program that forks now and then would move all of it each time.
    costly: AtomicU64,
}

/// Forks beyond so many make no difference.
const MOST_COSTLY: u64 = 3;

impl ForkHandler for Forks {
    fn hold(&self, until: Instant) -> bool {
        let Some(mapped) = mapped() else { return false };
        let Some(mut registered) = mapped.registered.try_lock_until(until) else {
            say(format_args!("registered memory is missing in a forked child: it is being moved"));
            return false;
        };
        let mut given = self.given.lock();
        // Also what could not be given back when its last region ended.
        let everywhere = 0..u64::MAX / page_size();
        let found = maps::lines().and_then(|lines| mapped.found(&everywhere, lines));
        let mut parts = found.map(|found| found.here).unwrap_or_else(|error| {
            say(format_args!("registered memory is missing in a forked child: {error}"));
            Vec::new()
        });
        if !parts.is_empty() && has_pinning() {
            say_pinned();
            parts.clear();
        }
        while let Some(part) = parts.pop() {
            let give_back = || mapped.give_back(&part, &mut |act| mapped.alone(until, act));
            let is_late = || Instant::now() >= until;
            match retried(until, give_back) {
                Ok(()) => {
                    registered.forget(part.pages.clone());
                    given.extend(registered.mapped_of(&part.pages));
                    registered.set_mapped(part.pages, false);
                }
                // The program has unmapped, moved or protected it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound && !is_late() => {
                    parts.extend(mapped.whereabouts(&part.pages).unwrap_or_default().here);
                }
                Err(_) if has_pinning() => {
                    say_pinned();
                    parts.clear();
                }
                Err(error) => {
                    let (at, length) = (part.at, Pages::of(&part.pages).length);
                    say(format_args!(
                        "a forked child misses {length} bytes of registered memory at {at:#x}: {error}"
                    ));
                }
            }
        }
        // Nothing is taken over until the child is made.
        std::mem::forget(registered);
        true
    }

    unsafe fn release(&self) {
        let Some(mapped) = mapped() else { return };
        let until = Instant::now() + TAKE_OVER_TIMEOUT;
        // SAFETY: locked by `hold`, in this thread.
        let registered = unsafe { &mut *mapped.registered.data_ptr() };
        let given = std::mem::take(&mut *self.given.lock());
        if mapped.at_once.load(Acquire) {
            for part in given {
                mapped.take_over(registered, part, until, &mut |act| mapped.alone(until, act));
            }
        } else if !given.is_empty() {
            let costly = self.costly.fetch_add(1, Relaxed) + 1;
            // No part lies in two chunks.
            let chunks = given.iter().map(|part| Pages::of(part).address >> CHUNK_BITS);
            chunks.for_each(|chunk| mapped.space.uses().begin(chunk, costly.min(MOST_COSTLY)));
        }
        // SAFETY: as above.
        unsafe { mapped.registered.force_unlock() };
    }

    fn leave_to_parent(&self) {
        let inherited = MAPPED.swap(std::ptr::null_mut(), AcqRel);
        if !inherited.is_null() {
            // SAFETY: made by `begin`, and this is the child's only thread. Its mappings are the parent's.
            drop(unsafe { Box::from_raw(inherited) });
        }
        self.given.lock().clear();
        // Those of the parent move nothing here.
        if let Some(mut users) = USERS.try_lock() {
            users.clear();
        }
    }

    fn at_exit(&self, _until: Instant) {}

    fn fail(&self) {}

    fn is_own_device(&self) -> bool {
        false
    }
}

fn say_pinned() {
    say(format_args!(
        "a forked child misses registered memory: it is not moved while this program has an io_uring open, or a \
         device that may have pinned it"
    ));
}

fn whole_pages(address: u64, length: u64) -> Option<Range<u64>> {
    let last = address.checked_add(length.checked_sub(1)?)?;
    Some(address / page_size()..last / page_size() + 1)
}

/// Parts that are moved one after the other, none of them across a multiple of [`STEP`].
fn parts(pages: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let step = STEP / page_size();
    let mut next = pages.start;
    std::iter::from_fn(move || {
        let start = next;
        next = ((start / step + 1) * step).min(pages.end);
        (start < pages.end).then_some(start..next)
    })
}

/// What is left of some pages without others.
fn without(pages: Range<u64>, others: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let before = pages.start..others.start.clamp(pages.start, pages.end);
    let behind = others.end.clamp(pages.start, pages.end)..pages.end;
    [before, behind].into_iter().filter(|pages| !pages.is_empty())
}

//! Copies the program's shared memory when it forks.
//!
//! A child does not inherit the program's mapping, so nothing is ever shared with it in silence. A child that is made
//! without the C library (`clone(2)`, `_Fork(3)`) faults where it touches such memory, and frees nothing of it. Every
//! other child has a copy before any code of the program runs in it:
//!
//! * before the fork the parent copies the blocks to private memory elsewhere, which the child inherits. Later writes
//!   of other threads are not in the copy. Neither process waits for the other: the child may be killed at any moment,
//!   and the parent goes on at once;
//! * the child moves that memory to where the blocks were, with the rights that the program had there;
//! * the parent unmaps it.
//!
//! Signals are blocked meanwhile. Another thread that allocates gets private memory, and one that frees waits. If there
//! is no memory for the copy, the child says so and ends.
//!
//! If `libtransom_malloc.so` calls these handlers, they are the last before the fork and the first after it. Another
//! allocator may hold its locks around them, so they take no memory.

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags};
use transom_thread::uncancelled;

use super::super::page_size;
use super::super::shared::ALIGNMENT;
use super::{Given, INHERITED, OWN, Room, State, own, rooms, this_thread};
use crate::fork::{self, ForkHandler};
use crate::say::write_line;

/// The exit status of a forked child that has no copy of its parent's memory.
const NO_COPY: i32 = 125;
/// Parts of a room with rights of their own, or moved apart. There is space for at least this many.
const USUAL_PARTS: usize = 4096;
const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// The state of a room from before a fork until after it, for the thread that has its lock.
#[derive(Default)]
pub(super) struct Held(UnsafeCell<Option<Forking>>);

// SAFETY: only the thread that has the room's lock reaches it.
unsafe impl Send for Held {}
// SAFETY: as above.
unsafe impl Sync for Held {}

struct Forking {
    state: MutexGuard<'static, State>,
    copy: Result<Copy, Errno>,
    /// The room that was held before this one.
    next: *mut Room,
}

/// The thread that forks and has the locks of all rooms, by its number, which its copy in the child has too.
static FORKER: AtomicUsize = AtomicUsize::new(0);

/// One thread at a time forks, from before the first room is locked until after the last one is unlocked. Rooms may be
/// made meanwhile, so none of their locks would do.
static ONE: Mutex<()> = Mutex::new(());

/// What the thread that forks has to undo.
struct Now {
    _one: MutexGuard<'static, ()>,
    /// The signals that it had blocked before.
    signals: libc::sigset_t,
    /// The room that it has locked last.
    held: *mut Room,
    /// This process's room is lost, and stays so.
    is_lost: bool,
}

struct Place(UnsafeCell<Option<Now>>);
// SAFETY: only the thread that has `ONE` reaches it.
unsafe impl Sync for Place {}
static NOW: Place = Place(UnsafeCell::new(None));

/// The inherited room whose file a forked child still has.
static LEFT: AtomicPtr<Room> = AtomicPtr::new(null_mut());

/// Registers the handlers, before the device registers its own. `called_already`: `libtransom_malloc.so` calls those
/// around the fork itself.
pub(super) fn watch_forks(called_already: bool) -> io::Result<()> {
    unsafe extern "C" fn before() {
        before_fork();
    }
    unsafe extern "C" fn parent() {
        in_parent();
    }
    unsafe extern "C" fn child() {
        in_child();
    }

    static WATCHING: std::sync::OnceLock<Arc<dyn ForkHandler>> = std::sync::OnceLock::new();
    if WATCHING.get().is_some() {
        return Ok(());
    }
    if !called_already {
        // SAFETY: three functions that live as long as this library, which the C library forgets when the
        // library is unloaded.
        let done = unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
        if done != 0 {
            return Err(io::Error::from_raw_os_error(done));
        }
    }
    fork::watch(Arc::downgrade(WATCHING.get_or_init(|| Arc::new(File))))
}

/// In a forked child, lets go of the file of its parent's shared memory.
struct File;

impl ForkHandler for File {
    fn hold(&self, _until: Instant) -> bool {
        false
    }

    unsafe fn release(&self) {}

    fn leave_to_parent(&self) {
        let room = LEFT.swap(null_mut(), AcqRel);
        // SAFETY: rooms stay for ever.
        if let Some(room) = unsafe { room.as_ref() } {
            // SAFETY: the reference that the room has, which nobody reaches in a room that is inherited.
            unsafe { Arc::decrement_strong_count(Arc::as_ptr(&room.memory)) };
        }
    }

    fn at_exit(&self, _until: Instant) {}

    fn fail(&self) {}

    fn own_device(&self) -> Option<u8> {
        None
    }
}

/// Locks all rooms, and copies the program's blocks in this process's own.
pub(super) fn before_fork() {
    uncancelled(|| {
        if rooms().next().is_none() || is_forking(this_thread()) {
            return;
        }
        let signals = hold_signals();
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        FORKER.store(this_thread(), Release);
        let mut held = null_mut();
        let is_lost = own().is_some_and(Room::is_lost);
        for room in rooms().filter(|room| !room.is_lost()) {
            // This thread has none of them yet.
            let state = room.state.lock().unwrap_or_else(PoisonError::into_inner);
            let copy = Copy::of(room, &state);
            // SAFETY: this thread has the lock.
            unsafe { *room.held.0.get() = Some(Forking { state, copy, next: held }) };
            held = std::ptr::from_ref(room).cast_mut();
        }
        // SAFETY: this thread has `ONE`.
        unsafe { *NOW.0.get() = Some(Now { _one: one, signals, held, is_lost }) };
    });
}

/// Ends [`before_fork`].
pub(super) fn in_parent() {
    uncancelled(|| {
        let now = each_held(|_, forking| {
            if let Ok(copy) = &forking.copy {
                copy.unmap();
            }
        });
        now.into_iter().for_each(go_on);
    });
}

/// As [`in_parent`], in the child.
pub(super) fn in_child() {
    uncancelled(|| {
        let now = each_held(|room, forking| {
            if !own().is_some_and(|own| std::ptr::eq(own, room)) {
                return;
            }
            let moved = forking.copy.as_ref().map_err(|error| *error);
            let moved = moved.and_then(|copy| copy.move_to(room.base()));
            forking.state.private = Some(moved.unwrap_or_else(|error| no_copy(error)));
            let room = std::ptr::from_ref(room);
            // SAFETY: rooms stay for ever.
            let next = unsafe { &(*room).next };
            next.store(INHERITED.load(Relaxed), Relaxed);
            INHERITED.store(room.cast_mut(), Release);
            LEFT.store(room.cast_mut(), Release);
        });
        // The child has no room of its own, not even one that another thread has made during the fork.
        if !now.as_ref().is_some_and(|now| now.is_lost) {
            OWN.store(null_mut(), Release);
        }
        now.into_iter().for_each(go_on);
    });
}

/// If this thread is the one that forks, or its copy in the child: calls `act` for each locked room, and unlocks the
/// room. Returns what is left to undo.
fn each_held(act: impl Fn(&'static Room, &mut Forking)) -> Option<Now> {
    if !is_forking(this_thread()) {
        return None;
    }
    // SAFETY: this thread has `ONE`, until it drops this.
    let now = unsafe { (*NOW.0.get()).take() }?;
    let mut held = now.held;
    // SAFETY: rooms stay for ever.
    while let Some(room) = unsafe { held.as_ref::<'static>() } {
        // SAFETY: as above, for this room.
        let Some(mut forking) = (unsafe { (*room.held.0.get()).take() }) else { break };
        act(room, &mut forking);
        held = forking.next;
    }
    Some(now)
}

/// Lets the next thread fork.
fn go_on(now: Now) {
    FORKER.store(0, Release);
    let signals = now.signals;
    drop(now);
    // SAFETY: the mask as it was.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &signals, null_mut()) };
}

/// Whether this is the thread that forks, which has all locks.
pub(super) fn is_forking(thread: usize) -> bool {
    FORKER.load(Acquire) == thread
}

/// Whether any thread has the locks of all rooms, or is about to have them.
pub(super) fn is_anyone_forking() -> bool {
    FORKER.load(Acquire) != 0
}

/// Blocks all signals, and tells which were blocked before.
fn hold_signals() -> libc::sigset_t {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: sets that these calls initialise.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

#[cold]
fn no_copy(error: Errno) -> ! {
    write_line(format_args!(
        "a forked child of a process with shared memory ends: there is no memory for its copy of it ({error}); \
         with TRANSOM_MEMORY=private nothing is copied"
    ));
    // SAFETY: it takes a number.
    unsafe { libc::_exit(NO_COPY) }
}

/// A copy of a room's blocks in private memory, at the same distances from each other. Behind it is the list of its
/// parts.
struct Copy {
    /// The beginning and the length of the mapping.
    mapped: (NonNull<u8>, usize),
    /// The place of the room's first byte in it.
    first: NonNull<u8>,
    /// Bytes of the room.
    open: u64,
    parts: usize,
}

/// Pages that the program still has at the address where they were given out.
#[derive(Clone, Copy)]
struct Part {
    offset: u64,
    length: u64,
    rights: ProtFlags,
}

impl Copy {
    /// Copies a room. The caller has its lock.
    fn of(room: &Room, state: &State) -> Result<Self, Errno> {
        let nothing = || Self {
            mapped: (NonNull::dangling(), 0),
            first: NonNull::dangling(),
            open: 0,
            parts: 0,
        };
        let given = state.given.as_ref().filter(|given| given.pages > 0);
        let Some(given) = given.filter(|_| state.private.is_none()) else { return Ok(nothing()) };
        let copy = Self::of_parts(room)?;
        copy.fill(room, given).inspect_err(|_| copy.unmap())?;
        Ok(copy)
    }

    /// An empty copy with the list of all parts, however many the program has made.
    fn of_parts(room: &Room) -> Result<Self, Errno> {
        let mut most = USUAL_PARTS;
        loop {
            let copy = Self::empty(room.mapping.open(), most)?;
            match copy.note_parts(room, most) {
                Ok(parts) if parts <= most => return Ok(Self { parts, ..copy }),
                noted => {
                    copy.unmap();
                    // Other threads may make more of them meanwhile.
                    most = 2 * noted?;
                }
            }
        }
    }

    fn empty(open: u64, most_parts: usize) -> Result<Self, Errno> {
        let length = open as usize + ALIGNMENT + most_parts * size_of::<Part>();
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh mapping where the kernel finds room.
        let place = unsafe { rustix::mm::mmap_anonymous(null_mut(), length, READ_WRITE, flags)? };
        let place = NonNull::new(place.cast::<u8>()).expect("a mapping is never at zero");
        let skip = place.addr().get().next_multiple_of(ALIGNMENT) - place.addr().get();
        // SAFETY: within the mapping.
        let first = unsafe { place.add(skip) };
        Ok(Self { mapped: (place, length), first, open, parts: 0 })
    }

    /// Copies the pages of the blocks that exist.
    fn fill(&self, room: &Room, given: &Given) -> Result<(), Errno> {
        let page = page_size();
        let mut from = 0;
        while let Some((first, end)) = given.taken.next_run(from) {
            let (mut at, end_at) = (u64::from(first) * page, u64::from(end) * page);
            while at < end_at
                && let Some((start, hole)) = room.memory.next_pages(at)?
                && start < end_at
            {
                at = hole.min(end_at);
                self.copy_pages(room, start, at - start)?;
            }
            from = end;
        }
        Ok(())
    }

    fn copy_pages(&self, room: &Room, offset: u64, length: u64) -> Result<(), Errno> {
        let from = room.memory.find(offset, length).ok_or(Errno::NOMEM)?;
        // SAFETY: within the copy, which is as long as the accessible part of the room. Other threads may write to the
        // source at the same time; any bytes are valid.
        unsafe {
            let to = self.first.add(offset as usize);
            let huge = to.addr().get().next_multiple_of(ALIGNMENT);
            let end = (to.addr().get() + length as usize) / ALIGNMENT * ALIGNMENT;
            if huge < end {
                let at = to.as_ptr().with_addr(huge).cast();
                let _ = rustix::mm::madvise(at, end - huge, Advice::LinuxHugepage);
            }
            std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), length as usize);
        }
        Ok(())
    }

    /// Lists the parts of the room that the program still sees at the addresses where they were given out, with their
    /// rights, up to `most`. Returns how many there are.
    fn note_parts(&self, room: &Room, most: usize) -> Result<usize, Errno> {
        let (base, mut count) = (room.base(), 0);
        room.maps.each(base..base + self.open, |line| {
            if !room.shows(line) {
                return true;
            }
            let end = line.end.min(base + self.open);
            let (offset, length) = (line.start - base, end - line.start);
            if count < most {
                // SAFETY: there is room for so many.
                unsafe { self.part(count).write(Part { offset, length, rights: line.rights() }) };
            }
            count += 1;
            true
        })?;
        Ok(count)
    }

    /// The place of a part in the list.
    fn part(&self, at: usize) -> *mut Part {
        // SAFETY: within the mapping.
        unsafe { self.first.as_ptr().add(self.open as usize).cast::<Part>().add(at) }
    }

    /// In the child, moves the copy to the addresses of the room, where the child has nothing yet. Returns how many
    /// bytes of the room it has now.
    fn move_to(&self, base: u64) -> Result<u64, Errno> {
        for at in 0..self.parts {
            // SAFETY: noted before the fork.
            let Part { offset, length, rights } = unsafe { self.part(at).read() };
            let end = offset + length;
            let mut at = offset;
            // A new mapping begins where huge pages were asked for. Before Linux 6.17, one call moves pages of one
            // mapping only.
            while at < end {
                let next = (at + 1).next_multiple_of(ALIGNMENT as u64).min(end);
                let length = (next - at) as usize;
                // SAFETY: of the copy, to where this process has nothing: its parent's mapping is not inherited.
                unsafe {
                    let from = self.first.as_ptr().add(at as usize).cast();
                    let to = std::ptr::with_exposed_provenance_mut((base + at) as usize);
                    rustix::mm::mremap_fixed(from, length, length, MremapFlags::MAYMOVE, to)?;
                }
                at = next;
            }
            if rights != READ_WRITE {
                let rights = MprotectFlags::from_bits_retain(rights.bits());
                let first = std::ptr::with_exposed_provenance_mut((base + offset) as usize);
                // SAFETY: the part that has just been moved there.
                unsafe { rustix::mm::mprotect(first, length as usize, rights)? };
            }
        }
        let open = self.open;
        self.unmap();
        Ok(open)
    }

    fn unmap(&self) {
        let (place, length) = self.mapped;
        if length > 0 {
            // SAFETY: made by `empty` with this length. Parts that were moved away are gone, and nothing else is in
            // their place: the child has only one thread, and in the parent nothing was moved.
            let _ = unsafe { rustix::mm::munmap(place.as_ptr().cast(), length) };
        }
    }
}

/// Gives back private memory of a forked child that nobody has any more.
pub(super) fn discard(address: u64, length: u64) -> Result<(), Errno> {
    let at = std::ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: it was a block's, and nobody has it.
    unsafe { rustix::mm::madvise(at, length as usize, Advice::LinuxDontNeed) }
}

//! Gives out this process's shared memory: device memory, buffers and, under `transom run`, the program's allocations
//! that are aligned to a page. `libtransom_malloc.so` asks for these here first.
//!
//! * A **block** is an allocation: whole pages of the file, which the program sees through a mapping of its own. The
//!   page before each block is not used. So code that takes a block for one of the C library's finds no sizes there,
//!   and says so.
//! * A region **pins** its block. A pinned block that the program frees is neither given out again nor emptied before
//!   the region ends, as an adapter keeps the pages that it has pinned.
//! * Freed pages are kept for the next allocation, up to a bound. The rest goes back to the system.
//! * A forked child gets a copy ([`copy`]), and keeps it as private memory. It frees these blocks here all the same,
//!   but this room gives out nothing more.
//! * A child that is made without the C library (`clone(2)`, `_Fork(3)`) has neither. To it the room is **lost**: it
//!   gives out nothing, takes nothing back, and changes nothing, because the file is still its parent's.
//!
//! Only the first block takes memory of the C library, because `free` may be called when there is none.

mod copy;
mod given;
mod served;
mod table;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::{io, process};

use rustix::io::Errno;
use transom_interpose::shared_memory::Served;

use self::given::Given;
use self::table::Marks;
use super::maps::{FileId, Line, Maps};
use super::page_size;
use super::shared::{ALIGNMENT, FILE_BYTES, Mapping, SharedMemory};
use crate::fork::Owner;
use crate::say;
use crate::valgrind::is_under_valgrind;

/// Bytes that are given out at most. Further allocations are private.
const MOST: u64 = 1 << 30;
/// Bytes of freed pages that are kept at most.
const KEPT: u64 = 32 << 20;

/// The room of this process. Null before a device is open, and if there is no shared memory.
static OWN: AtomicPtr<Room> = AtomicPtr::new(std::ptr::null_mut());
/// Rooms of the processes that this one was forked from, the nearest one first. This process has their blocks as
/// private memory.
static INHERITED: AtomicPtr<Room> = AtomicPtr::new(std::ptr::null_mut());

/// The shared memory of a process, and its blocks.
pub(super) struct Room {
    memory: Arc<SharedMemory>,
    /// The program's mapping. A forked child has private memory in its place.
    mapping: Mapping,
    id: FileId,
    /// The process that has this memory.
    owner: Owner,
    /// Kept open, because a fork may find no descriptor left.
    maps: Maps,
    /// `libtransom_malloc.so` tells of each change of rights.
    is_watched: bool,
    /// Pages to which the program has changed the rights. A handler of a signal may do so at any moment.
    changed: Marks,
    /// A lock of the standard library: these keep nothing elsewhere that a forked child could find locked.
    state: Mutex<State>,
    held: copy::Held,
    /// The next room in [`INHERITED`].
    next: AtomicPtr<Room>,
}

#[derive(Default)]
struct State {
    /// `None` before the first block.
    given: Option<Given>,
    /// Only in a forked child: this many bytes are private memory, and nothing is given out.
    private: Option<u64>,
}

/// The room of this process, if it has one.
#[inline]
pub(super) fn own() -> Option<&'static Room> {
    // SAFETY: once made it stays for ever.
    unsafe { OWN.load(Acquire).as_ref() }
}

/// The same, unless it is lost.
fn here() -> Option<&'static Room> {
    own().filter(|room| !room.owner.is_another())
}

/// This process's shared memory, with the device's own mapping of it.
#[inline]
pub(super) fn own_memory() -> Option<&'static Arc<SharedMemory>> {
    own().map(|room| &room.memory)
}

/// Gives this process shared memory. Returns the descriptor by which its peers find it.
///
/// # Errors
///
/// The system's error, or why touching such memory could fail.
pub fn begin_sharing() -> io::Result<u32> {
    static BEGINNING: Mutex<()> = Mutex::new(());
    let _one = BEGINNING.lock().unwrap_or_else(PoisonError::into_inner);
    let refused = |why| Err(io::Error::new(io::ErrorKind::Unsupported, why));
    match own() {
        Some(room) if room.is_lost() => {
            return refused("this process was made without the C library");
        }
        Some(room) => return Ok(room.memory.descriptor()),
        None => {}
    }
    // Before there is a room, so that the offer is not made from within an allocation.
    served::offered();
    if is_under_valgrind() {
        return refused("valgrind runs this process");
    }
    if commits_no_more_than_there_is() {
        return refused("the kernel refuses memory by SIGBUS (vm.overcommit_memory=2)");
    }
    let changed = Marks::new((FILE_BYTES / page_size()) as usize).ok_or(Errno::NOMEM)?;
    let memory = SharedMemory::create()?;
    let (mapping, id, descriptor) = (memory.map_again()?, memory.id()?, memory.descriptor());
    let is_watched = served::watches();
    copy::watch_forks(is_watched)?;
    let maps = Maps::default();
    maps.open();
    let room = Box::new(Room {
        memory: Arc::new(memory),
        mapping,
        id,
        owner: Owner::this(),
        maps,
        is_watched,
        changed,
        state: Mutex::default(),
        held: copy::Held::default(),
        next: AtomicPtr::default(),
    });
    OWN.store(Box::into_raw(room), Release);
    Ok(descriptor)
}

/// Whether the kernel counts each page of a file of memory when it is touched first. If there are too many then, the
/// process gets SIGBUS. Other memory is counted when it is allocated.
fn commits_no_more_than_there_is() -> bool {
    let mode = std::fs::read("/proc/sys/vm/overcommit_memory");
    mode.is_ok_and(|mode| mode.trim_ascii() == b"2")
}

/// All rooms that the program may have blocks of, this process's first.
fn rooms() -> impl Iterator<Item = &'static Room> {
    let first = if own().is_some() { &OWN } else { &INHERITED };
    // SAFETY: rooms stay for ever.
    let of = |from: &AtomicPtr<Room>| unsafe { from.load(Acquire).as_ref::<'static>() };
    let after = move |room: &&'static Room| {
        let is_own = own().is_some_and(|own| std::ptr::eq(own, *room));
        of(if is_own { &INHERITED } else { &room.next })
    };
    std::iter::successors(of(first), after)
}

/// Gives out a block of whole pages. `None` if the allocation must be private memory.
pub(super) fn take(align: u64, size: u64) -> Option<NonNull<u8>> {
    here()?.take(align, size, Bytes::Any)
}

/// Gives out a block of zeros.
pub(super) fn take_zeros(size: u64) -> Option<NonNull<u8>> {
    here()?.take(1, size, Bytes::Zero)
}

/// Takes a block back. Returns how many bytes of it regions still hold; `None` if the address is in no room.
pub(super) fn give(address: u64) -> Option<u64> {
    rooms().find_map(|room| room.give(address))
}

/// The bytes of the block that begins at `address`.
pub(super) fn bytes_of(address: u64) -> Option<u64> {
    rooms().find_map(|room| room.bytes_of(address))
}

/// The offset of memory in the file, if it lies in one block and the program's mapping there is still the file's. The
/// block stays until [`unpin`].
pub(super) fn pin(address: u64, length: u64, maps: &Maps) -> Option<u64> {
    here()?.pin(address, length, maps)
}

/// Ends one [`pin`].
pub(super) fn unpin(offset: u64) {
    if let Some(room) = here() {
        room.unpin(offset);
    }
}

/// Whether all of some memory of this process is shared, unless the program has mapped something else there since.
pub fn is_shared(address: u64, length: u64) -> bool {
    here().is_some_and(|room| {
        let end = room.offset_of(address).and_then(|offset| offset.checked_add(length));
        end.is_some_and(|end| end <= room.mapping.open())
    })
}

/// Notes that the program changes the rights to some pages. It takes no lock.
pub(super) fn note_change(address: u64, length: u64) {
    if let Some(room) = here() {
        room.note_change(address, length);
    }
}

/// Empties those of some pages where the program still sees its shared memory. They are zero when they are touched
/// again. It takes no lock.
pub(super) fn empty(address: u64, length: u64) -> Result<(), Errno> {
    here().map_or(Ok(()), |room| room.empty(address, length))
}

/// Which memory of the program is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Sharing {
    /// Device memory and buffers alone: the program was not started by `transom run`.
    Buffers,
    /// Allocations that are aligned to a page too.
    Allocations,
    /// Device memory and buffers alone: the program has another allocator than the C library's.
    OtherAllocator,
    /// Device memory and buffers alone: a sanitizer watches the program's allocations.
    Sanitizer,
}

impl Sharing {
    /// By its number.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        [Self::Buffers, Self::Allocations, Self::OtherAllocator, Self::Sanitizer]
            .into_iter()
            .find(|it| *it as u32 == number)
    }
}

/// Which memory of this process is shared. `None` if it has no shared memory.
pub fn sharing() -> Option<Sharing> {
    here()?;
    Some(match served::offered() {
        Some(Served::Allocations) => Sharing::Allocations,
        Some(Served::OtherAllocator) => Sharing::OtherAllocator,
        Some(Served::Sanitizer) => Sharing::Sanitizer,
        Some(Served::Nothing) | None => Sharing::Buffers,
    })
}

/// What a new block has in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bytes {
    Any,
    Zero,
}

/// The program's address of an offset in the file.
pub(super) fn address_of(offset: u64) -> Option<u64> {
    own().map(|room| room.base() + offset)
}

impl Room {
    fn base(&self) -> u64 {
        self.mapping.first().addr().get() as u64
    }

    /// The offset of an address in the file, if it is within the mapping.
    fn offset_of(&self, address: u64) -> Option<u64> {
        address.checked_sub(self.base()).filter(|offset| *offset < FILE_BYTES)
    }

    /// Whether this process is a child of its process that was made without the C library. Any other child has moved it
    /// to [`INHERITED`].
    fn is_lost(&self) -> bool {
        self.owner.is_another() && own().is_some_and(|own| std::ptr::eq(own, self))
    }

    /// `None` for the thread that forks, which has the lock already. `None` too if the room is lost, and a thread had
    /// its lock that does not exist here.
    fn lock(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) if copy::is_forking(this_thread()) || self.is_lost() => {
                None
            }
            Err(TryLockError::WouldBlock) => {
                Some(self.state.lock().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }

    /// As [`Self::lock`]. `None` also while another thread forks, which has the lock for as long as it copies.
    fn lock_unless_forking(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Err(TryLockError::WouldBlock) if copy::is_anyone_forking() => None,
            Err(TryLockError::WouldBlock) => self.lock(),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Ok(state) => Some(state),
        }
    }

    fn take(&self, align: u64, size: u64, bytes: Bytes) -> Option<NonNull<u8>> {
        let page = page_size();
        let pages = size.max(1).div_ceil(page);
        if size > MOST || align >= ALIGNMENT as u64 {
            return None;
        }
        let mut state = match bytes {
            Bytes::Any => self.lock_unless_forking()?,
            Bytes::Zero => self.lock()?,
        };
        if state.private.is_some() {
            return None;
        }
        if state.given.is_none() {
            state.given = Some(Given::new()?);
        }
        let given = state.given.as_mut()?;
        let (first, is_clean) = given.take(pages as u32, (align / page).max(1) as u32, |end| {
            let end = u64::from(end) * page;
            self.mapping.reach(end).is_ok() && self.memory.find(0, end).is_some()
        })?;
        drop(state);
        let (offset, length) = (u64::from(first) * page, pages * page);
        if bytes == Bytes::Zero && !is_clean {
            let own = self.memory.find(offset, length).expect("it is accessible already");
            // SAFETY: this block, which nobody knows yet.
            unsafe { own.write_bytes(0, length as usize) };
        }
        // SAFETY: within the mapping.
        Some(unsafe { self.mapping.first().add(offset as usize) })
    }

    fn give(&self, address: u64) -> Option<u64> {
        let offset = self.offset_of(address)?;
        let Some(mut state) = self.lock() else { return Some(0) };
        if state.private.is_some_and(|open| offset >= open) {
            return None;
        }
        let is_private = state.private.is_some();
        let first = (offset / page_size()) as u32;
        let given = state.given.as_mut().filter(|given| {
            let block = given.blocks.at(first).filter(|block| !block.freed);
            offset.is_multiple_of(page_size()) && block.is_some()
        });
        let Some(given) = given else {
            drop(state);
            // The program may have unmapped a part of a block, and its allocator may have memory there now. If the room
            // is lost, that may be so anywhere.
            let is_here = is_private || self.maps.all(address..address + 1, |it| self.shows(it));
            return if is_here { not_given(address) } else { None };
        };
        if self.is_lost() {
            return Some(0);
        }
        let block = given.blocks.get(first);
        if block.pins > 0 && !is_private {
            block.freed = true;
            return Some(u64::from(block.pages) * page_size());
        }
        self.release(given, first, is_private);
        Some(0)
    }

    fn note_change(&self, address: u64, length: u64) {
        let (base, page) = (self.base(), page_size());
        let end = address.saturating_add(length).min(base + self.mapping.open());
        let start = address.max(base);
        if start < end {
            let (first, end) = ((start - base) / page, (end - base).div_ceil(page));
            self.changed.make(first as u32, (end - first) as u32);
        }
    }

    /// Nobody has this block any more.
    fn release(&self, given: &mut Given, first: u32, is_private: bool) {
        let (page, pages) = (page_size(), given.blocks.get(first).pages);
        let (offset, length) = (u64::from(first) * page, u64::from(pages) * page);
        let may_be_changed = !is_private && (self.changed.take(first, pages) || !self.is_watched);
        if may_be_changed && !self.make_as_new(offset, length) {
            // The next owner could not use it.
            given.blocks.get(first).freed = true;
            let _ = self.memory.discard(offset, length);
            return;
        }
        given.give(first);
        if is_private || given.kept * page > KEPT {
            let gone = match is_private {
                true => copy::discard(self.base() + offset, length),
                false => self.memory.discard(offset, length),
            };
            if gone.is_ok() {
                given.forget(first, pages);
            }
        }
    }

    /// Gives pages the rights that they began with. False if the program has unmapped some of them: whatever is there
    /// now belongs to it.
    fn make_as_new(&self, offset: u64, length: u64) -> bool {
        let first = self.base() + offset;
        self.maps.all(first..first + length, |line| self.shows(line))
            && self.memory.map_over(&self.mapping, offset, length).is_ok()
    }

    fn bytes_of(&self, address: u64) -> Option<u64> {
        let offset = self.offset_of(address)?;
        if self.is_lost() && is_mapped(address) {
            // It is this process's own.
            return None;
        }
        let state = self.lock()?;
        let first = offset.is_multiple_of(page_size()).then_some((offset / page_size()) as u32)?;
        let block = state.given.as_ref()?.blocks.at(first)?;
        Some(u64::from(block.pages) * page_size())
    }

    fn pin(&self, address: u64, length: u64, maps: &Maps) -> Option<u64> {
        let (page, offset) = (page_size(), self.offset_of(address)?);
        let end = offset.checked_add(length.max(1))?;
        let range = address / page * page..(address + length).next_multiple_of(page);
        if !maps.all(range, |line| self.shows(line)) {
            return None;
        }
        let mut state = self.lock()?;
        let given = state.given.as_mut()?;
        let first = given.first_of((offset / page) as u32)?;
        let block = given.blocks.get(first);
        let is_within = end <= (u64::from(first) + u64::from(block.pages)) * page;
        if !is_within || block.freed {
            return None;
        }
        block.pins = block.pins.checked_add(1)?;
        Some(offset)
    }

    /// Whether a mapping of the program shows this memory at the address where it was given out.
    fn shows(&self, line: &Line) -> bool {
        line.shares(self.id) && line.start.wrapping_sub(line.offset) == self.base()
    }

    fn empty(&self, address: u64, length: u64) -> Result<(), Errno> {
        let (base, page) = (self.base(), page_size());
        let end = address.saturating_add(length).div_ceil(page).saturating_mul(page);
        let (start, end) = (address.max(base), end.min(base + self.mapping.open()));
        if start >= end {
            return Ok(());
        }
        let mut done = Ok(());
        self.maps.each(start..end, |line| {
            let (from, to) = (line.start.max(start), line.end.min(end));
            if self.shows(line) {
                done = self.memory.discard(from - base, to - from);
            }
            done.is_ok()
        })?;
        done
    }

    fn unpin(&self, offset: u64) {
        let Some(mut state) = self.lock() else { return };
        let Some(given) = state.given.as_mut() else { return };
        let Some(first) = given.first_of((offset / page_size()) as u32) else { return };
        let block = given.blocks.get(first);
        block.pins = block.pins.saturating_sub(1);
        if block.pins == 0 && block.freed {
            self.release(given, first, false);
        }
    }
}

/// Whether there is anything at the beginning of a page.
#[cold]
fn is_mapped(address: u64) -> bool {
    let mut in_memory = 0;
    let at = std::ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: the kernel checks the address, and answers in the one byte for one page.
    unsafe { libc::mincore(at, 1, &raw mut in_memory) == 0 }
}

/// The program frees memory that it was never given, or has freed already, so its own record of its memory is wrong.
#[cold]
fn not_given(address: u64) -> ! {
    say(format_args!("free(): {address:#x} is not the beginning of memory that was allocated"));
    process::abort()
}

/// This thread, by a number that its copy in a forked child has too.
fn this_thread() -> usize {
    // SAFETY: it only says where something is.
    unsafe { libc::pthread_self() as usize }
}

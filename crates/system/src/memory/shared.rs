//! The file that a process's shared memory lies in, and a mapping of it.
//!
//! **Shared memory** is memory that a process and its peers all reach with plain loads and stores. It has lain in this
//! file since it was allocated ([`Room`](super::Room)), and nothing is ever moved there or away. A key that grants some
//! of it names the place in the file (`Place::Shared`), so the grantee finds it by an addition, whatever the program
//! has done to its own mapping since. In the same way an adapter keeps the pages that it has pinned.
//!
//! The file cannot become shorter (`F_SEAL_SHRINK`), so touching a mapping of it never fails.
//!
//! A program may close descriptors that it does not know, and a file of its own may get the number then. So what
//! changes something goes by the device's mapping, and what only looks makes sure of the file first.
//!
//! A mapping has addresses for all of the file from the start, but is accessible only as far as it was needed. So
//! `mlockall(2)` does not lock the whole file in memory.

use std::ffi::c_void;
use std::fmt;
use std::io;
use std::mem::forget;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering::*};

use rustix::fs::{MemfdFlags, SealFlags, SeekFrom};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};

use super::maps::FileId;
use crate::descriptor::{self, Identity};
use crate::file_limit;
use crate::fork::Owner;

/// Bytes of the file, mostly holes. This is four times as much as the room gives out at most, because unused pages, and
/// holes in which nothing fits, stay between the blocks.
pub const FILE_BYTES: u64 = 4 << 30;
/// The accessible part grows in steps of this many bytes.
const STEP: u64 = 1 << 20;

/// The shared memory of a process, as this process maps it for its device.
pub struct SharedMemory {
    /// Only this process's own. Of another's it needs no more than the mapping.
    file: Option<OwnFile>,
    mapping: Mapping,
    /// The process that has this mapping. A forked child does not have it.
    owner: Owner,
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMemory").field("file", &self.file).finish_non_exhaustive()
    }
}

/// The file of this process, by the descriptor at which its peers find it.
#[derive(Debug)]
struct OwnFile {
    file: OwnedFd,
    identity: Identity,
}

impl OwnFile {
    /// `None` if the program has closed it.
    fn there(&self) -> Option<&OwnedFd> {
        self.identity.is_behind(&self.file).then_some(&self.file)
    }
}

impl SharedMemory {
    /// Makes the file of this process, without any page.
    ///
    /// # Errors
    ///
    /// The system's error: a limit of file sizes or of address space is in the way, or no descriptor is left.
    pub(super) fn create() -> io::Result<Self> {
        addresses_are_unlimited()?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let low = rustix::fs::memfd_create("transom-shared", flags)?;
        let file = descriptor::high(low);
        file_limit::grow(|| rustix::fs::ftruncate(&file, FILE_BYTES))?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let (mapping, identity) = (Mapping::new(&file, Dumped::No)?, Identity::of(&file)?);
        Ok(Self { file: Some(OwnFile { file, identity }), mapping, owner: Owner::this() })
    }

    /// Maps the shared memory of another process, by its PID and the descriptor it has there.
    ///
    /// # Errors
    ///
    /// The system's error, that it is no such file, or that the address space is limited.
    pub fn attach(pid: u32, descriptor: u32) -> io::Result<Self> {
        addresses_are_unlimited()?;
        let file = descriptor::of_process(pid, descriptor)?;
        let length = rustix::fs::fstat(&file)?.st_size;
        let sealed = rustix::fs::fcntl_get_seals(&file)?.contains(SealFlags::SHRINK);
        if u64::try_from(length) != Ok(FILE_BYTES) || !sealed {
            return Err(io::Error::other(
                "it is not the shared memory of a process of this version",
            ));
        }
        Ok(Self { file: None, mapping: Mapping::new(&file, Dumped::No)?, owner: Owner::this() })
    }

    fn own_file(&self) -> &OwnFile {
        self.file.as_ref().expect("nobody asks for the file of another process")
    }

    /// The descriptor by which other processes find it.
    pub(super) fn descriptor(&self) -> u32 {
        self.own_file().file.as_fd().as_raw_fd().unsigned_abs()
    }

    /// Whether this is its descriptor.
    pub(super) fn is_behind(&self, descriptor: u32) -> bool {
        self.descriptor() == descriptor
    }

    pub(super) fn id(&self) -> io::Result<FileId> {
        FileId::of(&self.own_file().file)
    }

    /// Another mapping of it, which the program sees.
    pub(super) fn map_again(&self) -> io::Result<Mapping> {
        Mapping::new(&self.own_file().file, Dumped::Yes)
    }

    /// Makes some pages of a mapping anew, whatever rights the program has given them. Nobody has these pages.
    pub(super) fn map_over(
        &self,
        mapping: &Mapping,
        offset: u64,
        length: u64,
    ) -> Result<(), Errno> {
        let (from, length) = (self.find(offset, length).ok_or(Errno::NOMEM)?, length as usize);
        // SAFETY: within the mapping, and nobody uses these pages. Of a length of zero the kernel makes another mapping
        // of the same pages, which a forked child does not get either.
        unsafe {
            let at = mapping.first.as_ptr().add(offset as usize).cast();
            rustix::mm::mremap_fixed(from.as_ptr().cast(), 0, length, MremapFlags::MAYMOVE, at)?;
            if mapping.dumped == Dumped::Yes {
                // Without it the pages are missing in a core file.
                let _ = rustix::mm::madvise(at, length, Advice::LinuxDoDump);
            }
        }
        Ok(())
    }

    /// This process's address of `length` bytes from `offset` on. `None` if the file does not reach so far, or the
    /// system makes no more of it accessible.
    #[inline]
    pub fn find(&self, offset: u64, length: u64) -> Option<NonNull<u8>> {
        self.mapping.find(offset, length)
    }

    /// Gives the memory of pages back to the system. They are zero when they are touched again.
    pub(super) fn discard(&self, offset: u64, length: u64) -> Result<(), Errno> {
        let at = self.find(offset, length).ok_or(Errno::NOMEM)?.as_ptr().cast();
        // SAFETY: within the mapping. Who has these pages, if anybody, wants them to be zero.
        let remove = || unsafe { rustix::mm::madvise(at, length as usize, Advice::LinuxRemove) };
        match remove() {
            // The program has locked all its memory (`mlockall(2)`). Of that, the device's own mapping is unlocked.
            Err(Errno::INVAL) => {
                self.mapping.unlock();
                remove()
            }
            done => done,
        }
    }

    /// The beginning and end of the first pages from `offset` on that exist in the file. `None` if there are none. If
    /// the program has closed the file, any page may exist.
    pub(super) fn next_pages(&self, offset: u64) -> Result<Option<(u64, u64)>, Errno> {
        let Some(file) = self.own_file().there() else { return Ok(Some((offset, FILE_BYTES))) };
        let start = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
            Err(Errno::NXIO) => return Ok(None),
            start => start?,
        };
        Ok(Some((start, rustix::fs::seek(file, SeekFrom::Hole(start))?)))
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        if !self.owner.is_another() {
            self.mapping.unmap();
        }
        // The number of a closed descriptor may be another file's.
        if let Some(own) = self.file.take()
            && own.there().is_none()
        {
            forget(own);
        }
    }
}

/// Each mapping of such a file takes 4 GiB of addresses. If the program may only have so many (`ulimit -v`), all of them
/// are its own.
fn addresses_are_unlimited() -> io::Result<()> {
    match getrlimit(Resource::As).current {
        None => Ok(()),
        Some(_) => {
            let why = "the address space is limited (ulimit -v)";
            Err(io::Error::new(io::ErrorKind::Unsupported, why))
        }
    }
}

/// Whether the accessible pages of a mapping are in a core file. The others never are: the kernel would give memory to
/// all of the 4 GiB, and write them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dumped {
    Yes,
    No,
}

/// A mapping of such a file, which stays until [`Mapping::unmap`]. A forked child does not get it.
pub(super) struct Mapping {
    first: NonNull<u8>,
    /// This many bytes of it are accessible.
    open: AtomicU64,
    dumped: Dumped,
}

// SAFETY: the mapping stays until it is unmapped, and is handed out as pointers.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: &OwnedFd, dumped: Dumped) -> io::Result<Self> {
        let length = FILE_BYTES as usize;
        // SAFETY: a fresh mapping in place of one that nobody else knows yet.
        unsafe {
            let place = aligned_room(file, length)?;
            let mapping = Self { first: place, open: AtomicU64::new(0), dumped };
            let advice = [Advice::LinuxDontFork, Advice::LinuxDontDump];
            let mapped = grown(file, length, Some(place));
            let ready = mapped.and_then(|first| {
                advice.iter().try_for_each(|it| rustix::mm::madvise(first, length, *it))
            });
            ready.inspect_err(|_| mapping.unmap())?;
            Ok(mapping)
        }
    }

    pub(super) fn first(&self) -> NonNull<u8> {
        self.first
    }

    /// This many bytes of it are accessible.
    pub(super) fn open(&self) -> u64 {
        self.open.load(Acquire)
    }

    #[inline]
    fn find(&self, offset: u64, length: u64) -> Option<NonNull<u8>> {
        let end = offset.checked_add(length)?;
        if end > self.open.load(Acquire) && self.reach(end).is_err() {
            return None;
        }
        // SAFETY: within the mapping.
        Some(unsafe { self.first.add(offset as usize) })
    }

    /// Makes everything up to `end` accessible.
    #[cold]
    #[inline(never)]
    pub(super) fn reach(&self, end: u64) -> Result<(), Errno> {
        let before = self.open.load(Acquire);
        if end <= before {
            return Ok(());
        }
        let end =
            if end <= FILE_BYTES { end.next_multiple_of(STEP) } else { return Err(Errno::FAULT) };
        // If another thread has opened some of it meanwhile, it is opened once more.
        let (length, rights) =
            ((end - before) as usize, MprotectFlags::READ | MprotectFlags::WRITE);
        // SAFETY: within the mapping, and nobody uses pages that were not accessible so far.
        unsafe {
            let at = self.first.add(before as usize);
            rustix::mm::mprotect(at.as_ptr().cast(), length, rights)?;
            if self.dumped == Dumped::Yes {
                rustix::mm::madvise(at.as_ptr().cast(), length, Advice::LinuxDoDump)?;
            }
        }
        self.open.fetch_max(end, AcqRel);
        Ok(())
    }

    /// Its pages need not stay in memory.
    #[cold]
    fn unlock(&self) {
        // SAFETY: made by `new`.
        let _ = unsafe { rustix::mm::munlock(self.first.as_ptr().cast(), FILE_BYTES as usize) };
    }

    fn unmap(&self) {
        // SAFETY: made by `new`, and nobody uses it any more.
        let unmapped =
            unsafe { rustix::mm::munmap(self.first.as_ptr().cast(), FILE_BYTES as usize) };
        debug_assert!(unmapped.is_ok());
    }
}

/// A mapping of the file from its beginning on, without any rights: where the kernel finds room, or in place of what is
/// at `place`.
///
/// A program may have told the kernel to lock all its later mappings (`mlockall(2)`). The kernel refuses one of this
/// length then. So this maps one page, unlocks it, and lets it grow to the whole length, unlocked.
///
/// # Safety
///
/// Nobody uses what is at `place`.
unsafe fn grown(
    file: &OwnedFd,
    length: usize,
    place: Option<NonNull<u8>>,
) -> Result<*mut c_void, Errno> {
    let page = rustix::param::page_size();
    let (flags, moves) = (MapFlags::SHARED | MapFlags::NORESERVE, MremapFlags::MAYMOVE);
    // SAFETY: a fresh mapping, which goes where the kernel finds room, or where the caller says.
    unsafe {
        let first = rustix::mm::mmap(null_mut(), page, ProtFlags::empty(), flags, file, 0)?;
        let _ = rustix::mm::munlock(first, page);
        let grown = match place {
            Some(place) => {
                rustix::mm::mremap_fixed(first, page, length, moves, place.as_ptr().cast())
            }
            None => rustix::mm::mremap(first, page, length, moves),
        };
        grown.inspect_err(|_| {
            let _ = rustix::mm::munmap(first, page);
        })
    }
}

/// Addresses for a mapping, which begin where a huge page does, because alignments count from there.
///
/// # Safety
///
/// Nothing uses them until the caller maps something else there.
unsafe fn aligned_room(file: &OwnedFd, length: usize) -> Result<NonNull<u8>, Errno> {
    // SAFETY: a fresh mapping, of which both ends are unmapped again. It is a mapping of the file only because that can
    // be had unlocked.
    unsafe {
        let found = grown(file, length + ALIGNMENT, None)?;
        let skip = found.addr().next_multiple_of(ALIGNMENT) - found.addr();
        let place = found.wrapping_byte_add(skip);
        let (end, rest) = (place.wrapping_byte_add(length), ALIGNMENT - skip);
        if skip > 0 {
            rustix::mm::munmap(found, skip)?;
        }
        if rest > 0 {
            rustix::mm::munmap(end, rest)?;
        }
        Ok(NonNull::new(place.cast()).expect("a mapping is never at zero"))
    }
}

/// Mappings begin at a multiple of this.
pub(super) const ALIGNMENT: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "there is no such file")]
    fn it_is_found_as_far_as_the_file_reaches() {
        let memory = SharedMemory::create().unwrap();
        let first = memory.find(0, 1).unwrap();
        for (offset, length) in [(0, 0), (5, 7), (STEP - 1, 1), (STEP - 1, 2), (3 * STEP, STEP)] {
            let found = memory.find(offset, length).unwrap();
            assert_eq!(found.addr().get() as u64, first.addr().get() as u64 + offset);
            // SAFETY: found, so it can be touched.
            (0..length).for_each(|at| unsafe { found.add(at as usize).write(7) });
        }
        assert!(memory.find(FILE_BYTES - 1, 1).is_some());
        for (offset, length) in [
            (FILE_BYTES, 1),
            (FILE_BYTES - 1, 2),
            (0, FILE_BYTES + 1),
            (1, u64::MAX),
            (u64::MAX, 1),
        ] {
            assert_eq!(memory.find(offset, length), None, "{offset:#x}+{length:#x}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "there is no such file")]
    fn pages_that_are_discarded_are_zero() {
        let (memory, page) = (SharedMemory::create().unwrap(), super::super::page_size());
        let found = memory.find(4 * page, page).unwrap();
        // SAFETY: found, so it can be touched.
        unsafe { found.write(7) };
        assert_eq!(memory.next_pages(0), Ok(Some((4 * page, 5 * page))));
        memory.discard(4 * page, page).unwrap();
        assert_eq!(memory.next_pages(0), Ok(None));
        // SAFETY: as above.
        assert_eq!(unsafe { found.read() }, 0);
    }
}

//! The file that a process's registered pages lie in, and a mapping of it.
//!
//! The **address-space file** is as long as the address space, and mostly holes: the offset of a page is
//! its address in its process. So whoever has the file open reaches a page by its address alone. It has a
//! bit for each page behind them, which says whether the page lies in it; only its process sets bits. And behind
//! those it has counts of what the kernel still copies.
//!
//! It cannot become shorter (`F_SEAL_SHRINK`), so touching a mapping of it never fails, whatever its
//! process does to its own mappings.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};

use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::Advice;

use super::maps::{FileId, Line};
use super::uses::Uses;
use super::{Readable, Writable, page_size};
use crate::file_limit;
use crate::fork::Owner;
use crate::shared_mapping::map_shared;

/// Addresses of a program lie below two to this: more is given only to who asks for it by an address.
const ADDRESS_BITS: u32 = if cfg!(target_arch = "aarch64") { 48 } else { 47 };
/// A mapping is made for so much at a time.
const SPAN_BITS: u32 = 30;
const SPAN: u64 = 1 << SPAN_BITS;
/// Spans that are found at once.
const NEAR: usize = 8;
/// Spans whose pointers are kept together.
const GROUP: usize = 256;
const GROUPS: usize = (1 << (ADDRESS_BITS - SPAN_BITS)) / GROUP;

type Group = [AtomicPtr<u8>; GROUP];

/// The address-space file of a process, as this process maps it.
pub struct AddressSpace {
    file: OwnedFd,
    id: FileId,
    /// Whose mappings these are: a forked child does not have them.
    owner: Owner,
    /// A bit for each page.
    present: NonNull<AtomicU64>,
    /// Behind them.
    uses: NonNull<Uses>,
    /// Where the spans are mapped that were needed so far.
    spans: Box<[AtomicPtr<Group>; GROUPS]>,
    /// Some of them, each where the low bits of its number say: by `spans` it takes three loads that wait for
    /// each other.
    near: [OnceLock<(usize, NonNull<u8>)>; NEAR],
    /// As the kernel says.
    page_bits: u32,
}

// SAFETY: the mappings stay until drop, and are reached by atomics or handed out as pointers.
unsafe impl Send for AddressSpace {}
// SAFETY: as above.
unsafe impl Sync for AddressSpace {}

impl fmt::Debug for AddressSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressSpace").field("file", &self.file).finish_non_exhaustive()
    }
}

/// Bytes of the bits for all pages.
fn present_bytes() -> u64 {
    (1 << ADDRESS_BITS) / page_size() / 8
}

/// Bytes of what stands behind the pages, whole pages of it.
fn notes_bytes() -> u64 {
    present_bytes() + (size_of::<Uses>() as u64).next_multiple_of(page_size())
}

fn file_bytes() -> u64 {
    (1 << ADDRESS_BITS) + notes_bytes()
}

impl AddressSpace {
    /// Makes the file of this process, without any page.
    ///
    /// # Errors
    ///
    /// What the system says: a limit of file sizes or of address space is in the way, or no descriptor is
    /// left.
    pub fn create() -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("transom-pages", flags)?;
        file_limit::grow(|| rustix::fs::ftruncate(&file, file_bytes()))?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Self::of(file)
    }

    /// Maps that of another process, by its PID and the descriptor it has there.
    ///
    /// # Errors
    ///
    /// What the system says, or that it is no such file.
    pub(super) fn attach(pid: u32, descriptor: u32) -> io::Result<Self> {
        let path = format!("/proc/{pid}/fd/{descriptor}");
        let file = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let length = rustix::fs::fstat(&file)?.st_size;
        let sealed = rustix::fs::fcntl_get_seals(&file)?.contains(SealFlags::SHRINK);
        if u64::try_from(length) != Ok(file_bytes()) || !sealed {
            return Err(io::Error::other("it is not the pages of a process of this version"));
        }
        Self::of(file)
    }

    fn of(file: OwnedFd) -> io::Result<Self> {
        let id = FileId::of(&file)?;
        let notes = map_part(&file, 1 << ADDRESS_BITS, notes_bytes())?;
        let present = notes.cast();
        // SAFETY: within what was just mapped.
        let uses = unsafe { notes.add(present_bytes() as usize) }.cast();
        let spans = Box::new([const { AtomicPtr::new(null_mut()) }; GROUPS]);
        let page_bits = page_size().trailing_zeros();
        let near = [const { OnceLock::new() }; NEAR];
        Ok(Self { file, id, owner: Owner::this(), present, uses, spans, near, page_bits })
    }

    /// The descriptor by which other processes find it.
    pub fn descriptor(&self) -> u32 {
        self.file.as_fd().as_raw_fd().unsigned_abs()
    }

    pub(super) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Whether a line of the list of mappings is the program's, of this file.
    pub(super) fn is_behind(&self, line: &Line) -> bool {
        let ours = |span: u64| {
            let group = self.spans[span as usize / GROUP].load(Acquire);
            // SAFETY: a group once noted stays until drop.
            let span =
                unsafe { group.as_ref() }.map(|group| group[span as usize % GROUP].load(Acquire));
            span.is_some_and(|first| (first as u64..first as u64 + SPAN).contains(&line.start))
        };
        line.shares(self.id) && line.offset < 1 << ADDRESS_BITS && !ours(line.offset >> SPAN_BITS)
    }

    /// Where this process finds `length` bytes that are at `address` in the file's process; `None` if
    /// not all of them lie in the file, or not in one span.
    #[inline]
    pub fn find(&self, address: u64, length: u64) -> Option<NonNull<u8>> {
        let behind = !address & ((1 << self.page_bits()) - 1);
        // Of an access within a page, one bit says all: a third of the work, for most accesses.
        if length.wrapping_sub(1) > behind || address >> ADDRESS_BITS != 0 {
            return self.find_pages(address, length);
        }
        let page = address >> self.page_bits();
        let present = self.word(page / 64).load(Acquire) >> (page % 64) & 1 == 1;
        if present { self.first_of(address) } else { None }
    }

    #[inline(never)]
    fn find_pages(&self, address: u64, length: u64) -> Option<NonNull<u8>> {
        let last = address.checked_add(length.checked_sub(1)?)?;
        if last >> ADDRESS_BITS != 0 {
            return None;
        }
        let all = |(word, bits)| self.word(word).load(Acquire) & bits == bits;
        let present = words(address >> self.page_bits(), last >> self.page_bits()).all(all);
        if present { self.place(address, length) } else { None }
    }

    /// Of an address, the bits within a page: where it is not known before, reading it is faster than dividing
    /// by what the kernel says.
    #[inline]
    fn page_bits(&self) -> u32 {
        if cfg!(target_arch = "x86_64") { 12 } else { self.page_bits }
    }

    fn place(&self, address: u64, length: u64) -> Option<NonNull<u8>> {
        let last = address.checked_add(length.checked_sub(1)?)?;
        if last >> ADDRESS_BITS != 0 || address >> SPAN_BITS != last >> SPAN_BITS {
            return None;
        }
        self.first_of(address)
    }

    /// Where the byte at an address is mapped, in a span that is mapped now if it is not.
    #[inline]
    fn first_of(&self, address: u64) -> Option<NonNull<u8>> {
        let first = self.span((address >> SPAN_BITS) as usize)?;
        // SAFETY: within the span, which is mapped until drop.
        Some(unsafe { first.add((address % SPAN) as usize) })
    }

    /// Maps all of a range here, whether the pages lie in the file or not; false if there is no room for it.
    pub(super) fn map(&self, address: u64, length: u64) -> bool {
        let last = length.checked_sub(1).and_then(|more| address.checked_add(more));
        last.filter(|last| last >> ADDRESS_BITS == 0).is_some_and(|last| {
            let mut spans = address >> SPAN_BITS..=last >> SPAN_BITS;
            spans.all(|span| self.span(span as usize).is_some())
        })
    }

    /// The file's bytes at `address`, whether the pages lie in it or not; `None` if they are not in one
    /// span.
    pub(super) fn writable(&self, address: u64, length: u64) -> Option<Writable<'_>> {
        let first = self.place(address, length)?;
        // SAFETY: mapped until drop, and nobody has references to what programs share.
        Some(unsafe { Writable::shared(first.as_ptr(), length) })
    }

    /// As [`AddressSpace::writable`].
    pub(super) fn readable(&self, address: u64, length: u64) -> Option<Readable<'_>> {
        let first = self.place(address, length)?;
        // SAFETY: as above.
        Some(unsafe { Readable::shared(first.as_ptr(), length) })
    }

    /// Notes whether the pages from `first` to `last` lie in the file.
    pub(super) fn set_present(&self, first: u64, last: u64, present: bool) {
        for (word, bits) in words(first, last) {
            match present {
                true => self.word(word).fetch_or(bits, SeqCst),
                false => self.word(word).fetch_and(!bits, SeqCst),
            };
        }
    }

    /// Those of some pages of which it is noted that they lie in the file.
    pub(super) fn present_of(&self, pages: &Range<u64>) -> Vec<Range<u64>> {
        let mut present: Vec<Range<u64>> = Vec::new();
        for page in pages.clone() {
            let is_present = self.word(page / 64).load(Relaxed) >> (page % 64) & 1 == 1;
            match present.last_mut() {
                _ if !is_present => {}
                Some(last) if last.end == page => last.end = page + 1,
                _ => present.push(page..page + 1),
            }
        }
        present
    }

    /// How often the kernel still copies, and what.
    pub(super) fn uses(&self) -> &Uses {
        // SAFETY: mapped until drop, aligned to a page, and any bytes make counts.
        unsafe { self.uses.as_ref() }
    }

    /// Lets the memory of pages go that nobody maps any more.
    pub(super) fn discard(&self, address: u64, length: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.file, flags, address, length)?)
    }

    #[inline]
    fn word(&self, word: u64) -> &AtomicU64 {
        debug_assert!(word < present_bytes() / 8);
        // SAFETY: callers have checked the pages, so it is one of the words mapped in `map`.
        unsafe { self.present.add(word as usize).as_ref() }
    }

    /// Where a span is mapped; mapped now if it is not. `None` if there is no room for it.
    #[inline]
    fn span(&self, span: usize) -> Option<NonNull<u8>> {
        match self.near[span % NEAR].get() {
            Some(&(number, first)) if number == span => Some(first),
            _ => self.far_span(span),
        }
    }

    /// As [`AddressSpace::span`], by the table; it is found at once from now on if there is room.
    #[inline(never)]
    fn far_span(&self, span: usize) -> Option<NonNull<u8>> {
        let group = self.spans.get(span / GROUP)?.load(Acquire);
        // SAFETY: a group once noted stays until drop.
        let known = unsafe { group.as_ref() }.map(|group| group[span % GROUP].load(Acquire));
        let first = known.and_then(NonNull::new).or_else(|| self.map_span(span))?;
        // What came here before stays.
        let _ = self.near[span % NEAR].set((span, first));
        Some(first)
    }

    #[cold]
    fn map_span(&self, span: usize) -> Option<NonNull<u8>> {
        let noted = &self.spans[span / GROUP];
        if noted.load(Acquire).is_null() {
            let group = Box::new([const { AtomicPtr::new(null_mut()) }; GROUP]);
            let group = Box::into_raw(group);
            if noted.compare_exchange(null_mut(), group, AcqRel, Relaxed).is_err() {
                // SAFETY: made above, and nobody else knows it.
                drop(unsafe { Box::from_raw(group) });
            }
        }
        // SAFETY: noted, and stays until drop.
        let group = unsafe { noted.load(Acquire).as_ref()? };
        let mapped = map_part(&self.file, span as u64 * SPAN, SPAN).ok()?;
        let slot = &group[span % GROUP];
        match slot.compare_exchange(null_mut(), mapped.as_ptr(), AcqRel, Acquire) {
            Ok(_) => Some(mapped),
            Err(other) => {
                unmap(mapped, SPAN);
                NonNull::new(other)
            }
        }
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        if self.owner.is_another() {
            return;
        }
        unmap(self.present.cast(), notes_bytes());
        for group in &mut *self.spans {
            let group = *group.get_mut();
            if group.is_null() {
                continue;
            }
            // SAFETY: made by `map_span`, and nobody else has it any more.
            for span in unsafe { *Box::from_raw(group) } {
                if let Some(span) = NonNull::new(span.into_inner()) {
                    unmap(span, SPAN);
                }
            }
        }
    }
}

/// The words with the bits of the pages from `first` to `last`, and those bits.
#[inline]
fn words(first: u64, last: u64) -> impl Iterator<Item = (u64, u64)> {
    (first / 64..=last / 64).map(move |word| {
        let from = if word == first / 64 { first % 64 } else { 0 };
        let to = if word == last / 64 { last % 64 } else { 63 };
        (word, u64::MAX << from & u64::MAX >> (63 - to))
    })
}

/// A mapping of a part of the file. Its children do not get it, and it is not in a core file: what is in
/// it is there at the program's own addresses.
fn map_part(file: &OwnedFd, offset: u64, length: u64) -> io::Result<NonNull<u8>> {
    let mapped = map_shared(file, offset, length as usize)?;
    for advice in [Advice::LinuxDontFork, Advice::LinuxDontDump] {
        // SAFETY: the mapping made above, whole.
        let advised =
            unsafe { rustix::mm::madvise(mapped.as_ptr().cast(), length as usize, advice) };
        if let Err(error) = advised {
            unmap(mapped, length);
            return Err(error.into());
        }
    }
    Ok(mapped)
}

fn unmap(mapped: NonNull<u8>, length: u64) {
    // SAFETY: made by `map_part` with this length, and nobody uses it any more.
    let unmapped = unsafe { rustix::mm::munmap(mapped.as_ptr().cast(), length as usize) };
    debug_assert!(unmapped.is_ok());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "there is no such file")]
    fn bytes_are_found_if_every_page_they_lie_in_is_present() {
        let (space, page) = (AddressSpace::create().unwrap(), page_size());
        let first = 63;
        // Two pages whose bits are in two words, and the last that there can be.
        let last = (1 << ADDRESS_BITS) / page - 1;
        space.set_present(first, first + 1, true);
        space.set_present(last, last, true);
        let (start, end) = (first * page, (first + 2) * page);
        let found = |address: u64, length: u64| space.find(address, length).is_some();
        for (address, length) in [(start, 1), (start, page), (start, 2 * page), (end - 1, 1)] {
            assert!(found(address, length), "{address:#x}+{length}");
        }
        assert!(found(last * page, page));
        let one = space.find(start, 1).unwrap();
        assert_eq!(
            space.find(end - 1, 1).unwrap().addr().get(),
            one.addr().get() + 2 * page as usize - 1
        );
        for (address, length) in [
            (start, 0),
            (start, u64::MAX),
            (start, 2 * page + 1),
            (start - 1, 1),
            (start - 1, 2),
            (end, 1),
            (end - 1, 2),
            (end - 1, u64::MAX),
            (last * page, page + 1),
            (start + (1 << ADDRESS_BITS), 1),
            (u64::MAX, 1),
        ] {
            assert!(!found(address, length), "{address:#x}+{length}");
        }
        space.set_present(first + 1, first + 1, false);
        assert!(found(start, page) && !found(start, page + 1) && !found(start + page, 1));
    }

    #[test]
    #[cfg_attr(miri, ignore = "there is no such file")]
    fn each_span_is_found_where_it_is_mapped() {
        let space = AddressSpace::create().unwrap();
        // Some of the same low bits, in one group and in several.
        let spans = [1, 1 + NEAR, 2, 1 + GROUP, 1 + 2 * NEAR];
        let mapped = spans.map(|span| space.span(span).unwrap());
        for (at, span) in spans.into_iter().enumerate() {
            assert_eq!(space.span(span), Some(mapped[at]), "{span}");
            assert_eq!(mapped.iter().filter(|first| **first == mapped[at]).count(), 1, "{span}");
        }
    }

    /// Numbers of inodes repeat on other devices, and the program's libraries are on such.
    #[test]
    #[cfg_attr(miri, ignore = "there is no such file")]
    fn a_file_with_the_same_number_on_another_device_is_another() {
        let space = AddressSpace::create().unwrap();
        let stat = rustix::fs::fstat(&space.file).unwrap();
        let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
        let line = |minor: u32, kind: char| {
            let inode = stat.st_ino;
            let line =
                format!("10000-11000 rw-{kind} 00001000 {major:02x}:{minor:02x} {inode} name");
            Line::parse(line.as_bytes()).unwrap()
        };
        assert!(space.is_behind(&line(minor, 's')));
        assert!(!space.is_behind(&line(minor + 1, 's')));
        assert!(!space.is_behind(&line(minor, 'p')));
    }
}

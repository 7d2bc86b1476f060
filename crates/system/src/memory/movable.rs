//! What pages of the program can be moved to its address-space file without its noticing.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;
use rustix::mm::Advice;
use rustix::net::AddressFamily;
use tracing::debug;

use super::maps::{Line, Maps};
use super::page_size;
use super::take_over::Pages;

/// Those of some pages that may be moved to the file: ordinary private memory of the program. Not files
/// and devices; not what the kernel was told to keep in memory, which it would not be there; not stacks
/// and this thread's own variables, which it may write meanwhile; and nothing while the kernel or a device may
/// have pinned pages, which would come apart from what it has pinned, or something else may watch them.
pub(super) fn movable(maps: &Maps, pages: &Range<u64>) -> Vec<Range<u64>> {
    let part = |line: Line| {
        let (start, end) = (line.start / page_size(), line.end / page_size());
        let pages = start.max(pages.start)..end.min(pages.end);
        (is_movable(&line, &pages) && has_locked(Pages::of(&pages)) == Some(false)).then_some(pages)
    };
    let range = pages.start * page_size()..pages.end * page_size();
    let lines = maps.lines_of(range).unwrap_or_default();
    let mut found = Vec::new();
    if let Err(error) = found.try_reserve_exact(lines.len()) {
        debug!(address = pages.start * page_size(), %error, "memory stays private");
        return found;
    }
    found.extend(lines.into_iter().filter_map(part));
    if !found.is_empty() && has_pinning() {
        debug!(address = pages.start * page_size(), "memory stays private: it may be pinned");
        return Vec::new();
    }
    found
}

/// Whether [`movable`] would still say all of some pages. It takes no memory.
pub(super) fn are_movable(maps: &Maps, pages: &Range<u64>) -> bool {
    let Pages { address, length } = Pages::of(pages);
    maps.all(address..address + length, |line| is_movable(line, pages))
        && has_locked(Pages::of(pages)) == Some(false)
        && !has_pinning()
}

/// Whether the part of some pages that lies in a mapping may be moved, as far as its line says.
fn is_movable(line: &Line, pages: &Range<u64>) -> bool {
    let on_stack = 0_u8;
    let has = |address: u64| (line.start..line.end).contains(&address);
    let near = |own: u64| has(own) && is_near(pages, own);
    line.is_private_memory()
        && !line.follows_guard
        && !has(&raw const on_stack as u64)
        && !own_variables().into_iter().any(near)
}

/// Where this thread has variables of its own, which it may write at any time, and the kernel when the
/// thread gets a processor (`rseq(2)`). Those of one library lie together, and they may share a mapping
/// with ordinary memory.
fn own_variables() -> [u64; 3] {
    thread_local!(static OF_THIS_THREAD: u8 = const { 0 });
    let own = OF_THIS_THREAD.with(|byte| std::ptr::from_ref(byte) as u64);
    // SAFETY: both only say where something is.
    unsafe { [own, libc::pthread_self(), libc::__errno_location() as u64] }
}

/// Whether an address is so near to pages that they may have what lies around it.
fn is_near(pages: &Range<u64>, address: u64) -> bool {
    const NEAR: u64 = 64 << 10;
    let Pages { address: start, length } = Pages::of(pages);
    start <= address.saturating_add(NEAR) && address <= (start + length).saturating_add(NEAR)
}

/// Whether the program has any of some pages locked (`mlock(2)`): the kernel refuses to find such cold.
/// None if it does not say.
pub(super) fn has_locked(Pages { address, length }: Pages) -> Option<bool> {
    // SAFETY: it changes no more than which pages are swapped out first.
    let advised =
        unsafe { rustix::mm::madvise(address as *mut _, length as usize, Advice::LinuxCold) };
    match advised {
        Ok(()) => Some(false),
        Err(Errno::INVAL) => Some(true),
        Err(_) => None,
    }
}

/// Whether the program has anything open by which pages may be pinned: an `io_uring(7)`, VFIO, a graphics
/// processor, another adapter; or by which it is told of what happens to them, a `userfaultfd(2)`. All descriptors are looked at each time, for any thread may open or inherit
/// one in any way.
pub(super) fn has_pinning() -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(list) = rustix::fs::open("/proc/self/fd", flags, Mode::empty()) else { return true };
    let mut room = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(&list, &mut room);
    while let Some(entry) = entries.next() {
        let Ok(entry) = entry else { return true };
        let number = entry.file_name().to_str().ok().and_then(|name| name.parse().ok());
        let Some(number) = number else { continue };
        // SAFETY: it is only asked what it is, and not closed here.
        let file = unsafe { BorrowedFd::borrow_raw(number) };
        if may_pin(file, || is_harmless(&list, entry.file_name())) {
            return true;
        }
    }
    false
}

/// Whether pages may be pinned by a file. One that is closed meanwhile pins none.
fn may_pin(file: BorrowedFd<'_>, is_harmless: impl FnOnce() -> bool) -> bool {
    let Ok(stat) = rustix::fs::fstat(file) else { return false };
    match FileType::from_raw_mode(stat.st_mode) {
        // All but memory (`/dev/null`, random numbers) and terminals: see `devices.txt` of Linux.
        FileType::CharacterDevice => {
            !matches!(rustix::fs::major(stat.st_rdev), 1 | 4 | 5 | 136..=143)
        }
        FileType::Socket => {
            let domain = rustix::net::sockopt::socket_domain(file);
            domain.is_ok_and(|domain| domain == AddressFamily::XDP)
        }
        // Of the kernel's own, which have no type.
        FileType::Unknown => !is_harmless(),
        _ => false,
    }
}

/// Whether one of the kernel's own files is of a kind that pins nothing.
fn is_harmless(list: &OwnedFd, name: &CStr) -> bool {
    const HARMLESS: [&[u8]; 7] = [
        b"[eventfd]",
        b"[eventpoll]",
        b"[timerfd]",
        b"[signalfd]",
        b"inotify",
        b"[pidfd]",
        b"[perf_event]",
    ];
    /// Longer than any of those; what is longer is cut off.
    const ROOM: usize = 32;
    let mut target = [MaybeUninit::<u8>::uninit(); ROOM];
    let target = rustix::fs::readlinkat_raw(list, name, &mut target);
    let kind = target.as_ref().ok().and_then(|(target, _)| target.strip_prefix(b"anon_inode:"));
    kind.is_some_and(|kind| HARMLESS.contains(&kind))
}

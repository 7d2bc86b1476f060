//! Moves pages between private memory of the program and its address-space file.
//!
//! All other threads of the program are stopped meanwhile ([`with_threads_stopped`]): pages are copied, and
//! replaced by an `mmap`, and no write is lost, neither one by an instruction nor one by a system
//! call. What was found out before is looked at once more then, for until then the program could change it.

use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use rustix::process::Resource;

use super::address_space::AddressSpace;
use super::own::{self, Bytes};
use super::{Direction, Readable, Writable, page_size, transfer};
use crate::stopped_threads::with_threads_stopped;
use crate::this_process::this_process;

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Whole pages of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pages {
    pub(super) address: u64,
    pub(super) length: u64,
}

impl Pages {
    /// Those of these numbers.
    pub(super) fn of(numbers: &Range<u64>) -> Self {
        let size = page_size();
        Self { address: numbers.start * size, length: (numbers.end - numbers.start) * size }
    }
}

/// Tries whether the system lets pages be moved so, both ways.
pub(super) fn try_out(space: &AddressSpace) -> io::Result<()> {
    let length = page_size();
    let scratch = private(length)?;
    let pages = Pages { address: scratch as u64, length };
    let works = take_over(space, pages, || true)
        .and_then(|()| give_back(space, pages.address, (pages, READ_WRITE), || Ok(())));
    unmap(scratch, length);
    works
}

/// Moves pages of private memory, which the program may read and write, to the file. They are none that
/// this thread needs meanwhile: neither its stack nor its thread-local variables. `are_movable` says whether they
/// still are what they were taken for, and takes no memory for that.
///
/// # Errors
///
/// [`io::ErrorKind::NotFound`] if they are not, and those of [`with_threads_stopped`].
pub(super) fn take_over(
    space: &AddressSpace,
    pages: Pages,
    are_movable: impl Fn() -> bool,
) -> io::Result<()> {
    let Pages { address, length } = pages;
    // Before the others are stopped: that may need memory.
    let to = space.writable(address, length).ok_or(io::ErrorKind::OutOfMemory)?;
    let moved = with_threads_stopped(|| {
        if !are_movable() {
            return Err(Errno::NOENT);
        }
        let to = to.address(length).ok_or(Errno::INVAL)?;
        if transfer(Direction::Read, this_process(), to, address, length) != Ok(length) {
            write(space, pages)?;
        }
        // SAFETY: what is replaced has the same bytes, and the program the same rights to them.
        unsafe { replace(space, pages) }
    });
    let moved = moved.and_then(|moved| Ok(moved?));
    if moved.is_err() {
        let _ = space.discard(address, length);
    }
    moved
}

/// Writes pages to the file, where the kernel forbids to copy memory otherwise.
fn write(space: &AddressSpace, Pages { address, length }: Pages) -> Result<(), Errno> {
    // Beyond a limit of file sizes it would be a signal that answers.
    if rustix::process::getrlimit(Resource::Fsize).current.is_some() {
        return Err(Errno::FBIG);
    }
    let (count, offset) = (length as usize, libc::off_t::try_from(address));
    let offset = offset.map_err(|_| Errno::INVAL)?;
    let from = std::ptr::with_exposed_provenance(address as usize);
    // SAFETY: the kernel looks whether they can be read.
    let written = unsafe { libc::pwrite(space.file().as_raw_fd(), from, count, offset) };
    if usize::try_from(written) == Ok(count) { Ok(()) } else { Err(Errno::FAULT) }
}

/// Has fresh pages of private memory lie in the file from the start.
///
/// # Safety
///
/// They are zero, and nobody uses them.
pub(super) unsafe fn place(space: &AddressSpace, pages: Pages) -> io::Result<()> {
    // What peers reach by instructions this process does too, or its atomics and theirs are not one step for each other.
    // And whoever looks where the program has the file is to know what it is mapped for.
    if !space.map(pages.address, pages.length) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    // What was there before.
    space.discard(pages.address, pages.length)?;
    // SAFETY: what is replaced is zero, as what is not there yet is in the file.
    unsafe { replace(space, pages)? };
    Ok(())
}

/// Has the program see pages of the file in place of its own.
///
/// # Safety
///
/// Both have the same bytes, and the program may read and write them.
unsafe fn replace(space: &AddressSpace, pages: Pages) -> Result<(), Errno> {
    // SAFETY: as the caller says.
    unsafe { show(space, pages.address, (pages, READ_WRITE)) }
}

/// Has the program see pages of the file, from `offset` on.
///
/// # Safety
///
/// They have the bytes that the program has there, and these are its rights to them.
unsafe fn show(
    space: &AddressSpace,
    offset: u64,
    (pages, rights): (Pages, ProtFlags),
) -> Result<(), Errno> {
    let (at, length) = (pages.address as *mut _, pages.length as usize);
    let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
    // SAFETY: as the caller says.
    unsafe {
        rustix::mm::mmap(at, length, rights, flags, space.file(), offset)?;
        // A child has its own copy. One that is made without the C library shares them if this fails.
        let _ = rustix::mm::madvise(at, length, Advice::LinuxDontFork);
    }
    Ok(())
}

/// Moves pages of the file, from `offset` on, that the program has mapped at `pages`, and nobody else uses, back
/// to private memory, of which the program has these rights. They are none that this thread needs meanwhile, as in
/// [`take_over`].
///
/// The program may unmap them at any time, have other memory there, or other rights; `are_there` says whether
/// they are as they were found, or why they cannot be moved, and takes no memory for that.
///
/// # Errors
///
/// What `are_there` says: [`Errno::NOENT`] if they are not there any more; and those of [`with_threads_stopped`].
pub(super) fn give_back(
    space: &AddressSpace,
    offset: u64,
    (pages, rights): (Pages, ProtFlags),
    are_there: impl Fn() -> Result<(), Errno>,
) -> io::Result<()> {
    let length = pages.length;
    let from = space.readable(offset, length).ok_or(io::ErrorKind::OutOfMemory)?;
    let moved = with_threads_stopped(|| {
        // What the program has unmapped is where the kernel finds room for other memory.
        are_there()?;
        // SAFETY: they are there, and nobody else sees what happens to them meanwhile.
        unsafe { make_private(pages, rights, from) }.inspect_err(|_| {
            // There may be no memory for it when they are gone already.
            if are_there() == Err(Errno::NOENT) {
                // SAFETY: the file has what they had, and nobody has written to them.
                let _ = unsafe { show(space, offset, (pages, rights)) };
            }
        })
    });
    moved.and_then(|moved| Ok(moved?))?;
    // They have been moved, also where the file keeps its memory of them.
    let _ = space.discard(offset, length);
    Ok(())
}

/// Has the program see private memory with the same bytes in place of pages of the file. It is written to where it
/// is to be: memory that came from elsewhere would stay a mapping of its own, apart from what lies beside it.
///
/// # Safety
///
/// These are the bytes that the program has there, and its rights to them.
unsafe fn make_private(
    Pages { address, length }: Pages,
    rights: ProtFlags,
    from: Readable<'_>,
) -> Result<(), Errno> {
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    let at = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
    // SAFETY: as the caller says; what is written to has just been mapped.
    unsafe {
        rustix::mm::mmap_anonymous(at.cast(), length as usize, READ_WRITE, flags)?;
        own::copy(Writable::shared(at, length), from, length).map_err(|_| Errno::FAULT)?;
        if rights != READ_WRITE {
            let rights = MprotectFlags::from_bits_retain(rights.bits());
            rustix::mm::mprotect(at.cast(), length as usize, rights)?;
        }
    }
    Ok(())
}

fn private(length: u64) -> io::Result<*mut u8> {
    // SAFETY: a fresh mapping at an address that the kernel chooses.
    let made = unsafe {
        rustix::mm::mmap_anonymous(null_mut(), length as usize, READ_WRITE, MapFlags::PRIVATE)?
    };
    Ok(made.cast())
}

fn unmap(made: *mut u8, length: u64) {
    // SAFETY: made by `private` with this length, and nobody uses it.
    let unmapped = unsafe { rustix::mm::munmap(made.cast(), length as usize) };
    debug_assert!(unmapped.is_ok());
}

#[cfg(all(test, not(miri)))]
#[expect(clippy::print_stdout, reason = "tests say what they skip")]
mod tests {
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
    use std::thread;

    use super::*;
    use crate::stopped_threads::retried;
    use crate::stopped_threads::tests::{Over, in_a_minute};

    /// A page of this test's own.
    struct Page(*mut u8);

    // SAFETY: it is reached by system calls, and by atomics.
    unsafe impl Sync for Page {}

    impl Page {
        fn new() -> Self {
            Self(private(page_size()).unwrap())
        }

        fn pages(&self) -> Pages {
            Pages { address: self.0 as u64, length: page_size() }
        }

        fn word(&self, at: usize) -> &AtomicU64 {
            // SAFETY: within the page, aligned, and any bytes make a number.
            unsafe { &*self.0.cast::<AtomicU64>().add(at) }
        }

        /// Has the kernel fill a word.
        fn fill(&self, at: usize, from: BorrowedFd<'_>) {
            let to = std::ptr::from_ref(self.word(at)).cast_mut().cast();
            // SAFETY: the kernel checks where it writes, and it is this test's own.
            let done = unsafe { libc::read(from.as_raw_fd(), to, 8) };
            assert_eq!(done, 8, "{}", io::Error::last_os_error());
        }
    }

    impl Drop for Page {
        fn drop(&mut self) {
            unmap(self.0, page_size());
        }
    }

    /// A file to move pages to; none, and why, where the system does not let them be moved.
    fn space() -> Option<AddressSpace> {
        let tried = AddressSpace::create().and_then(|space| {
            retried(in_a_minute(), || try_out(&space))?;
            Ok(space)
        });
        tried.inspect_err(|why| println!("skipped: pages are not moved here: {why}")).ok()
    }

    fn try_without_right(act: impl FnOnce() + Send) {
        const CAP_SYS_PTRACE: u32 = 19;
        // `_LINUX_CAPABILITY_VERSION_3`.
        let header = [0x2008_0522_u32, 0];
        let take = move || {
            let mut sets = [0_u32; 6];
            // SAFETY: a header, and as many sets as it stands for; of this thread alone.
            unsafe {
                assert_eq!(libc::syscall(libc::SYS_capget, &raw const header, &raw mut sets), 0);
                sets[0] &= !(1 << CAP_SYS_PTRACE);
                assert_eq!(libc::syscall(libc::SYS_capset, &raw const header, &raw const sets), 0);
            }
            act()
        };
        thread::scope(|scope| scope.spawn(take).join().unwrap())
    }

    /// System calls fill a page all the time, those that return at once and those that wait for what they get, while
    /// it is moved by somebody without rights: none of them fails, and what they bring is there.
    #[test]
    fn system_calls_fill_pages_that_are_moved() {
        let Some(space) = space() else { return };
        let (page, stop) = (Page::new(), AtomicBool::new(false));
        let (from, into) = rustix::pipe::pipe().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let numbers = std::fs::File::open("/dev/urandom").unwrap();
                while !stop.load(Acquire) {
                    page.word(0).store(0, SeqCst);
                    page.fill(0, numbers.as_fd());
                    assert_ne!(page.word(0).load(SeqCst), 0);
                }
            });
            scope.spawn(|| {
                for number in 1_u64.. {
                    page.fill(1, from.as_fd());
                    let found = page.word(1).load(SeqCst);
                    if found == 0 {
                        break;
                    }
                    assert_eq!(found, number);
                }
            });
            let _over = Over(&stop);
            // Who waits for numbers of it ends with it.
            let into = into;
            try_without_right(|| {
                let mut sent = 0_u64;
                let send = |number: u64| rustix::io::write(&into, &number.to_ne_bytes()).unwrap();
                let (pages, address) = (page.pages(), page.pages().address);
                for _ in 0..100 {
                    retried(in_a_minute(), || take_over(&space, pages, || true)).unwrap();
                    sent += 1;
                    send(sent);
                    let back = || give_back(&space, address, (pages, READ_WRITE), || Ok(()));
                    retried(in_a_minute(), back).unwrap();
                }
                send(0);
            });
        });
    }

    /// Another thread may have replaced them while this one is about to move them.
    #[test]
    fn other_memory_in_place_of_pages_stays_there() {
        let Some(space) = space() else { return };
        let page = Page::new();
        let pages = page.pages();
        let number = page.word(0);
        number.store(7, Relaxed);
        let kind = |act: &dyn Fn() -> io::Result<()>| {
            retried(in_a_minute(), act).map_err(|error| error.kind())
        };
        let moved = kind(&|| take_over(&space, pages, || false));
        assert_eq!(moved, Err(io::ErrorKind::NotFound));
        assert_eq!(number.load(Relaxed), 7);
        let gone = || Err(Errno::NOENT);
        let moved = kind(&|| give_back(&space, pages.address, (pages, READ_WRITE), gone));
        assert_eq!(moved, Err(io::ErrorKind::NotFound));
        assert_eq!(number.load(Relaxed), 7);
    }
}

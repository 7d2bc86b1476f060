//! Moves pages between private memory of the program and its address-space file, while other threads of
//! the program go on reading and writing them.
//!
//! Pages that move are protected from writing by `userfaultfd(2)`, copied, and replaced by one `mmap` or
//! `mremap`. A thread that writes meanwhile waits for the page and then writes to the new one, so no write
//! is lost. Meanwhile this thread has no signals, whose handlers might write there and wait for themselves,
//! and takes no memory. A system call of another thread that writes there at that very moment waits too if
//! this process has `CAP_SYS_PTRACE` or `vm.unprivileged_userfaultfd` is 1. Otherwise it gets `EFAULT`: ordinary
//! users may only have such faults handled that the program's own instructions make.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::null_mut;

use rustix::io::Errno;
use rustix::ioctl::{self, Updater};
use rustix::mm::{Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags, UserfaultfdFlags};

use super::address_space::AddressSpace;
use super::own::{self, Bytes};
use super::{Direction, Writable, page_size, transfer};
use crate::signals::with_signals_held;
use crate::this_process::this_process;

/// `UFFD_API`.
const API: u64 = 0xaa;
/// `UFFD_FEATURE_PAGEFAULT_FLAG_WP`, `UFFD_FEATURE_WP_HUGETLBFS_SHMEM` and `UFFD_FEATURE_WP_UNPOPULATED`:
/// pages of files, and such as are not there yet.
const FEATURES: u64 = 1 | 1 << 12 | 1 << 13;
/// `UFFDIO_REGISTER_MODE_WP`.
const REGISTER_WRITES: u64 = 2;
/// `UFFDIO_WRITEPROTECT_MODE_WP`.
const PROTECT: u64 = 1;

/// `struct uffdio_api`.
#[repr(C)]
struct Handshake {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_register`.
#[repr(C)]
struct Register {
    start: u64,
    length: u64,
    mode: u64,
    ioctls: u64,
}

/// `struct uffdio_writeprotect`.
#[repr(C)]
struct WriteProtect {
    start: u64,
    length: u64,
    mode: u64,
}

/// `struct uffdio_range`.
#[repr(C)]
struct Waiting {
    start: u64,
    length: u64,
}

const HANDSHAKE: ioctl::Opcode = ioctl::opcode::read_write::<Handshake>(0xaa, 0x3f);
const REGISTER: ioctl::Opcode = ioctl::opcode::read_write::<Register>(0xaa, 0x00);
const UNREGISTER: ioctl::Opcode = ioctl::opcode::read::<Waiting>(0xaa, 0x01);
const WAKE: ioctl::Opcode = ioctl::opcode::read::<Waiting>(0xaa, 0x02);
const WRITE_PROTECT: ioctl::Opcode = ioctl::opcode::read_write::<WriteProtect>(0xaa, 0x06);

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

/// By which pages are protected from writing. It is kept, for making one takes as long as moving a page.
#[derive(Debug)]
pub(super) struct Faults(OwnedFd);

impl Faults {
    pub(super) fn new() -> io::Result<Self> {
        let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
        // `UFFD_USER_MODE_ONLY`, which needs no right.
        let instructions_only = flags | UserfaultfdFlags::from_bits_retain(1);
        // SAFETY: no fault is answered by a page; whoever waits goes on with the one that is there.
        let made = unsafe {
            rustix::mm::userfaultfd(flags)
                .or_else(|_| rustix::mm::userfaultfd(instructions_only))?
        };
        let mut handshake = Handshake { api: API, features: FEATURES, ioctls: 0 };
        // SAFETY: the struct is the one that the command takes.
        unsafe { ioctl::ioctl(&made, Updater::<HANDSHAKE, _>::new(&mut handshake))? };
        Ok(Self(made))
    }

    /// Has whoever writes to some pages wait.
    fn protect(&self, pages: Pages) -> Result<Protected<'_>, Errno> {
        let Pages { address: start, length } = pages;
        let mut register = Register { start, length, mode: REGISTER_WRITES, ioctls: 0 };
        let mut protect = WriteProtect { start, length, mode: PROTECT };
        // SAFETY: as above; it changes no byte.
        unsafe { ioctl::ioctl(&self.0, Updater::<REGISTER, _>::new(&mut register))? };
        let protected = Protected { faults: self, pages, are_replaced: false };
        // SAFETY: as above.
        unsafe { ioctl::ioctl(&self.0, Updater::<WRITE_PROTECT, _>::new(&mut protect))? };
        Ok(protected)
    }
}

/// Pages that nobody can write to; who tries waits until this is dropped.
struct Protected<'a> {
    faults: &'a Faults,
    pages: Pages,
    /// Others are there now, which are not protected.
    are_replaced: bool,
}

impl Drop for Protected<'_> {
    fn drop(&mut self) {
        let Pages { address: start, length } = self.pages;
        let mut pages = Waiting { start, length };
        // SAFETY: as in `Faults::protect`. They fail only if somebody has closed the descriptor, which
        // ends all protection and wakes everybody.
        unsafe {
            if !self.are_replaced {
                let _ = ioctl::ioctl(&self.faults.0, Updater::<UNREGISTER, _>::new(&mut pages));
            }
            let _ = ioctl::ioctl(&self.faults.0, Updater::<WAKE, _>::new(&mut pages));
        }
    }
}

/// Whether the system lets pages be moved so, both ways.
pub(super) fn works(space: &AddressSpace, faults: &Faults) -> bool {
    let length = page_size();
    let Ok(scratch) = private(length) else { return false };
    let pages = Pages { address: scratch as u64, length };
    let works = take_over(space, faults, pages)
        .and_then(|()| give_back(space, faults, pages.address, (pages, READ_WRITE), || true))
        .is_ok();
    unmap(scratch, length);
    works
}

/// Moves pages of private memory, which the program may read and write, to the file. They are none that
/// this thread needs meanwhile: neither its stack nor its thread-local variables.
pub(super) fn take_over(space: &AddressSpace, faults: &Faults, pages: Pages) -> io::Result<()> {
    let Pages { address, length } = pages;
    // Before they are protected: that may need memory, and this thread must not wait for itself.
    let to = space.writable(address, length).ok_or(io::ErrorKind::OutOfMemory)?;
    let moved = with_signals_held(|| {
        let mut protected = faults.protect(pages)?;
        let to = to.address(length).ok_or(Errno::INVAL)?;
        if transfer(Direction::Read, this_process(), to, address, length) != Ok(length) {
            return Err(Errno::FAULT);
        }
        // SAFETY: what is replaced has the same bytes, and the program the same rights to them.
        unsafe { replace(space, pages)? };
        protected.are_replaced = true;
        Ok(())
    });
    if moved.is_err() {
        let _ = space.discard(address, length);
    }
    Ok(moved?)
}

/// Has fresh pages of private memory lie in the file from the start.
///
/// # Safety
///
/// They are zero, and nobody uses them.
pub(super) unsafe fn place(space: &AddressSpace, pages: Pages) -> io::Result<()> {
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
    let (at, length) = (pages.address as *mut _, pages.length as usize);
    let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
    // SAFETY: as the caller says.
    unsafe {
        rustix::mm::mmap(at, length, READ_WRITE, flags, space.file(), pages.address)?;
        // A child has its own copy. One that is made without the C library shares them if this fails.
        let _ = rustix::mm::madvise(at, length, Advice::LinuxDontFork);
    }
    Ok(())
}

/// Moves pages of the file, from `offset` on, that the program has mapped at `pages`, and nobody else uses, back
/// to private memory. They are none that this thread needs meanwhile, as in [`take_over`].
///
/// The program may unmap them at any time, and have other memory there; `are_there` says whether they are,
/// and takes no memory for that.
///
/// # Errors
///
/// [`io::ErrorKind::NotFound`] if they are not there any more, and what the system says.
pub(super) fn give_back(
    space: &AddressSpace,
    faults: &Faults,
    offset: u64,
    (pages, rights): (Pages, ProtFlags),
    are_there: impl Fn() -> bool,
) -> io::Result<()> {
    let Pages { address, length } = pages;
    let from = space.readable(offset, length).ok_or(io::ErrorKind::OutOfMemory)?;
    let scratch = private(length)?;
    // What the program has unmapped is where the kernel finds room. This thread would wait for itself.
    if (address..address + length).contains(&(scratch as u64)) || !are_there() {
        unmap(scratch, length);
        return Err(io::ErrorKind::NotFound.into());
    }
    // SAFETY: just mapped, and nobody else knows it.
    let to = unsafe { Writable::shared(scratch, length) };
    let moved = with_signals_held(|| {
        let mut protected = faults.protect(pages)?;
        own::copy(to, from, length).map_err(|_| Errno::FAULT)?;
        let (length, at) = (length as usize, address as *mut _);
        // SAFETY: what is replaced has the same bytes, and the program the same rights to them.
        unsafe {
            if !rights.contains(ProtFlags::WRITE) {
                rustix::mm::mprotect(
                    scratch.cast(),
                    length,
                    MprotectFlags::from_bits_retain(rights.bits()),
                )?;
            }
            // As late as can be.
            if !are_there() {
                return Err(Errno::NOENT);
            }
            rustix::mm::mremap_fixed(scratch.cast(), length, length, MremapFlags::MAYMOVE, at)?;
        }
        protected.are_replaced = true;
        Ok::<_, Errno>(())
    });
    if let Err(error) = moved {
        unmap(scratch, length);
        return Err(error.into());
    }
    space.discard(offset, length)
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
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::*};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    /// A page of this test's own.
    struct Page(*mut u8);

    // SAFETY: it is reached by system calls only.
    unsafe impl Sync for Page {}

    impl Page {
        fn new() -> Self {
            Self(private(page_size()).unwrap())
        }

        fn pages(&self) -> Pages {
            Pages { address: self.0 as u64, length: page_size() }
        }

        /// Has the kernel fill it; the error if it does not.
        fn fill(&self) -> Result<(), i32> {
            let zeros = std::fs::File::open("/dev/zero").unwrap();
            let (file, length) = (std::os::fd::AsRawFd::as_raw_fd(&zeros), page_size() as usize);
            // SAFETY: the kernel checks where it writes, and it is this test's own.
            let done = unsafe { libc::read(file, self.0.cast(), length) };
            if done < 0 {
                return Err(io::Error::last_os_error().raw_os_error().unwrap());
            }
            assert_eq!(done as usize, length);
            Ok(())
        }
    }

    impl Drop for Page {
        fn drop(&mut self) {
            unmap(self.0, page_size());
        }
    }

    /// Whether any user may have the faults of system calls handled.
    fn all_may() -> bool {
        let allowed = std::fs::read("/proc/sys/vm/unprivileged_userfaultfd");
        allowed.is_ok_and(|allowed| allowed.trim_ascii() == b"1")
    }

    /// Takes the right to trace others from this thread.
    fn without_right<T: Send>(act: impl FnOnce() -> T + Send) -> T {
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

    /// Why memory is not mapped unless somebody asks for that.
    #[test]
    fn a_system_call_of_an_ordinary_user_fails_while_its_page_is_moved() {
        let Ok(faults) = without_right(Faults::new) else { return };
        if all_may() {
            return;
        }
        let page = Page::new();
        let protected = faults.protect(page.pages()).unwrap();
        assert_eq!(page.fill(), Err(libc::EFAULT));
        drop(protected);
        assert_eq!(page.fill(), Ok(()));
    }

    /// Another thread may have replaced them while this one is about to move them.
    #[test]
    fn other_memory_in_place_of_pages_stays_there() {
        let (Ok(space), Ok(faults)) = (AddressSpace::create(), Faults::new()) else { return };
        let (page, number) = (Page::new(), 7_u64);
        let pages = page.pages();
        if take_over(&space, &faults, pages).is_err() {
            return;
        }
        let (at, kind) = (page.0.cast(), MapFlags::PRIVATE | MapFlags::FIXED);
        // SAFETY: the test's own page, which is used by its address only, and a number in it.
        unsafe {
            rustix::mm::mmap_anonymous(at, page_size() as usize, READ_WRITE, kind).unwrap();
            at.cast::<u64>().write_volatile(number);
        }
        // At once, or at the last moment.
        for times in [0, 1] {
            let asked = Cell::new(0);
            let are_there = || asked.replace(asked.get() + 1) < times;
            let moved = give_back(&space, &faults, pages.address, (pages, READ_WRITE), are_there);
            assert_eq!(moved.map_err(|error| error.kind()), Err(io::ErrorKind::NotFound));
            assert_eq!(asked.get(), times + 1);
        }
        // SAFETY: the test's own page, where a number is.
        assert_eq!(unsafe { at.cast::<u64>().read_volatile() }, number);
        assert_eq!(page.fill(), Ok(()), "it is not protected");
    }

    #[test]
    fn a_system_call_waits_where_its_faults_may_be_handled() {
        // SAFETY: takes nothing and cannot fail.
        let has_right = all_may() || unsafe { libc::geteuid() } == 0;
        let Some(faults) = has_right.then(|| Faults::new().ok()).flatten() else { return };
        let (page, done, thread) = (Page::new(), AtomicBool::new(false), AtomicI32::new(0));
        let protected = faults.protect(page.pages()).unwrap();
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                // SAFETY: takes nothing and cannot fail.
                thread.store(unsafe { libc::gettid() }, Release);
                let filled = page.fill();
                done.store(true, Release);
                filled
            });
            let until = Instant::now() + Duration::from_secs(60);
            let waits = || {
                let path = format!("/proc/self/task/{}/syscall", thread.load(Acquire));
                let call = std::fs::read_to_string(path).unwrap_or_default();
                let wanted = format!("{} ", libc::SYS_read);
                call.starts_with(&wanted) && call.contains(&format!("{:#x}", page.0.addr()))
            };
            while !waits() && !done.load(Acquire) && Instant::now() < until {
                thread::yield_now();
            }
            assert!(waits() && !done.load(Acquire));
            drop(protected);
            assert_eq!(reader.join().unwrap(), Ok(()));
        });
    }
}

//! Registered pages on their way to the address-space file and back, while the program does with them what
//! programs do: no byte of it is to notice.

mod common;

use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard};
use std::thread;

use common::{Over, Pages, READ_WRITE, everything_at_random, in_child, wanted};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rustix::process::{Resource, Rlimit};
use transom_system::memory::{
    Allocation, Copier, Destination, When, begin_mapping, enter, is_mapped, leave, page_size,
};

/// The pages of a process are one thing: one test at a time has them.
fn alone() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    match begin_mapping(When::Registered) {
        Ok(_) => Some(guard),
        Err(error) => {
            println!("skipped: memory cannot be mapped here: {error}");
            None
        }
    }
}

/// Threads write all the time while their pages are taken over and given back.
#[test]
fn no_write_is_lost_while_pages_move() {
    const PAGES: usize = 40;
    let Some(_alone) = alone() else { return };
    let (pages, stop) = (Pages::new(PAGES), AtomicBool::new(false));
    let written: Vec<u64> = thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (pages, stop) = (&pages, &stop);
                scope.spawn(move || {
                    let mut rounds = 0;
                    while !stop.load(Acquire) {
                        (0..PAGES).for_each(|page| {
                            pages.word(page, writer * 8).fetch_add(1, Relaxed);
                        });
                        rounds += 1;
                    }
                    rounds
                })
            })
            .collect();
        let ending = Over(&stop);
        // On a busy machine the writers may not stop in time.
        let mut moved = 0;
        for round in 0..300 {
            let (page, count) = (round % 7, PAGES - round % 11 - 7);
            pages.enter(page, count);
            let first = is_mapped(pages.at(page), Pages::bytes(count));
            pages.enter(0, PAGES / 2);
            pages.leave(page, count);
            let second = is_mapped(pages.at(0), Pages::bytes(PAGES / 2));
            pages.leave(0, PAGES / 2);
            moved += u32::from(first && second && !is_mapped(pages.at(8), 8));
        }
        assert!(moved > 150, "{moved}");
        drop(ending);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    for (writer, rounds) in written.iter().enumerate() {
        for page in 0..PAGES {
            assert_eq!(pages.word(page, writer * 8).load(Relaxed), *rounds, "page {page}");
        }
    }
}

/// A child has what its parent had when it forked, and neither sees what the other writes afterwards.
#[test]
fn a_child_has_memory_of_its_own() {
    let Some(_alone) = alone() else { return };
    let (pages, stop) = (Pages::new(3), AtomicBool::new(false));
    // The first and the last are registered in part only, and what is in the rest counts as well.
    enter(pages.at(0) + 100, 2 * page_size(), false);
    let (first, second, beside) = (pages.word(0, 512), pages.word(2, 0), pages.word(2, 2048));
    beside.store(5, Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Each number is in the first page before it is in the last.
            for number in 1.. {
                first.store(number, SeqCst);
                second.store(number, SeqCst);
                if stop.load(Acquire) {
                    break;
                }
            }
        });
        let _over = Over(&stop);
        let mut again = 0;
        for _ in 0..100 {
            let before = first.load(SeqCst);
            assert!(in_child(|| {
                let (one, two) = (first.load(SeqCst), second.load(SeqCst));
                let at_once = one == two || one == two + 1;
                first.store(0, SeqCst);
                beside.store(6, SeqCst);
                at_once && one >= before && second.load(SeqCst) == two
            }));
            assert!(first.load(SeqCst) >= before);
            assert_eq!(beside.load(SeqCst), 5);
            match is_mapped(pages.at(0), 3 * page_size()) {
                true => again += 1,
                // On a busy machine the writer may not stop in time.
                false => {
                    leave(pages.at(0) + 100, 2 * page_size());
                    enter(pages.at(0) + 100, 2 * page_size(), false);
                }
            }
        }
        assert!(again > 50, "it is taken over again: {again}");
    });
    leave(pages.at(0) + 100, 2 * page_size());
}

/// A thread that has been cancelled (`pthread_cancel(3)`) ends at the next call of its own that says so, and a fork does
/// not.
#[test]
fn a_cancelled_thread_forks_before_it_ends() {
    static CHILD: AtomicI32 = AtomicI32::new(0);
    unsafe extern "C-unwind" {
        safe fn pthread_testcancel();
    }
    type Begin = extern "C" fn(*mut c_void) -> *mut c_void;
    extern "C-unwind" fn fork(word: *mut c_void) -> *mut c_void {
        // SAFETY: this thread; and the child reads memory and ends.
        unsafe {
            libc::pthread_cancel(libc::pthread_self());
            let child = libc::fork();
            if child == 0 {
                libc::_exit((*word.cast::<AtomicU64>()).load(Relaxed) as i32);
            }
            CHILD.store(child, Relaxed);
        }
        pthread_testcancel();
        null_mut()
    }
    let Some(_alone) = alone() else { return };
    let pages = Pages::new(1);
    pages.enter(0, 1);
    pages.word(0, 0).store(7, Relaxed);
    let (mut thread, mut result, word) = (0, null_mut(), pages.at(0) as *mut c_void);
    // SAFETY: what a thread may be unwound from has no more to it than what may not; it uses this test's memory.
    unsafe {
        let fork: Begin = std::mem::transmute(fork as extern "C-unwind" fn(_) -> _);
        assert_eq!(libc::pthread_create(&mut thread, std::ptr::null(), fork, word), 0);
        assert_eq!(libc::pthread_join(thread, &mut result), 0);
    }
    assert_eq!(result.addr(), usize::MAX, "it has been cancelled");
    let mut status = 0;
    // SAFETY: the status is this function's own.
    let ended = unsafe { libc::waitpid(CHILD.load(Relaxed), &mut status, 0) };
    assert_eq!(ended, CHILD.load(Relaxed));
    assert_eq!(libc::WEXITSTATUS(status), 7);
    pages.leave(0, 1);
}

/// A thread unmaps memory under its regions while another one forks, which moves all that is mapped.
#[test]
fn memory_may_be_unmapped_while_the_process_forks() {
    let Some(_alone) = alone() else { return };
    let (stop, kept) = (AtomicBool::new(false), Pages::new(1));
    kept.enter(0, 1);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Acquire) {
                let pages = Pages::new(2);
                let first = pages.at(0);
                pages.enter(0, 2);
                pages.word(1, 0).store(1, Relaxed);
                drop(pages);
                leave(first, Pages::bytes(2));
            }
        });
        let _over = Over(&stop);
        for number in 0..500 {
            kept.word(0, 0).store(number, Relaxed);
            assert!(in_child(|| kept.word(0, 0).load(Relaxed) == number));
        }
    });
    kept.leave(0, 1);
}

/// A program may unmap memory under a region and have other memory there. A region of that reaches what
/// the program sees.
#[test]
fn other_memory_in_the_same_place_is_reached() {
    let Some(_alone) = alone() else { return };
    let (pages, copier) = (Pages::new(4), Copier::best().unwrap());
    pages.enter(0, 4);
    pages.word(1, 0).store(1, Relaxed);
    pages.renew(1, 2);
    assert_eq!(pages.word(1, 0).load(Relaxed), 0);
    pages.enter(1, 1);
    copier.copy(Destination::Program(pages.at(1)), (&9_u64.to_ne_bytes()[..]).into(), 8).unwrap();
    assert_eq!(pages.word(1, 0).load(Relaxed), 9);
    assert!(is_mapped(pages.at(1), 8));
    pages.leave(0, 4);
    assert!(is_mapped(pages.at(1), 8) && !is_mapped(pages.at(0), 8));
    pages.leave(1, 1);
    assert_eq!(pages.word(1, 0).load(Relaxed), 9);
}

/// A program may move memory under a region; it keeps it, and so do its children.
#[test]
fn memory_that_is_moved_stays_what_it_is() {
    let Some(_alone) = alone() else { return };
    let (pages, room) = (Pages::new(2), Pages::new(2));
    pages.enter(0, 2);
    pages.word(1, 0).store(7, Relaxed);
    let length = Pages::bytes(2) as usize;
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let (from, to) = (pages.first.cast::<c_void>(), room.first.cast::<c_void>());
    // SAFETY: both are this test's own.
    assert_eq!(unsafe { libc::mremap(from, length, length, flags, to) }, to);
    assert!(in_child(|| room.word(1, 0).load(Relaxed) == 7));
    pages.renew(0, 2);
    pages.enter(0, 2);
    pages.word(1, 0).store(8, Relaxed);
    assert_eq!(room.word(1, 0).load(Relaxed), 7);
    assert!(in_child(|| room.word(1, 0).load(Relaxed) + pages.word(1, 0).load(Relaxed) == 15));
    pages.leave(0, 2);
    pages.leave(0, 2);
    assert!(in_child(|| room.word(1, 0).load(Relaxed) + pages.word(1, 0).load(Relaxed) == 15));
    // Moved again before the region ends.
    pages.enter(0, 1);
    let length = page_size() as usize;
    // SAFETY: as above.
    assert_eq!(unsafe { libc::mremap(from, length, length, flags, to) }, to);
    pages.leave(0, 1);
    pages.renew(0, 1);
    pages.enter(0, 1);
    pages.word(0, 0).store(1, Relaxed);
    assert_eq!(room.word(0, 0).load(Relaxed), 0);
    pages.leave(0, 1);
}

/// Memory of which parts have been in the file is one mapping again afterwards, which `mremap(2)` takes as a whole, and
/// of which a process may have so many only.
#[test]
fn memory_that_has_come_back_is_one_with_what_lies_beside_it() {
    let Some(_alone) = alone() else { return };
    // Longer than what is moved at once.
    let count = (10 << 20) / page_size() as usize;
    let pages = Pages::new(count);
    let words = [0, 1, 5, count / 2, count - 1].map(|page| pages.word(page, 8));
    words.iter().enumerate().for_each(|(at, word)| word.store(at as u64, Relaxed));
    for (page, length) in [(0, count), (1, 1), (5, 2), (count / 4, count / 2), (count - 1, 1)] {
        pages.enter(page, length);
        pages.leave(page, length);
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let within = |line: &&str| {
        let start = line.split_once('-').and_then(|(start, _)| u64::from_str_radix(start, 16).ok());
        start.is_some_and(|start| (pages.at(0)..pages.at(count)).contains(&start))
    };
    let found: Vec<_> = maps.lines().filter(within).collect();
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(words.iter().enumerate().all(|(at, word)| word.load(Relaxed) == at as u64));
}

/// How much memory this process has locked, in KiB.
fn locked() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Memory that is locked stays where it is, and other memory does not for its sake. What is locked while it
/// is registered stays locked.
#[test]
fn locked_memory_stays_locked() {
    let Some(_alone) = alone() else { return };
    let (pages, others, size) = (Pages::new(2), Pages::new(1), page_size() as usize);
    // SAFETY: this test's own pages.
    let lock = |page: usize| unsafe { libc::mlock(pages.at(page) as *const c_void, size) } == 0;
    if !lock(0) {
        return println!("skipped: this process may not lock memory");
    }
    let before = locked();
    pages.enter(0, 2);
    assert!(!is_mapped(pages.at(0), 8) && is_mapped(pages.at(1), 8));
    others.enter(0, 1);
    assert!(is_mapped(others.at(0), 8));
    assert!(lock(1));
    pages.word(1, 8).store(5, Relaxed);
    pages.leave(0, 2);
    others.leave(0, 1);
    assert_eq!(locked(), before + page_size() / 1024);
    assert_eq!(pages.word(1, 8).load(Relaxed), 5);
    assert!(!is_mapped(pages.at(1), 8));
    // SAFETY: as above.
    assert_eq!(unsafe { libc::munlock(pages.at(0) as *const c_void, 2 * size) }, 0);
}

/// An `io_uring(7)`, while it is open.
struct Ring(OwnedFd);

impl Ring {
    fn open() -> Option<Self> {
        // `struct io_uring_params`.
        let mut parameters = [0_u32; 30];
        // SAFETY: the kernel fills in what is as long as it should be.
        let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) };
        // SAFETY: just opened, and nobody else has it.
        (ring >= 0).then(|| Self(unsafe { OwnedFd::from_raw_fd(ring as i32) }))
    }

    /// Has the kernel pin memory.
    fn pin(&self, address: u64, length: u64) {
        let memory = libc::iovec { iov_base: address as *mut c_void, iov_len: length as usize };
        const REGISTER_BUFFERS: u32 = 0;
        let (ring, memory) = (self.0.as_raw_fd(), &raw const memory);
        // SAFETY: the kernel checks what it is given.
        let done = unsafe {
            libc::syscall(libc::SYS_io_uring_register, ring, REGISTER_BUFFERS, memory, 1)
        };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }
}

/// While the kernel may have pinned memory nothing is moved, neither into the file nor out of it.
#[test]
fn nothing_is_moved_that_may_be_pinned() {
    let Some(_alone) = alone() else { return };
    let (pages, more) = (Pages::new(2), Pages::new(1));
    pages.enter(0, 2);
    assert!(is_mapped(pages.at(0), 8));
    let Some(ring) = Ring::open() else {
        pages.leave(0, 2);
        return println!("skipped: there is no io_uring here");
    };
    ring.pin(pages.at(0), page_size());
    more.enter(0, 1);
    assert!(!is_mapped(more.at(0), 8), "it may be pinned");
    more.leave(0, 1);
    let inode = || inode_at(pages.at(0));
    let before = inode();
    pages.word(0, 0).store(3, Relaxed);
    pages.leave(0, 2);
    assert_eq!(inode(), before, "it may be pinned");
    // A region of it is mapped at once, for it never left.
    pages.enter(0, 1);
    assert!(is_mapped(pages.at(0), 8));
    pages.leave(0, 1);
    drop(ring);
    // With the next region that ends.
    more.enter(0, 1);
    assert!(is_mapped(more.at(0), 8));
    more.leave(0, 1);
    assert_eq!((inode(), pages.word(0, 0).load(Relaxed)), (0, 3));
    assert!(!is_mapped(pages.at(0), 8) && !is_mapped(pages.at(1), 8));
}

/// Nor is memory that the program has moved under its region, and so nothing else takes its place in the file.
#[test]
fn memory_that_is_moved_is_not_given_back_while_it_may_be_pinned() {
    let Some(_alone) = alone() else { return };
    let (pages, room) = (Pages::new(1), Pages::new(1));
    pages.enter(0, 1);
    pages.word(0, 0).store(7, Relaxed);
    pages.move_to(0, &room, 0);
    let Some(ring) = Ring::open() else {
        pages.leave(0, 1);
        return println!("skipped: there is no io_uring here");
    };
    ring.pin(room.at(0), page_size());
    let before = inode_at(room.at(0));
    let others = place_at(&pages);
    let word = others.last().unwrap().first().as_ptr().cast::<AtomicU64>();
    // SAFETY: aligned, within the memory, and any bytes make a number.
    unsafe { &*word }.store(9, Relaxed);
    assert_eq!((inode_at(room.at(0)), room.word(0, 0).load(Relaxed)), (before, 7));
    drop(others);
    pages.renew(0, 1);
    pages.enter(0, 1);
    assert!(!is_mapped(pages.at(0), 8), "its place in the file is taken");
    assert_eq!((inode_at(room.at(0)), room.word(0, 0).load(Relaxed)), (before, 7));
    drop(ring);
    pages.leave(0, 1);
    pages.leave(0, 1);
    pages.enter(0, 1);
    assert!(is_mapped(pages.at(0), 8));
    pages.word(0, 0).store(9, Relaxed);
    assert_eq!(room.word(0, 0).load(Relaxed), 7);
    pages.leave(0, 1);
}

/// Nor is it reached at its old address, where a region of other memory is, when a fork cannot give it back either.
#[test]
fn memory_that_is_moved_is_not_reached_where_it_was_after_a_fork() {
    let Some(_alone) = alone() else { return };
    let (pages, room) = (Pages::new(1), Pages::new(1));
    pages.enter(0, 1);
    pages.word(0, 0).store(7, Relaxed);
    let Some(watches) = watcher() else {
        pages.leave(0, 1);
        return println!("skipped: there is no userfaultfd here");
    };
    pages.move_to(0, &room, 0);
    pages.renew(0, 1);
    pages.enter(0, 1);
    drop(watches);
    assert!(!is_mapped(pages.at(0), 8));
    let limit = rustix::process::getrlimit(Resource::As);
    let none = Rlimit { current: Some(0), ..limit };
    rustix::process::setrlimit(Resource::As, none).unwrap();
    let child = in_child(|| true);
    rustix::process::setrlimit(Resource::As, limit).unwrap();
    assert!(child);
    let number = 9_u64.to_ne_bytes();
    let copier = Copier::best().unwrap();
    copier.copy(Destination::Program(pages.at(0)), (&number[..]).into(), 8).unwrap();
    assert_eq!((pages.word(0, 0).load(Relaxed), room.word(0, 0).load(Relaxed)), (9, 7));
    pages.leave(0, 1);
    pages.leave(0, 1);
}

/// Where the program has moved memory is not found out while no descriptor is left, and until then nothing else takes
/// its place in the file.
#[test]
fn memory_that_is_moved_and_not_found_stays_what_it_is() {
    let Some(_alone) = alone() else { return };
    let (pages, room) = (Pages::new(1), Pages::new(1));
    pages.enter(0, 1);
    pages.word(0, 0).store(7, Relaxed);
    pages.move_to(0, &room, 0);
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let none = Rlimit { current: Some(0), ..limit };
    rustix::process::setrlimit(Resource::Nofile, none).unwrap();
    let others = place_at(&pages);
    rustix::process::setrlimit(Resource::Nofile, limit).unwrap();
    let word = others.last().unwrap().first().as_ptr().cast::<AtomicU64>();
    // SAFETY: aligned, within the memory, and any bytes make a number.
    unsafe { &*word }.store(9, Relaxed);
    assert_eq!(room.word(0, 0).load(Relaxed), 7);
    drop(others);
    pages.leave(0, 1);
    pages.renew(0, 1);
    pages.enter(0, 1);
    assert!(is_mapped(pages.at(0), 8));
    pages.word(0, 0).store(9, Relaxed);
    assert_eq!(room.word(0, 0).load(Relaxed), 7);
    pages.leave(0, 1);
}

/// Memory of ours until the kernel has found room for some where a page was: the last.
fn place_at(pages: &Pages) -> Vec<Allocation> {
    let mut others: Vec<Allocation> = Vec::new();
    while others.last().is_none_or(|other| other.first().as_ptr() != pages.first) {
        others.push(Allocation::new(8).unwrap());
        assert!(others.len() < 10_000, "there is no room there");
    }
    others
}

/// What watches memory: a `userfaultfd(2)`.
fn watcher() -> Option<OwnedFd> {
    const USER_MODE_ONLY: i32 = 1;
    // SAFETY: takes flags.
    let made = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | USER_MODE_ONLY) };
    // SAFETY: just opened, and nobody else has it.
    (made >= 0).then(|| unsafe { OwnedFd::from_raw_fd(made as i32) })
}

/// Who watches memory would not be told of what happens to other pages in its place.
#[test]
fn nothing_is_moved_that_may_be_watched() {
    let Some(_alone) = alone() else { return };
    let pages = Pages::new(1);
    let Some(watches) = watcher() else { return println!("skipped: there is no userfaultfd here") };
    pages.enter(0, 1);
    assert!(!is_mapped(pages.at(0), 8), "it may be watched");
    pages.leave(0, 1);
    drop(watches);
    pages.enter(0, 1);
    assert!(is_mapped(pages.at(0), 8));
    pages.leave(0, 1);
}

/// While memory goes back in many parts, or the process forks, a thread opens what it may be watched by: what that
/// thread finds then stays where it is.
#[test]
fn memory_does_not_move_once_it_may_be_watched() {
    let Some(_alone) = alone() else { return };
    if watcher().is_none() {
        return println!("skipped: there is no userfaultfd here");
    }
    let count = (40 << 20) / page_size() as usize;
    let pages = Pages::new(count);
    for round in 0..16 {
        pages.enter(0, count);
        let begun = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !begun.load(Acquire) {
                    thread::yield_now();
                }
                (0..round * 100).for_each(|_| thread::yield_now());
                let watches = watcher().expect("there is one");
                let places = || (0..count).step_by(512).map(|page| inode_at(pages.at(page)));
                let before: Vec<_> = places().collect();
                (0..100).for_each(|_| thread::yield_now());
                assert!(places().eq(before), "round {round}");
                drop(watches);
            });
            begun.store(true, Release);
            assert!(round % 2 > 0 || in_child(|| true));
            pages.leave(0, count);
        });
    }
    // With the next region that ends.
    pages.enter(0, 1);
    pages.leave(0, 1);
    assert_eq!(inode_at(pages.at(count - 1)), 0);
}

/// Memory that a program has asked for by this device lies in the file from the start, whatever else it has
/// open. A child has its own, and what is allocated anew is zero.
#[test]
fn what_is_ours_lies_in_the_file_from_the_start() {
    let Some(_alone) = alone() else { return };
    let length = page_size() * 3 + 5;
    let ring = Ring::open();
    for round in 1..4 {
        let memory = Allocation::new(length as usize).unwrap();
        let first = memory.first().as_ptr() as u64;
        assert!(is_mapped(first, length));
        // SAFETY: aligned, within the memory, and any bytes make a number.
        let words =
            [0, 3].map(|page| unsafe { &*((first + page * page_size()) as *const AtomicU64) });
        for word in words {
            assert_eq!(word.swap(round, Relaxed), 0);
        }
        if ring.is_none() {
            assert!(in_child(|| words.iter().all(|word| word.swap(9, Relaxed) == round)));
        }
        // Its regions come and go.
        enter(first + 8, 100, false);
        leave(first + 8, 100);
        assert!(is_mapped(first, length));
        // One may outlive it: it keeps the pages.
        enter(first, 8, false);
        drop(memory);
        assert!(is_mapped(first, 8) && !is_mapped(first + page_size(), 8));
        leave(first, 8);
        assert!(!is_mapped(first, 8));
    }
    drop(ring);
    let memory = Allocation::new(length as usize).unwrap();
    let first = memory.first().as_ptr() as *const AtomicU64;
    // SAFETY: as above.
    let word = unsafe { &*first };
    word.store(4, Relaxed);
    assert!(in_child(|| word.swap(5, Relaxed) == 4));
    assert_eq!(word.load(Relaxed), 4);
    assert!(is_mapped(first as u64, length), "it is taken over again");
}

/// A word of the line that the list of mappings has of an address.
fn word_at(address: u64, number: usize) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let word = maps.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (start, end) = words.clone().next()?.split_once('-')?;
        let address_of = |text| u64::from_str_radix(text, 16).ok();
        let has = (address_of(start)?..address_of(end)?).contains(&address);
        has.then(|| words.nth(number))?.map(str::to_owned)
    });
    word.expect("something is mapped there")
}

/// The number of the file that is mapped at an address; zero if none is.
fn inode_at(address: u64) -> u64 {
    word_at(address, 4).parse().expect("it is a number")
}

/// Memory that the program may execute stays where it is. What it lets be executed later can still be when its
/// region has ended, and after a fork.
#[test]
fn what_may_be_executed_can_be() {
    let Some(_alone) = alone() else { return };
    let pages = Pages::new(1);
    let rights = || word_at(pages.at(0), 1)[..3].to_owned();
    pages.protect(0, 1, READ_WRITE | libc::PROT_EXEC);
    pages.enter(0, 1);
    assert!(!is_mapped(pages.at(0), 8));
    pages.leave(0, 1);
    assert_eq!(rights(), "rwx");
    for forks in [false, true] {
        for (later, expected) in
            [(libc::PROT_READ | libc::PROT_EXEC, "r-x"), (READ_WRITE | libc::PROT_EXEC, "rwx")]
        {
            pages.protect(0, 1, READ_WRITE);
            pages.enter(0, 1);
            assert!(is_mapped(pages.at(0), 8));
            pages.protect(0, 1, later);
            assert!(!forks || in_child(|| true));
            assert_eq!(rights(), expected);
            pages.leave(0, 1);
            assert_eq!(rights(), expected);
        }
    }
}

/// A thread protects its memory, and lets it be written again, while regions of it come and go and the process forks.
#[test]
fn what_is_protected_while_it_moves_is_as_its_program_says() {
    const PAGES: usize = 16;
    let Some(_alone) = alone() else { return };
    let (pages, stop) = (Pages::new(PAGES), AtomicBool::new(false));
    let zeros = std::fs::File::open("/dev/zero").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            // Of pages side by side one can be written and the other not.
            let mut protected = std::array::from_fn::<_, PAGES, _>(|page| page % 2 == 0);
            (0..PAGES).step_by(2).for_each(|page| pages.protect(page, 1, libc::PROT_READ));
            while !stop.load(Acquire) {
                for (page, protected) in protected.iter_mut().enumerate() {
                    let is = if *protected { Err(libc::EFAULT) } else { Ok(()) };
                    assert_eq!(pages.fill(page, 0, zeros.as_fd()), is);
                    let rights = if *protected { READ_WRITE } else { libc::PROT_READ };
                    pages.protect(page, 1, rights);
                    *protected = !*protected;
                }
            }
        });
        let _over = Over(&stop);
        for round in 0..50 {
            pages.enter(0, PAGES);
            assert!(round % 8 > 0 || in_child(|| pages.word(0, 0).load(Relaxed) == 0));
            pages.leave(0, PAGES);
        }
    });
}

/// What is not ordinary memory of the program stays where it is.
#[test]
fn what_could_notice_is_not_moved() {
    let Some(_alone) = alone() else { return };
    let pages = Pages::new(2);
    let stays = |why: &str| {
        pages.enter(0, 2);
        assert!(!is_mapped(pages.at(0), 8), "{why}");
        pages.leave(0, 2);
    };
    pages.protect(0, 2, libc::PROT_READ);
    stays("what the program may not write");
    pages.protect(0, 2, READ_WRITE);
    let on_stack = [0_u8; 64];
    enter(on_stack.as_ptr() as u64, 64, false);
    assert!(!is_mapped(on_stack.as_ptr() as u64, 64), "a stack");
    leave(on_stack.as_ptr() as u64, 64);
    let length = page_size() as usize;
    // SAFETY: a fresh mapping where the kernel finds room.
    let shared = unsafe {
        let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        libc::mmap(null_mut(), length, READ_WRITE, kind, -1, 0)
    };
    enter(shared as u64, page_size(), false);
    assert!(!is_mapped(shared as u64, 8), "memory shared with others");
    leave(shared as u64, page_size());
    // SAFETY: mapped above.
    assert_eq!(unsafe { libc::munmap(shared, length) }, 0);
    enter(pages.at(0), page_size(), true);
    assert!(!is_mapped(pages.at(0), 8), "paged on demand");
    leave(pages.at(0), page_size());
    pages.enter(0, 2);
    assert!(is_mapped(pages.at(0), 8), "ordinary memory is");
    pages.leave(0, 2);
}

/// Memory of the C library's allocator, with a number in each of its words.
struct Chunk {
    first: *mut u64,
    words: usize,
    number: u64,
    /// Bytes of it that are registered, from the first on.
    registered: u64,
}

impl Chunk {
    /// Allocates, and finds what the allocator promises to be zero to be so.
    fn new(words: usize, zeroed: bool, number: u64) -> Self {
        // SAFETY: asks for memory.
        let first =
            unsafe { if zeroed { libc::calloc(words, 8) } else { libc::malloc(words * 8) } };
        assert!(!first.is_null());
        let chunk = Self { first: first.cast(), words, number, registered: 0 };
        if zeroed {
            chunk.words().for_each(|word| assert_eq!(word.load(Relaxed), 0));
        }
        chunk.words().for_each(|word| word.store(number, Relaxed));
        chunk
    }

    fn words(&self) -> impl Iterator<Item = &AtomicU64> {
        // SAFETY: allocated, aligned, and any bytes make a number.
        (0..self.words).map(|at| unsafe { &*self.first.add(at).cast::<AtomicU64>() })
    }

    fn check(&self) {
        self.words().for_each(|word| assert_eq!(word.load(Relaxed), self.number));
    }

    fn register(&mut self) {
        self.registered = self.words as u64 * 8;
        enter(self.first as u64, self.registered, false);
    }

    fn deregister(&mut self) {
        if self.registered > 0 {
            leave(self.first as u64, std::mem::take(&mut self.registered));
        }
    }

    fn resize(&mut self, words: usize) {
        // SAFETY: allocated, and not used by its old address afterwards.
        let first = unsafe { libc::realloc(self.first.cast(), words * 8) };
        assert!(!first.is_null());
        (self.first, self.words) = (first.cast(), words.min(self.words));
        self.check();
        self.words = words;
        self.words().for_each(|word| word.store(self.number, Relaxed));
    }

    fn free(&self) {
        // SAFETY: allocated, and used no more.
        unsafe { libc::free(self.first.cast()) };
    }
}

/// Threads allocate, register, copy, deregister, resize and free, in this order or with the region ending
/// last; what is free goes back to the kernel. Nobody finds bytes of others, and what is to be zero is.
#[test]
fn an_allocator_meets_the_memory_it_expects() {
    let Some(_alone) = alone() else { return };
    let rounds = if wanted("TRANSOM_LONG").is_some() { 200_000 } else { 2_000 };
    let seed = wanted("TRANSOM_SEED").and_then(|it| it.parse().ok()).unwrap_or(1);
    println!("TRANSOM_SEED={seed}");
    let (copier, mapped) = (Copier::best().unwrap(), AtomicU64::new(0));
    let work = |thread: u64| {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed * 10 + thread);
        let mut chunks: Vec<Chunk> = Vec::new();
        for round in 0..rounds {
            let at = random.random_range(0..40);
            if at >= chunks.len() {
                // Small ones share pages with others, large ones have mappings of their own.
                let words = 1 << random.random_range(1..=15);
                let words = random.random_range(words..=words * 2);
                let number = thread << 32 | (round + 1);
                chunks.push(Chunk::new(words, random.random(), number));
                continue;
            }
            let chunk = &mut chunks[at];
            match random.random_range(0..8) {
                0..3 => {
                    chunk.deregister();
                    chunk.register();
                    let is_mapped = is_mapped(chunk.first as u64, chunk.registered);
                    mapped.fetch_add(u64::from(is_mapped), Relaxed);
                }
                3 => {
                    let (word, at) = (chunk.number.to_ne_bytes(), chunk.words as u64 / 2 * 8);
                    let to = Destination::Program(chunk.first as u64 + at);
                    copier.copy(to, (&word[..]).into(), 8).unwrap();
                }
                4 => chunk.deregister(),
                5 if chunk.registered == 0 => {
                    chunk.resize(random.random_range(1..=chunk.words * 2).min(1 << 17));
                }
                6 if random.random_range(0..20) == 0 => {
                    // SAFETY: takes a number.
                    unsafe { libc::malloc_trim(0) };
                }
                _ => {
                    chunk.check();
                    let mut chunk = chunks.swap_remove(at);
                    if random.random() {
                        chunk.deregister();
                    }
                    chunk.free();
                    chunk.deregister();
                }
            }
        }
        chunks.iter_mut().for_each(|chunk| {
            chunk.check();
            chunk.deregister();
            chunk.free();
        });
    };
    thread::scope(|scope| {
        (1..=3).for_each(|thread| {
            let work = &work;
            scope.spawn(move || work(thread));
        });
    });
    assert!(mapped.into_inner() > 0);
}

#[test]
fn every_byte_is_what_it_must_be() {
    let Some(_alone) = alone() else { return };
    everything_at_random();
}

//! Registered pages on their way to the address-space file and back, while the program does with them what
//! programs do: no byte of it is to notice.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard};
use std::thread;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use transom_system::memory::{
    Copier, Destination, Source, begin_mapping, enter, is_mapped, leave, page_size,
};

/// The pages of a process are one thing: one test at a time has them.
fn alone() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    match begin_mapping() {
        Ok(_) => Some(guard),
        Err(error) => {
            println!("skipped: memory cannot be mapped here: {error}");
            None
        }
    }
}

/// Pages at addresses of their own, with a page behind them that nobody has.
struct Pages {
    first: *mut u8,
    count: usize,
}

// SAFETY: the tests reach them by atomics and by copies only.
unsafe impl Sync for Pages {}

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

impl Pages {
    fn new(count: usize) -> Self {
        let length = (count + 1) * page_size() as usize;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping where the kernel finds room.
        let first = unsafe { libc::mmap(null_mut(), length, libc::PROT_NONE, kind, -1, 0) };
        assert_ne!(first, libc::MAP_FAILED);
        let pages = Self { first: first.cast(), count };
        pages.renew(0, count);
        pages
    }

    fn at(&self, page: usize) -> u64 {
        self.first as u64 + page as u64 * page_size()
    }

    fn bytes(count: usize) -> u64 {
        count as u64 * page_size()
    }

    /// Has other memory, which is zero, in place of some pages.
    fn renew(&self, page: usize, count: usize) {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let (at, length) = (self.at(page) as *mut c_void, Self::bytes(count) as usize);
        // SAFETY: within this test's own mapping.
        assert_eq!(unsafe { libc::mmap(at, length, READ_WRITE, kind, -1, 0) }, at);
    }

    fn advise(&self, page: usize, count: usize, advice: i32) {
        let (at, length) = (self.at(page) as *mut c_void, Self::bytes(count) as usize);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::madvise(at, length, advice) }, 0);
    }

    fn protect(&self, page: usize, count: usize, rights: i32) {
        let (at, length) = (self.at(page) as *mut c_void, Self::bytes(count) as usize);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::mprotect(at, length, rights) }, 0);
    }

    /// The eight bytes at an offset of a page, by the program's own instructions.
    fn word(&self, page: usize, at: usize) -> &AtomicU64 {
        assert!(page < self.count && at + 8 <= page_size() as usize);
        // SAFETY: within the mapping, aligned, and any bytes make a number.
        unsafe { &*((self.at(page) as usize + at) as *const AtomicU64) }
    }

    fn enter(&self, page: usize, count: usize) {
        enter(self.at(page), Self::bytes(count), false);
    }

    fn leave(&self, page: usize, count: usize) {
        leave(self.at(page), Self::bytes(count));
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: this test's own mapping, which nobody uses any more.
        unsafe { libc::munmap(self.first.cast(), Self::bytes(self.count + 1) as usize) };
    }
}

/// What a forked child finds; it does nothing that needs a lock.
fn in_child(holds: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child reads and writes memory and ends.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let status = if holds() { 7 } else { 1 };
        // SAFETY: ends the child.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: the status is this function's own.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7
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
        for round in 0..300 {
            let (page, count) = (round % 7, PAGES - round % 11 - 7);
            pages.enter(page, count);
            assert!(is_mapped(pages.at(page), Pages::bytes(count)));
            pages.enter(0, PAGES / 2);
            pages.leave(page, count);
            assert!(is_mapped(pages.at(0), Pages::bytes(PAGES / 2)));
            pages.leave(0, PAGES / 2);
            assert!(!is_mapped(pages.at(8), 8));
        }
        stop.store(true, Release);
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
            assert!(is_mapped(pages.at(0), 3 * page_size()), "it is taken over again");
        }
        stop.store(true, Release);
    });
    leave(pages.at(0) + 100, 2 * page_size());
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
    // SAFETY: this test's own pages.
    let locked = unsafe { libc::mlock(pages.first.cast(), page_size() as usize) } == 0;
    if locked {
        stays("locked memory");
        // SAFETY: as above.
        assert_eq!(unsafe { libc::munlock(pages.first.cast(), page_size() as usize) }, 0);
    }
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

#[expect(
    clippy::disallowed_methods,
    reason = "no stranger runs a test with rights of somebody else"
)]
fn wanted(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Everything at random, beside a copy that says what each byte must be; and a thread that counts in a
/// part of each page that is its own.
#[test]
fn every_byte_is_what_it_must_be() {
    const PAGES: usize = 24;
    let Some(_alone) = alone() else { return };
    let seed = wanted("TRANSOM_SEED").and_then(|it| it.parse().ok()).unwrap_or(1);
    let rounds = if wanted("TRANSOM_LONG").is_some() { 200_000 } else { 1500 };
    println!("TRANSOM_SEED={seed}");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (pages, stop) = (Pages::new(PAGES), AtomicBool::new(false));
    // The last eight bytes of each page are the thread's.
    let words = page_size() as usize / 8 - 1;
    let copier = Copier::best().unwrap();
    let mut known = vec![[0_u64; 4]; PAGES];
    let place = |index: usize| index * words / 4 * 8;
    let holds = |known: &[[u64; 4]]| {
        known.iter().enumerate().all(|(page, words)| {
            let is = |index| pages.word(page, place(index)).load(SeqCst);
            words.iter().enumerate().all(|(index, word)| is(index) == *word)
        })
    };
    let mut regions: Vec<(usize, usize)> = Vec::new();
    thread::scope(|scope| {
        let counter = scope.spawn(|| {
            while !stop.load(Acquire) {
                (0..PAGES).for_each(|page| {
                    pages.word(page, words * 8).fetch_add(1, Relaxed);
                });
            }
        });
        for round in 0..rounds {
            let (page, index) = (random.random_range(0..PAGES), random.random_range(0..4));
            let count = random.random_range(1..=PAGES - page);
            let free = !regions.iter().any(|(from, count)| (*from..from + count).contains(&page));
            match random.random_range(0..10) {
                0 | 1 if regions.len() < 8 => {
                    pages.enter(page, count);
                    regions.push((page, count));
                }
                0..4 if !regions.is_empty() => {
                    let (page, count) = regions.swap_remove(random.random_range(0..regions.len()));
                    pages.leave(page, count);
                }
                4 | 5 => {
                    known[page][index] = random.random();
                    pages.word(page, place(index)).store(known[page][index], SeqCst);
                }
                6 => {
                    known[page][index] = random.random();
                    let to = Destination::Program(pages.at(page) + place(index) as u64);
                    let bytes = known[page][index].to_ne_bytes();
                    copier.copy(to, (&bytes[..]).into(), 8).unwrap();
                }
                7 if free => {
                    match random.random_range(0..2) {
                        0 => pages.renew(page, 1),
                        _ => pages.advise(page, 1, libc::MADV_DONTNEED),
                    }
                    known[page] = [0; 4];
                }
                8 if random.random_range(0..8) == 0 => {
                    assert!(in_child(|| holds(&known)));
                }
                _ => {}
            }
            let at = pages.at(page) + place(index) as u64;
            assert_eq!(pages.word(page, place(index)).load(SeqCst), known[page][index], "{round}");
            let mut bytes = [0; 8];
            copier.copy((&mut bytes[..]).into(), Source::Program(at), 8).unwrap();
            assert_eq!(u64::from_ne_bytes(bytes), known[page][index], "{round}");
        }
        stop.store(true, Release);
        counter.join().unwrap();
    });
    regions.into_iter().for_each(|(page, count)| pages.leave(page, count));
    assert!(holds(&known));
}

//! Memory for the tests of what becomes of registered pages, and everything at random with it.

use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::thread;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use transom_system::memory::{
    Copier, Destination, Source, enter, is_mapped, leave, page_size, take_over_used,
};

/// Pages at addresses of their own, with a page behind them that nobody can touch, and one before them that
/// can be read: what follows memory that nobody can touch may be a stack.
pub(crate) struct Pages {
    pub(crate) first: *mut u8,
    count: usize,
}

// SAFETY: the tests reach them by atomics and by copies only.
unsafe impl Sync for Pages {}

pub(crate) const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

impl Pages {
    pub(crate) fn new(count: usize) -> Self {
        let (size, length) = (page_size() as usize, Self::bytes(count + 2) as usize);
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping where the kernel finds room.
        let before = unsafe { libc::mmap(null_mut(), length, libc::PROT_NONE, kind, -1, 0) };
        assert_ne!(before, libc::MAP_FAILED);
        // SAFETY: the first page of it.
        assert_eq!(unsafe { libc::mprotect(before, size, libc::PROT_READ) }, 0);
        let pages = Self { first: before.cast::<u8>().wrapping_add(size), count };
        pages.renew(0, count);
        pages
    }

    pub(crate) fn at(&self, page: usize) -> u64 {
        self.first as u64 + page as u64 * page_size()
    }

    pub(crate) fn bytes(count: usize) -> u64 {
        count as u64 * page_size()
    }

    /// Has other memory, which is zero, in place of some pages.
    pub(crate) fn renew(&self, page: usize, count: usize) {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let (at, length) = (self.at(page) as *mut c_void, Self::bytes(count) as usize);
        // SAFETY: within this test's own mapping.
        assert_eq!(unsafe { libc::mmap(at, length, READ_WRITE, kind, -1, 0) }, at);
    }

    pub(crate) fn advise(&self, page: usize, count: usize, advice: i32) {
        let (at, length) = (self.at(page) as *mut c_void, Self::bytes(count) as usize);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::madvise(at, length, advice) }, 0);
    }

    pub(crate) fn protect(&self, page: usize, count: usize, rights: i32) {
        let (at, length) = (self.at(page) as *mut c_void, Self::bytes(count) as usize);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::mprotect(at, length, rights) }, 0);
    }

    /// The eight bytes at an offset of a page, by the program's own instructions.
    pub(crate) fn word(&self, page: usize, at: usize) -> &AtomicU64 {
        assert!(page < self.count && at + 8 <= page_size() as usize);
        // SAFETY: within the mapping, aligned, and any bytes make a number.
        unsafe { &*((self.at(page) as usize + at) as *const AtomicU64) }
    }

    /// Moves a page elsewhere; nothing is left in its place.
    pub(crate) fn move_to(&self, page: usize, to: &Self, at: usize) {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let (from, length) = (self.at(page) as *mut c_void, page_size() as usize);
        let to = to.at(at) as *mut c_void;
        // SAFETY: both are a test's own.
        assert_eq!(unsafe { libc::mremap(from, length, length, flags, to) }, to);
    }

    /// Has the kernel fill a word; the error if it does not.
    pub(crate) fn fill(&self, page: usize, at: usize, from: BorrowedFd<'_>) -> Result<(), i32> {
        let to = std::ptr::from_ref(self.word(page, at)).cast_mut().cast();
        // SAFETY: the kernel checks where it writes, and it is a test's own.
        let done = unsafe { libc::read(from.as_raw_fd(), to, 8) };
        if done == 8 {
            Ok(())
        } else {
            Err(std::io::Error::last_os_error().raw_os_error().unwrap())
        }
    }

    pub(crate) fn enter(&self, page: usize, count: usize) {
        enter(self.at(page), Self::bytes(count), false);
    }

    pub(crate) fn leave(&self, page: usize, count: usize) {
        leave(self.at(page), Self::bytes(count));
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: this test's own mapping, which nobody uses any more.
        unsafe {
            let before = self.first.wrapping_sub(page_size() as usize);
            libc::munmap(before.cast(), Self::bytes(self.count + 2) as usize)
        };
    }
}

/// Has threads end, also when a test has failed.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Release);
    }
}

/// What a forked child finds; it does nothing that needs a lock.
pub(crate) fn in_child(holds: impl FnOnce() -> bool) -> bool {
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

#[expect(
    clippy::disallowed_methods,
    reason = "no stranger runs a test with rights of somebody else"
)]
pub(crate) fn wanted(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// What the program does at random with its pages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Writable,
    ReadOnly,
    /// It lies elsewhere, and a page of zeros in its place.
    Elsewhere,
}

/// Everything at random, beside a copy that says what each byte must be. Threads write to parts of the pages that are
/// theirs, by instructions and by system calls, of which none may fail.
pub(crate) fn everything_at_random() {
    const PAGES: usize = 24;
    let seed = wanted("TRANSOM_SEED").and_then(|it| it.parse().ok()).unwrap_or(1);
    let rounds = if wanted("TRANSOM_LONG").is_some() { 50_000 } else { 1500 };
    println!("TRANSOM_SEED={seed}");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (pages, room, stop) = (Pages::new(PAGES), Pages::new(PAGES), AtomicBool::new(false));
    // The last words of each even page are the threads'; odd ones are not always there to be written.
    let words = page_size() as usize / 8 - 2;
    let copier = Copier::best().unwrap();
    let zeros = std::fs::File::open("/dev/zero").unwrap();
    let (mut known, mut states) = (vec![[0_u64; 4]; PAGES], [State::Writable; PAGES]);
    let mut elsewhere = vec![[0_u64; 4]; PAGES];
    let place = |index: usize| index * words / 4 * 8;
    let has = |pages: &Pages, page: usize, known: &[u64; 4]| {
        let is = |index| pages.word(page, place(index)).load(SeqCst);
        known.iter().enumerate().all(|(index, word)| is(index) == *word)
    };
    let even = || (0..PAGES).step_by(2);
    let mut regions: Vec<(usize, usize)> = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Acquire) {
                even().for_each(|page| {
                    pages.word(page, words * 8).fetch_add(1, Relaxed);
                });
            }
        });
        scope.spawn(|| {
            let (from, into) = rustix::pipe::pipe().unwrap();
            for number in 1_u64.. {
                for page in even() {
                    rustix::io::write(&into, &number.to_ne_bytes()).unwrap();
                    assert_eq!(pages.fill(page, words * 8 + 8, from.as_fd()), Ok(()));
                    let found = pages.word(page, words * 8 + 8).load(SeqCst);
                    // Zero if the page is another by now.
                    assert!(found == number || found == 0);
                }
                if stop.load(Acquire) {
                    break;
                }
            }
        });
        scope.spawn(|| {
            while !stop.load(Acquire) {
                take_over_used();
                thread::yield_now();
            }
        });
        let _over = Over(&stop);
        for round in 0..rounds {
            let (page, index) = (random.random_range(0..PAGES), random.random_range(0..4));
            let count = random.random_range(1..=PAGES - page);
            let free = !regions.iter().any(|(from, count)| (*from..from + count).contains(&page));
            let at = pages.at(page) + place(index) as u64;
            match random.random_range(0..12) {
                0 | 1 if regions.len() < 8 => {
                    pages.enter(page, count);
                    regions.push((page, count));
                }
                0..4 if !regions.is_empty() => {
                    let (page, count) = regions.swap_remove(random.random_range(0..regions.len()));
                    pages.leave(page, count);
                }
                4 | 5 if states[page] != State::ReadOnly => {
                    known[page][index] = random.random();
                    pages.word(page, place(index)).store(known[page][index], SeqCst);
                }
                6 if states[page] != State::ReadOnly => {
                    known[page][index] = random.random();
                    let bytes = known[page][index].to_ne_bytes();
                    copier.copy(Destination::Program(at), (&bytes[..]).into(), 8).unwrap();
                }
                7 if free && states[page] != State::ReadOnly => {
                    match random.random_range(0..2) {
                        0 => pages.renew(page, 1),
                        _ => pages.advise(page, 1, libc::MADV_DONTNEED),
                    }
                    known[page] = [0; 4];
                }
                8 if random.random_range(0..8) == 0 => {
                    let has_all = || (0..PAGES).all(|page| has(&pages, page, &known[page]));
                    assert!(in_child(has_all));
                }
                9 if page % 2 == 1 => match states[page] {
                    State::Writable => {
                        pages.protect(page, 1, libc::PROT_READ);
                        states[page] = State::ReadOnly;
                    }
                    State::ReadOnly => {
                        assert_eq!(pages.fill(page, 0, zeros.as_fd()), Err(libc::EFAULT));
                        pages.protect(page, 1, READ_WRITE);
                        states[page] = State::Writable;
                    }
                    State::Elsewhere => {}
                },
                10 if page % 2 == 1 && free => match states[page] {
                    State::Writable => {
                        pages.move_to(page, &room, page);
                        pages.renew(page, 1);
                        elsewhere[page] = std::mem::take(&mut known[page]);
                        states[page] = State::Elsewhere;
                    }
                    State::ReadOnly => {}
                    State::Elsewhere => {
                        assert!(has(&room, page, &elsewhere[page]), "{round}");
                        room.move_to(page, &pages, page);
                        room.renew(page, 1);
                        known[page] = elsewhere[page];
                        states[page] = State::Writable;
                    }
                },
                _ => {
                    // As a program that uses what it has registered.
                    for _ in 0..40 {
                        let mut bytes = [0; 8];
                        copier.copy((&mut bytes[..]).into(), Source::Program(at), 8).unwrap();
                        assert_eq!(u64::from_ne_bytes(bytes), known[page][index], "{round}");
                    }
                }
            }
            assert_eq!(pages.word(page, place(index)).load(SeqCst), known[page][index], "{round}");
        }
    });
    regions.into_iter().for_each(|(page, count)| pages.leave(page, count));
    (0..PAGES).for_each(|page| assert!(has(&pages, page, &known[page]), "page {page}"));
    assert!(!is_mapped(pages.at(0), 8));
}

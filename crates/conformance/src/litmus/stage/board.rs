//! What the processes of a stage tell each other, without RDMA: in memory that they share.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::harness::until;
use crate::litmus::program::Program;

/// How many of each kind there may be.
const MOST: usize = 32;
/// How many kinds there are.
const KINDS: usize = 7;
/// Before them: how many have met, and how many have started.
const COUNTS: usize = 2;
const BYTES: usize = 4096;
const _: () = assert!((COUNTS + KINDS * MOST) * size_of::<AtomicU64>() <= BYTES);

/// A kind of numbers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Where a location is.
    Address,
    /// The key of its region, for peers.
    Key,
    /// The number of a queue pair, for each end.
    QueuePair,
    /// The key of a window.
    Window,
    /// What a register holds.
    Register,
    /// How often something was told that nobody has heard yet.
    Told,
    /// A value of the outcome.
    Shown,
}

/// A page that every process sees that this one forks.
#[derive(Debug)]
pub struct Board {
    page: *const AtomicU64,
    processes: u64,
    threads: u64,
}

// SAFETY: all that is there is atomic.
unsafe impl Sync for Board {}

impl Board {
    /// Makes one for so many processes that play a program.
    pub fn new(program: &Program, processes: usize) -> Self {
        let used = [program.locations.len(), program.ends.len(), program.windows.len()];
        let used = used.into_iter().chain([program.registers, program.channels]);
        assert!(used.chain([program.shown.len()]).all(|it| it <= MOST), "the board is too small");
        let (rights, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping.
        let page = unsafe { libc::mmap(null_mut(), BYTES, rights, flags, -1, 0) };
        assert_ne!(page, libc::MAP_FAILED);
        let (processes, threads) = (processes as u64, program.threads.len() as u64);
        Self { page: page.cast(), processes, threads }
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < COUNTS + KINDS * MOST);
        // SAFETY: a word of the page, which lives as long as this. It began as zero, and is only used as one.
        unsafe { &*self.page.add(at) }
    }

    /// One of the numbers.
    pub(super) fn at(&self, kind: Kind, nth: usize) -> &AtomicU64 {
        assert!(nth < MOST);
        self.word(COUNTS + kind as usize * MOST + nth)
    }

    /// Waits until all processes have come here.
    pub(super) fn meet(&self) {
        wait_for_all(self.word(0), self.processes, "the other processes");
    }

    /// Waits until all threads of the program have come here.
    pub(super) fn start(&self) {
        wait_for_all(self.word(1), self.threads, "the other threads");
    }

    /// Lets processes do something one after the other.
    pub(super) fn in_turn<T>(&self, own: usize, act: impl FnOnce() -> T) -> T {
        (0..own).for_each(|_| self.meet());
        let done = act();
        (own..self.processes as usize).for_each(|_| self.meet());
        done
    }

    /// Nothing is in a register, and nothing has been told.
    pub(super) fn clear(&self) {
        for kind in [Kind::Register, Kind::Told] {
            (0..MOST).for_each(|nth| self.at(kind, nth).store(0, SeqCst));
        }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: the mapping that was made with this. Nobody has a reference to it any more.
        unsafe { libc::munmap(self.page.cast_mut().cast(), BYTES) };
    }
}

/// Counts one that has come, and waits until as many have come as there are, as often as this one.
fn wait_for_all(count: &AtomicU64, all: u64, what: &str) {
    let before = count.fetch_add(1, SeqCst);
    let awaited = (before / all + 1) * all;
    until(what, || (count.load(SeqCst) >= awaited).then_some(()));
}

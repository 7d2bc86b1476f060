//! Values that move between places which several add up.

use std::sync::atomic::{AtomicU64, Ordering::*, fence};
use std::time::{Duration, Instant};

/// A move takes microseconds, and as long again as its thread waits for a processor. That may be tens of milliseconds on
/// a busy machine.
const LONGEST_MOVE: Duration = Duration::from_secs(1);
/// How long a reader tries. Where values move all that time, it takes what it has read last.
const PATIENCE: Duration = Duration::from_secs(2);

/// Values that move from one place to another without being lost or seen twice by those who add up both.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Moves {
    begun: AtomicU64,
    done: AtomicU64,
    /// How many that have begun are not waited for any more: their process was killed in the middle.
    given_up: AtomicU64,
}

impl Moves {
    /// Moves values. Several may do it at once.
    pub fn carry_out(&self, move_values: impl FnOnce()) {
        self.begun.fetch_add(1, SeqCst);
        fence(SeqCst);
        move_values();
        self.done.fetch_add(1, SeqCst);
    }

    /// Reads both places while nothing moves.
    pub fn between<T>(&self, read: impl Fn() -> T) -> T {
        let begin = Instant::now();
        loop {
            let before = self.at_rest();
            let value = read();
            fence(SeqCst);
            if self.now() == before || begin.elapsed() > PATIENCE {
                return value;
            }
        }
    }

    /// Waits for the moves that have begun. One whose process was killed in the middle never ends. The first reader waits
    /// for it a moment and gives it up for all, and nothing is read again for it.
    fn at_rest(&self) -> (u64, u64) {
        let begin = Instant::now();
        let mut last = self.now();
        loop {
            let given_up = self.given_up.load(SeqCst);
            let (done, begun) = last;
            let under_way = begun.wrapping_sub(done);
            if under_way == given_up {
                return last;
            }
            // One that was given up has ended after all, if there are more of these than are under way.
            if under_way < given_up || begin.elapsed() > LONGEST_MOVE {
                let _ = self.given_up.compare_exchange(given_up, under_way, SeqCst, SeqCst);
                return last;
            }
            std::thread::yield_now();
            last = self.now();
        }
    }

    /// How many moves are done, and how many have begun.
    fn now(&self) -> (u64, u64) {
        (self.done.load(SeqCst), self.begun.load(SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_move_that_never_ends_has_nothing_read_twice() {
        let moves = Moves::default();
        moves.carry_out(|| ());
        moves.begun.fetch_add(1, SeqCst);
        let reads = Cell::new(0);
        moves.between(|| reads.set(reads.get() + 1));
        assert_eq!(reads.get(), 1);
    }

    /// Ten thousand readers would wait for minutes.
    #[test]
    fn a_move_that_never_ends_is_waited_for_once() {
        let moves = Moves::default();
        moves.begun.fetch_add(1, SeqCst);
        let first = Instant::now();
        moves.between(|| ());
        assert!(first.elapsed() >= LONGEST_MOVE);
        let begin = Instant::now();
        (0..10_000).for_each(|_| moves.between(|| ()));
        assert!(begin.elapsed() < 10_000 * LONGEST_MOVE / 2, "{:?}", begin.elapsed());
    }

    /// A process that was stopped in the middle goes on: the moves after it are waited for again.
    #[test]
    fn a_move_that_was_given_up_may_end_after_all() {
        let moves = Moves::default();
        moves.carry_out(|| moves.between(|| ()));
        assert_eq!(moves.given_up.load(SeqCst), 1);
        moves.between(|| ());
        assert_eq!(moves.given_up.load(SeqCst), 0);
        let reads = Cell::new(0);
        moves.between(|| {
            if reads.replace(reads.get() + 1) == 0 {
                moves.carry_out(|| ());
            }
        });
        assert_eq!(reads.get(), 2);
    }

    #[test]
    fn a_move_meanwhile_has_it_read_again() {
        let moves = Moves::default();
        let reads = Cell::new(0);
        moves.between(|| {
            if reads.replace(reads.get() + 1) == 0 {
                moves.carry_out(|| ());
            }
        });
        assert_eq!(reads.get(), 2);
    }
}

//! Queue pairs that found no room, or are too early.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use parking_lot::Mutex;

/// The words that hold a bit for each index.
const WORDS: usize = (u16::MAX as usize + 1) / 64;

/// The queue pairs that have to try again, by index.
pub struct Stalled {
    /// Whether each waits. So that one that waits is found at once, however many do.
    waits: Box<[AtomicU64]>,
    lists: Mutex<Lists>,
    any: AtomicBool,
}

impl Default for Stalled {
    fn default() -> Self {
        let waits = std::iter::repeat_with(AtomicU64::default).take(WORDS).collect();
        Self { waits, lists: Mutex::default(), any: AtomicBool::new(false) }
    }
}

#[derive(Default)]
struct Lists {
    waiting: Vec<u16>,
    /// The list that was emptied last. It is kept, so that nothing is allocated when they wait again.
    spare: Vec<u16>,
}

impl Stalled {
    /// Notes a queue pair. Several notes count as one.
    pub fn add(&self, index: u16) {
        let (word, bit) = self.bit(index);
        if word.fetch_or(bit, AcqRel) & bit == 0 {
            self.lists.lock().waiting.push(index);
        }
        self.any.store(true, Release);
    }

    fn bit(&self, index: u16) -> (&AtomicU64, u64) {
        (&self.waits[usize::from(index / 64)], 1 << (index % 64))
    }

    /// Whether any waits.
    pub fn any(&self) -> bool {
        self.any.load(Acquire)
    }

    /// Gives each waiting queue pair a turn. Those that are added meanwhile wait for the next call.
    pub fn each(&self, mut turn: impl FnMut(u16)) {
        // Mostly none waits, and every message asks.
        if !self.any() || !self.any.swap(false, AcqRel) {
            return;
        }
        let mut turns = {
            let mut lists = self.lists.lock();
            let spare = std::mem::take(&mut lists.spare);
            std::mem::replace(&mut lists.waiting, spare)
        };
        for index in turns.drain(..) {
            // Before its turn: what it finds then is newer than any note until now.
            let (word, bit) = self.bit(index);
            word.fetch_and(!bit, AcqRel);
            turn(index);
        }
        self.lists.lock().spare = turns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(stalled: &Stalled) -> Vec<u16> {
        let mut turns = Vec::new();
        stalled.each(|index| turns.push(index));
        turns
    }

    #[test]
    fn each_gets_one_turn_and_may_wait_again() {
        let stalled = Stalled::default();
        [3, 5, 3].into_iter().for_each(|index| stalled.add(index));
        let mut first = Vec::new();
        stalled.each(|index| {
            first.push(index);
            stalled.add(index);
        });
        assert_eq!(first, [3, 5]);
        assert!(stalled.any());
        assert_eq!(turns(&stalled), [3, 5]);
        assert!(!stalled.any());
        assert_eq!(turns(&stalled), []);
    }

    /// A look through all that wait would make these thousands of millions of steps.
    #[test]
    fn many_wait_at_no_cost_to_each_other() {
        let stalled = Stalled::default();
        let start = std::time::Instant::now();
        for round in 0..2 {
            (0..=u16::MAX).for_each(|index| stalled.add(index));
            (0..=u16::MAX).rev().for_each(|index| stalled.add(index));
            assert_eq!(turns(&stalled), Vec::from_iter(0..=u16::MAX), "{round}");
        }
        assert!(start.elapsed() < std::time::Duration::from_secs(2), "{:?}", start.elapsed());
    }

    /// One that is noted while another thread gives turns has its turn then or later.
    #[test]
    fn none_is_forgotten_while_others_have_their_turns() {
        let stalled = Stalled::default();
        let seen = AtomicU64::new(0);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Acquire) {
                    stalled.each(|_| seen.store(0, Release));
                }
            });
            for number in 1..10_000 {
                seen.store(number, Release);
                stalled.add(7);
                while seen.load(Acquire) != 0 {
                    std::thread::yield_now();
                }
            }
            done.store(true, Release);
        });
    }
}

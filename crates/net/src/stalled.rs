//! Queue pairs that found no room, or are too early.

use std::sync::atomic::{AtomicBool, Ordering::*};

use parking_lot::Mutex;

/// The queue pairs that have to try again, by index.
#[derive(Default)]
pub struct Stalled {
    lists: Mutex<Lists>,
    any: AtomicBool,
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
        let mut lists = self.lists.lock();
        if !lists.waiting.contains(&index) {
            lists.waiting.push(index);
        }
        self.any.store(true, Release);
    }

    /// Whether any waits.
    pub fn any(&self) -> bool {
        self.any.load(Acquire)
    }

    /// Gives each waiting queue pair a turn. Those that are added meanwhile wait for the next call.
    pub fn each(&self, turn: impl FnMut(u16)) {
        // Mostly none waits, and every message asks.
        if !self.any() || !self.any.swap(false, AcqRel) {
            return;
        }
        let mut turns = {
            let mut lists = self.lists.lock();
            let spare = std::mem::take(&mut lists.spare);
            std::mem::replace(&mut lists.waiting, spare)
        };
        turns.drain(..).for_each(turn);
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
}

//! WRITEs whose data a rehearsal holds back: their senders know that they are done, and no processor sees them yet
//! (rules REH-90, REH-91).
//!
//! A revocation lets all of them land when nobody uses its key any more ([`Waiter::drained`]). A WRITE gets here while
//! its key is announced, so none comes later.
//!
//! [`Waiter::drained`]: transom_device::protection::Waiter::drained

use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use transom_device::execution::MemoryGone;
use transom_device::protection::Grant;

use crate::memory::{Copier, Destination, Source, shared_word};

/// The most WRITEs that are held back at a time.
const MOST: usize = 64;

/// A part of this process's memory, as a grant names it, through a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Accessed {
    /// The index of the queue pair.
    pub qp: u16,
    /// The first byte.
    pub place: u64,
    /// How many there are.
    pub length: u64,
    /// It is registered for relaxed ordering.
    pub is_relaxed: bool,
}

impl Accessed {
    /// Whether both name a byte.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.place < other.place.saturating_add(other.length)
            && other.place < self.place.saturating_add(self.length)
    }
}

/// A WRITE whose data is held back.
#[derive(Debug)]
pub struct Held {
    /// The bytes that it is for.
    pub to: Accessed,
    /// What they will hold.
    pub bytes: Box<[u8]>,
    /// Later WRITEs may be seen before it.
    pub is_passed: bool,
    /// When it lands at the latest.
    pub time: u64,
}

impl Held {
    /// Whether it must land before a later WRITE does.
    pub fn comes_before(&self, later: &Accessed) -> bool {
        let is_same = self.to.overlaps(later) && !(self.to.is_relaxed && later.is_relaxed);
        self.to.qp == later.qp && (!self.is_passed || is_same)
    }
}

/// All that is held back in a process, in the order in which it came.
#[derive(Debug, Default)]
pub(crate) struct HeldBack {
    all: Mutex<Vec<Held>>,
    count: AtomicUsize,
    /// Nothing is held back any more. Changed while `all` is locked.
    has_ended: AtomicBool,
    /// Who writes to memory holds this with others, and an atomic alone.
    writers: RwLock<()>,
}

/// The same with the means to let it land.
#[derive(Clone, Copy)]
pub struct HeldBackHere<'a> {
    pub(crate) all: &'a HeldBack,
    pub(crate) copier: &'a Copier,
}

impl HeldBackHere<'_> {
    /// While the answer lives, no atomic is between its two steps.
    pub fn beside_atomics(&self) -> RwLockReadGuard<'_, ()> {
        self.all.writers.read()
    }

    /// An atomic as two steps, a read and a write, with a pause between them: no WRITE and no other atomic comes
    /// between, but a processor's store may, and is lost. All accesses of peers come here meanwhile.
    ///
    /// # Errors
    ///
    /// [`MemoryGone`] if the memory is not mapped any more.
    pub fn atomic_in_two_steps(
        &self,
        at: &Grant<'_>,
        update: &mut dyn FnMut(u64) -> u64,
        pause: Duration,
    ) -> Result<u64, MemoryGone> {
        let _alone = self.all.writers.write();
        let shared = shared_word(at.place());
        let mut old = [0; 8];
        let old = match shared {
            Some(word) => word.load(SeqCst),
            None => {
                let from = Source::Program(at.place());
                self.copier.copy((&mut old[..]).into(), from, 8).map_err(|_| MemoryGone)?;
                u64::from_ne_bytes(old)
            }
        };
        let new = update(old);
        thread::sleep(pause);
        match shared {
            _ if new == old => {}
            Some(word) => word.store(new, SeqCst),
            None => {
                let to = Destination::Program(at.place());
                let new = new.to_ne_bytes();
                self.copier.copy(to, new[..].into(), 8).map_err(|_| MemoryGone)?;
            }
        }
        Ok(old)
    }

    /// Another atomic, which no one that is in two steps may be beside.
    pub fn alone<T>(&self, atomic: impl FnOnce() -> T) -> T {
        let _alone = self.all.writers.write();
        atomic()
    }

    /// Whether one more may be held back.
    pub fn has_room(&self) -> bool {
        self.all.count.load(Relaxed) < MOST
    }

    /// Holds one back. Its key is announced.
    pub fn hold(&self, held: Held) {
        let mut all = self.all.all.lock();
        all.push(held);
        self.all.count.store(all.len(), Relaxed);
        let has_ended = self.all.has_ended.load(Relaxed);
        drop(all);
        if has_ended {
            self.land(|_| true);
        }
    }

    /// The process exits, or its device fails: everything lands, from now on at once. Who sent it knows that it is
    /// done, and other processes may see the memory.
    pub fn end(&self) {
        let all = self.all.all.lock();
        self.all.has_ended.store(true, Relaxed);
        drop(all);
        self.land(|_| true);
    }

    /// Lets those land that are wanted, and before each one those that must come before it.
    pub fn land(&self, is_wanted: impl FnMut(&Held) -> bool) {
        let _beside = self.beside_atomics();
        let mut all = self.all.all.lock();
        let mut lands: Vec<_> = all.iter().map(is_wanted).collect();
        for later in (0..all.len()).rev() {
            if lands[later] {
                let before = all[..later].iter().map(|held| held.comes_before(&all[later].to));
                lands.iter_mut().zip(before).for_each(|(lands, before)| *lands |= before);
            }
        }
        let mut lands = lands.into_iter();
        all.retain(|held| {
            let lands = lands.next().unwrap_or_default();
            if lands {
                // If the program has unmapped it, there is nobody to tell.
                let (to, bytes) = (Destination::Program(held.to.place), &*held.bytes);
                let _ = self.copier.copy(to, bytes.into(), held.to.length);
            }
            !lands
        });
        self.all.count.store(all.len(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(to: &mut [u8], value: u8, is_relaxed: bool, is_passed: bool) -> Held {
        let (place, length) = (to.as_mut_ptr() as u64, to.len() as u64);
        let to = Accessed { qp: 1, place, length, is_relaxed };
        Held { to, bytes: vec![value; length as usize].into(), is_passed, time: 0 }
    }

    /// What two WRITEs leave in memory of four bytes when only the second one is let in, and then when both are.
    fn two(both: [Held; 2], memory: &[u8; 4]) -> [[u8; 4]; 2] {
        let (all, copier) = (HeldBack::default(), Copier::Kernel);
        let here = HeldBackHere { all: &all, copier: &copier };
        let second = both[1].bytes[0];
        both.into_iter().for_each(|it| here.hold(it));
        let seen = || {
            std::array::from_fn(|at| {
                // SAFETY: a byte of an array, which the kernel may have changed.
                unsafe { std::ptr::read_volatile(&raw const memory[at]) }
            })
        };
        here.land(|it| it.bytes[0] == second);
        let after_one = seen();
        here.land(|_| true);
        [after_one, seen()]
    }

    /// Rules: REH-90, REH-91
    #[test]
    fn a_write_lands_behind_those_that_may_not_be_passed() {
        for (is_relaxed, is_passed, shifted, after_one, at_last) in [
            (false, false, 2, [1, 1, 2, 2], [1, 1, 2, 2]),
            (false, true, 2, [0, 0, 2, 2], [1, 1, 2, 2]),
            (false, true, 1, [1, 2, 2, 0], [1, 2, 2, 0]),
            (true, true, 1, [0, 2, 2, 0], [1, 1, 2, 0]),
        ] {
            let mut memory = [0; 4];
            let first = held(&mut memory[..2], 1, is_relaxed, is_passed);
            let second = held(&mut memory[shifted..shifted + 2], 2, is_relaxed, is_passed);
            let seen = two([first, second], &memory);
            assert_eq!(seen, [after_one, at_last], "{is_relaxed} {is_passed} {shifted}");
        }
    }

    /// Rule: REH-90
    #[test]
    fn at_the_end_everything_lands_and_what_comes_later_does_at_once() {
        let mut memory = [0; 4];
        let first = held(&mut memory[..2], 1, false, false);
        let second = held(&mut memory[2..], 2, false, false);
        let (all, copier) = (HeldBack::default(), Copier::Kernel);
        let here = HeldBackHere { all: &all, copier: &copier };
        here.hold(first);
        here.end();
        here.hold(second);
        // SAFETY: an array, which the kernel may have changed.
        assert_eq!(unsafe { std::ptr::read_volatile(&raw const memory) }, [1, 1, 2, 2]);
    }

    /// Rule: REH-90
    #[test]
    fn queue_pairs_have_no_order() {
        let mut memory = [0; 4];
        let first = held(&mut memory[..2], 1, false, false);
        let mut second = held(&mut memory[1..3], 2, false, false);
        second.to.qp = 2;
        assert_eq!(two([first, second], &memory), [[0, 2, 2, 0], [1, 1, 2, 0]]);
    }
}

//! Hazard cells: who is using which key right now.
//!
//! An initiator announces the key it is about to use in a cell of its own, then reads the entry,
//! copies, and withdraws. Whoever revokes first marks the entry, then waits for the cells that name
//! it. Both sides are sequentially consistent, so either the initiator sees the mark or the revoker
//! sees the announcement. A cell whose process has died is cleared by the revoker; the generation in
//! the cell keeps it from clearing the announcement of a successor in the same slot.
//!
//! A process that moves memory holds all its cells for that time ([`Hazards::hold`]): whoever announces then
//! sees that and withdraws until the memory is in its new place, and whoever had announced is waited for.

use crate::sync::{AtomicU64, Ordering::*, total_order};

/// Process slots of a registry: the top byte of a queue pair number.
#[cfg(not(loom))]
pub const PROCESSES: usize = 256;
/// Process slots, few enough for the model checker.
#[cfg(loom)]
pub const PROCESSES: usize = 2;
/// Simultaneous uses by one process of one other's keys.
#[cfg(not(loom))]
pub const CELLS: usize = 16;
/// Cells, few enough for the model checker.
#[cfg(loom)]
pub const CELLS: usize = 4;

/// A process that announces: its slot in the registry and the generation of its stay there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcer {
    /// Slot in the registry.
    pub slot: u8,
    /// Low 23 bits count; distinguishes successive owners of the slot.
    pub generation: u32,
}

/// Which cells an announcement takes. A thread may hold one of each rank and asks for them in this
/// order only, so threads that wait for a free cell never wait in a circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// Memory a peer's request names.
    Remote,
    /// Local memory to be written.
    LocalWrite,
    /// Local memory to be read.
    LocalRead,
}

impl Rank {
    /// The share of a process's cells.
    const fn cells(self) -> core::ops::Range<usize> {
        match self {
            Self::Remote => 0..CELLS / 2,
            Self::LocalWrite => CELLS / 2..CELLS / 4 * 3,
            Self::LocalRead => CELLS / 4 * 3..CELLS,
        }
    }
}

/// What is being used: a slot of the key table, through a queue pair of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Slot in the key table, below 2^24.
    pub key_slot: u32,
    /// The target queue pair's index, the low 16 bits of its number.
    pub qp_index: u16,
}

const GENERATION: u64 = (1 << 23) - 1;

/// A wait asks in one round of so many whether the process waited for has died.
const ASKS_EVERY: u32 = 64;
/// The round that a long wait stays at: there it asks each time.
const LAST_ROUND: u32 = u32::MAX - ASKS_EVERY;
const _: () =
    assert!(asks(LAST_ROUND), "else whoever dies after so many rounds is waited for for ever");

/// Whether a wait asks in this round whether the process waited for has died.
const fn asks(round: u32) -> bool {
    round % ASKS_EVERY == ASKS_EVERY - 1
}

/// The round behind this one.
const fn next(round: u32) -> u32 {
    if round < LAST_ROUND { round + 1 } else { LAST_ROUND }
}

fn pack(announcer: Announcer, used: Use) -> u64 {
    1 << 63
        | (u64::from(announcer.generation) & GENERATION) << 40
        | u64::from(used.qp_index) << 24
        | u64::from(used.key_slot) & 0xff_ffff
}

/// The process whose memory is held, as one number that is not zero.
fn pack_holder(Announcer { slot, generation }: Announcer) -> u64 {
    pack(Announcer { slot, generation }, Use { key_slot: u32::from(slot), qp_index: 0 })
}

fn unpack_holder(held: u64) -> Option<Announcer> {
    unpack(held).map(|(generation, used)| Announcer { slot: used.key_slot as u8, generation })
}

fn unpack(cell: u64) -> Option<(u32, Use)> {
    (cell >> 63 == 1).then(|| {
        let generation = (cell >> 40 & GENERATION) as u32;
        (generation, Use { key_slot: (cell & 0xff_ffff) as u32, qp_index: (cell >> 24) as u16 })
    })
}

/// How a caller waits for somebody else's step; the host's business.
pub trait Waiter {
    /// Called each time around a waiting loop; `round` counts from zero. Spins first, yields later.
    /// `on` is the process waited for, if it is known.
    fn pause(&self, round: u32, on: Option<Announcer>);

    /// Called when a wait that took at least one round is over.
    fn resumed(&self);

    /// Whether the process has died or left its slot.
    fn is_gone(&self, process: Announcer) -> bool;
}

/// The cells of one process that announces, on lines of memory of their own: it alone writes there as long as
/// it lives, for each access.
#[repr(C, align(128))]
struct Cells([AtomicU64; CELLS]);

/// All cells for the keys of one process.
#[repr(C)]
pub struct Hazards {
    /// Which process slots have ever attached: only their cells are looked at.
    attached: [AtomicU64; PROCESSES.div_ceil(64)],
    /// Who lets nobody announce for the time being; zero if nobody does.
    held: AtomicU64,
    cells: [Cells; PROCESSES],
}

impl Default for Hazards {
    fn default() -> Self {
        Self {
            attached: core::array::from_fn(|_| AtomicU64::new(0)),
            held: AtomicU64::new(0),
            cells: core::array::from_fn(|_| Cells(core::array::from_fn(|_| AtomicU64::new(0)))),
        }
    }
}

impl Hazards {
    /// Lets a process announce here. It clears what a dead predecessor left in its cells.
    pub fn attach(&self, announcer: Announcer) {
        let slot = usize::from(announcer.slot) % PROCESSES;
        for cell in &self.cells[slot].0 {
            let value = cell.load(SeqCst);
            if let Some((generation, _)) = unpack(value)
                && u64::from(generation) != u64::from(announcer.generation) & GENERATION
            {
                let _ = cell.compare_exchange(value, 0, SeqCst, Relaxed);
            }
        }
        self.attached[slot / 64].fetch_or(1 << (slot % 64), SeqCst);
    }

    /// Forgets a process that has died.
    pub fn detach(&self, announcer: Announcer) {
        for cell in &self.cells[usize::from(announcer.slot) % PROCESSES].0 {
            let value = cell.load(SeqCst);
            if unpack(value).is_some_and(|(generation, _)| {
                u64::from(generation) == u64::from(announcer.generation) & GENERATION
            }) {
                let _ = cell.compare_exchange(value, 0, SeqCst, Relaxed);
            }
        }
    }

    /// Announces a use; it holds until the announcement is dropped.
    #[inline(always)]
    pub fn announce<'m>(
        &'m self,
        announcer: Announcer,
        rank: Rank,
        used: Use,
        waiter: &dyn Waiter,
    ) -> Announcement<'m> {
        let value = pack(announcer, used);
        let cells = &self.cells[usize::from(announcer.slot) % PROCESSES].0[rank.cells()];
        match self.try_announce(&cells[..1], value) {
            Some(announcement) => announcement,
            None => self.announce_later(cells, value, waiter),
        }
    }

    /// Announces as soon as a cell is free and nobody holds.
    #[cold]
    fn announce_later<'m>(
        &'m self,
        cells: &'m [AtomicU64],
        value: u64,
        waiter: &dyn Waiter,
    ) -> Announcement<'m> {
        let mut round = 0;
        loop {
            if let Some(announcement) = self.try_announce(cells, value) {
                if round > 0 {
                    waiter.resumed();
                }
                return announcement;
            }
            loop {
                self.wait_to_announce(round, waiter);
                round = next(round);
                if self.held.load(SeqCst) == 0 {
                    break;
                }
            }
        }
    }

    /// A round of waiting for a free cell, or for whoever lets nobody announce.
    fn wait_to_announce(&self, round: u32, waiter: &dyn Waiter) {
        let held = self.held.load(SeqCst);
        let holder = unpack_holder(held);
        if asks(round) && holder.is_some_and(|holder| waiter.is_gone(holder)) {
            let _ = self.held.compare_exchange(held, 0, SeqCst, Relaxed);
        }
        waiter.pause(round, holder);
    }

    /// Lets nobody announce until the answer is dropped, when all announcements that stand have been
    /// withdrawn. `None` if one still stands after so many rounds of waiting, or somebody else holds:
    /// whoever stands there may itself wait for something, so the caller lets all go on and tries again.
    pub fn hold(&self, owner: Announcer, rounds: u32, waiter: &dyn Waiter) -> Option<Hold<'_>> {
        self.held.compare_exchange(0, pack_holder(owner), SeqCst, Relaxed).ok()?;
        let hold = Hold { held: &self.held };
        self.wait_for_all(|_| true, rounds, waiter).then_some(hold)
    }

    /// Announces in one of these cells, if one is free and nobody holds.
    #[inline]
    fn try_announce<'m>(&self, cells: &'m [AtomicU64], value: u64) -> Option<Announcement<'m>> {
        let cell =
            cells.iter().find(|cell| cell.compare_exchange(0, value, SeqCst, Relaxed).is_ok())?;
        total_order();
        let announcement = Announcement { cell };
        // Who holds looks for announcements after it has said so: either sees the other.
        (self.held.load(SeqCst) == 0).then_some(announcement)
    }

    /// Waits until no announcement matches. The caller has already marked what it revokes, so no
    /// new matching use can begin.
    pub fn drain(&self, matches: impl Fn(Use) -> bool, waiter: &dyn Waiter) {
        self.wait_for_all(matches, u32::MAX, waiter);
    }

    /// Waits until no announcement matches, for each no more than so many rounds; false if one still
    /// stands then.
    fn wait_for_all(
        &self,
        matches: impl Fn(Use) -> bool,
        rounds: u32,
        waiter: &dyn Waiter,
    ) -> bool {
        total_order();
        for (word, attached) in self.attached.iter().enumerate() {
            let mut bits = attached.load(SeqCst);
            while bits != 0 {
                let slot = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let cells = &self.cells[slot].0;
                if !cells.iter().all(|cell| wait_for(cell, slot as u8, &matches, rounds, waiter)) {
                    return false;
                }
            }
        }
        true
    }
}

/// Waits until the announcement in a cell does not match; false if it does after so many rounds.
fn wait_for(
    cell: &AtomicU64,
    slot: u8,
    matches: &impl Fn(Use) -> bool,
    rounds: u32,
    waiter: &dyn Waiter,
) -> bool {
    let mut round = 0;
    let mut over = true;
    loop {
        let value = cell.load(SeqCst);
        let named = unpack(value).filter(|(_, used)| matches(*used));
        let Some((generation, _)) = named else { break };
        if round >= rounds {
            over = false;
            break;
        }
        let process = Announcer { slot, generation };
        if asks(round) && waiter.is_gone(process) {
            let _ = cell.compare_exchange(value, 0, SeqCst, Relaxed);
            break;
        }
        waiter.pause(round, Some(process));
        // For ever, if `rounds` is the most there can be.
        round = next(round);
    }
    if round > 0 {
        waiter.resumed();
    }
    over
}

/// A standing announcement; dropping it withdraws it.
pub struct Announcement<'m> {
    cell: &'m AtomicU64,
}

impl Drop for Announcement<'_> {
    #[inline]
    fn drop(&mut self) {
        self.cell.store(0, Release);
    }
}

/// Nobody can announce while it stands; dropping it ends that.
pub struct Hold<'m> {
    held: &'m AtomicU64,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.held.store(0, Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Notes whether it waits; the process waited for has died.
    #[derive(Default)]
    struct Bereft {
        paused: Cell<u32>,
        waits: Cell<bool>,
    }

    impl Waiter for Bereft {
        fn pause(&self, _round: u32, _on: Option<Announcer>) {
            self.paused.set(self.paused.get() + 1);
            self.waits.set(true);
        }

        fn resumed(&self) {
            self.waits.set(false);
        }

        fn is_gone(&self, _process: Announcer) -> bool {
            true
        }
    }

    #[test]
    fn a_wait_for_a_process_that_has_died_is_over() {
        let (hazards, waiter) = (Box::<Hazards>::default(), Bereft::default());
        let dead = Announcer { slot: 3, generation: 9 };
        hazards.attach(dead);
        let used = Use { key_slot: 7, qp_index: 1 };
        std::mem::forget(hazards.announce(dead, Rank::Remote, used, &waiter));
        hazards.drain(|_| true, &waiter);
        assert!(waiter.paused.get() > 0);
        assert!(!waiter.waits.get(), "it says that it waits");
    }

    #[test]
    fn what_a_process_held_that_has_died_is_free() {
        let (hazards, waiter) = (Box::<Hazards>::default(), Bereft::default());
        let dead = Announcer { slot: 200, generation: 9 };
        std::mem::forget(hazards.hold(dead, 0, &waiter).expect("nobody has announced"));
        let used = Use { key_slot: 7, qp_index: 1 };
        hazards.announce(Announcer { slot: 3, generation: 1 }, Rank::Remote, used, &waiter);
        assert!(!waiter.waits.get(), "it says that it waits");
    }

    #[test]
    fn nobody_is_held_up_for_long_by_one_who_stays() {
        let (hazards, waiter) = (Box::<Hazards>::default(), Bereft::default());
        let one = Announcer { slot: 3, generation: 1 };
        hazards.attach(one);
        let used = Use { key_slot: 7, qp_index: 1 };
        let stays = hazards.announce(one, Rank::Remote, used, &waiter);
        assert!(hazards.hold(one, 5, &waiter).is_none());
        assert_eq!(waiter.paused.get(), 5);
        drop(stays);
        let hold = hazards.hold(one, 5, &waiter).expect("nobody is there");
        assert!(hazards.hold(one, 5, &waiter).is_none(), "one at a time");
        drop(hold);
        hazards.announce(one, Rank::LocalRead, used, &waiter);
        assert_eq!(waiter.paused.get(), 5);
    }
}

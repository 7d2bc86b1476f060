//! Hazard cells: which keys are in use right now, and by which process.
//!
//! An initiator announces the key it is about to use in a cell of its own, then reads the entry, copies, and withdraws.
//! A thread that revokes first marks the entry, then waits for the cells that name it. Both sides are sequentially
//! consistent, so either the initiator sees the mark or the revoker sees the announcement. The revoker clears a cell
//! whose process has died. The generation in the cell keeps it from clearing the announcement of a successor in the
//! same slot.

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Announcer {
    /// Slot in the registry.
    pub slot: u8,
    /// Low 23 bits count; distinguishes successive owners of the slot.
    pub generation: u32,
}

/// The cells for an announcement. A thread may hold one of each rank in a segment, and asks for them in this order only:
/// those in another process's segment before those in its own. So threads that wait for a free cell never wait in a
/// circle.
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

/// A use: a slot of the key table, through a queue pair of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Slot in the key table, below 2^24.
    pub key_slot: u32,
    /// The target queue pair's index, the low 16 bits of its number.
    pub qp_index: u16,
}

impl Use {
    /// All that is carried out for a queue pair, by whatever keys. The slot is one that no table has.
    pub const fn of_queue_pair(qp_index: u16) -> Self {
        Self { key_slot: 0xff_ffff, qp_index }
    }
}

const GENERATION: u64 = (1 << 23) - 1;

/// A wait asks in one round of so many whether the process waited for has died.
const ASKS_EVERY: u32 = 64;
/// The round that a long wait stays at: there it asks each time.
const LAST_ROUND: u32 = u32::MAX - ASKS_EVERY;
const _: () = assert!(
    asks(LAST_ROUND),
    "else a wait for a process that dies after so many rounds never ends"
);

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

fn unpack(cell: u64) -> Option<(u32, Use)> {
    (cell >> 63 == 1).then(|| {
        let generation = (cell >> 40 & GENERATION) as u32;
        (generation, Use { key_slot: (cell & 0xff_ffff) as u32, qp_index: (cell >> 24) as u16 })
    })
}

/// How a caller waits for somebody else's step. The host decides this.
pub trait Waiter {
    /// Called each time around a waiting loop; `round` counts from zero. Spins first, yields later.
    /// `on` is the process waited for, if it is known.
    fn pause(&self, round: u32, on: Option<Announcer>);

    /// Called when a wait that took at least one round is over.
    fn resumed(&self);

    /// Whether the process has died or left its slot.
    fn is_gone(&self, process: Announcer) -> bool;

    /// Nobody uses what is being revoked any more. What is carried out but not in memory yet gets there now.
    fn drained(&self) {}
}

/// The cells of one announcing process, on cache lines of their own: for as long as it lives, only this process writes
/// there, for each access.
#[repr(C, align(128))]
struct Cells([AtomicU64; CELLS]);

/// All cells for the keys of one process.
#[repr(C)]
pub struct Hazards {
    /// Which process slots have ever attached: only their cells are looked at.
    attached: [AtomicU64; PROCESSES.div_ceil(64)],
    cells: [Cells; PROCESSES],
}

impl Default for Hazards {
    fn default() -> Self {
        Self {
            attached: core::array::from_fn(|_| AtomicU64::new(0)),
            cells: core::array::from_fn(|_| Cells(core::array::from_fn(|_| AtomicU64::new(0)))),
        }
    }
}

impl Hazards {
    /// Lets a process announce here. It clears the cells of a dead predecessor.
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

    /// The process slots that have ever attached.
    pub fn attached(&self) -> impl Iterator<Item = u8> {
        let has = |slot: &u8| {
            let slot = usize::from(*slot);
            slot < PROCESSES && self.attached[slot / 64].load(SeqCst) >> (slot % 64) & 1 == 1
        };
        (0..=u8::MAX).filter(has)
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

    /// Announces as soon as a cell is free.
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
            waiter.pause(round, None);
            round = next(round);
        }
    }

    /// Announces in one of these cells, if one is free.
    #[inline]
    fn try_announce<'m>(&self, cells: &'m [AtomicU64], value: u64) -> Option<Announcement<'m>> {
        let cell =
            cells.iter().find(|cell| cell.compare_exchange(0, value, SeqCst, Relaxed).is_ok())?;
        total_order();
        Some(Announcement { cell })
    }

    /// Waits until no announcement matches. The caller has already marked the object that it revokes, so no new
    /// matching use can begin.
    pub fn drain(&self, matches: impl Fn(Use) -> bool, waiter: &dyn Waiter) {
        total_order();
        for (word, attached) in self.attached.iter().enumerate() {
            let mut bits = attached.load(SeqCst);
            while bits != 0 {
                let slot = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                for cell in &self.cells[slot].0 {
                    wait_for(cell, slot as u8, &matches, waiter);
                }
            }
        }
    }
}

/// Waits until the announcement in a cell does not match.
fn wait_for(cell: &AtomicU64, slot: u8, matches: &impl Fn(Use) -> bool, waiter: &dyn Waiter) {
    let mut round = 0;
    loop {
        let value = cell.load(SeqCst);
        let named = unpack(value).filter(|(_, used)| matches(*used));
        let Some((generation, _)) = named else { break };
        let process = Announcer { slot, generation };
        if asks(round) && waiter.is_gone(process) {
            let _ = cell.compare_exchange(value, 0, SeqCst, Relaxed);
            break;
        }
        waiter.pause(round, Some(process));
        round = next(round);
    }
    if round > 0 {
        waiter.resumed();
    }
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
}

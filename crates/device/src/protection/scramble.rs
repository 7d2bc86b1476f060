//! Unpredictable indexes over a dense table.
//!
//! Slots are handed out densely, so that a million windows take a million entries and no more. The index that a peer
//! sees is the slot under a secret permutation of 24 bits: a four-round Feistel network whose round functions are
//! tables of true random numbers, drawn once per process. If you know one key, you learn nothing useful about the next
//! (ReDMArk, USENIX Security 2021, showed the danger of predictable keys).

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};

const HALF_BITS: u32 = 12;
const HALF: u32 = (1 << HALF_BITS) - 1;

/// Lookups that are remembered: more keys than these are seldom in use at a time.
const REMEMBERED: usize = 64;

/// A secret permutation of the 24-bit indexes; position-independent, so it can be shared.
#[repr(C)]
pub struct Scramble {
    rounds: [[AtomicU16; 1 << HALF_BITS]; 4],
}

impl Scramble {
    /// How many bytes of randomness [`Scramble::seed`] takes.
    pub const SEED_BYTES: usize = (4 * 2) << HALF_BITS;

    /// Fills the round functions; before any key is handed out, never after.
    pub fn seed(&self, random: &[u8; Self::SEED_BYTES]) {
        let cells = self.rounds.iter().flatten();
        for (cell, bytes) in cells.zip(random.chunks_exact(2)) {
            cell.store(u16::from_le_bytes([bytes[0], bytes[1]]), Relaxed);
        }
    }

    /// The index that stands for a slot below 2^24.
    pub fn index_of(&self, slot: u32) -> u32 {
        let (mut left, mut right) = (slot >> HALF_BITS & HALF, slot & HALF);
        for round in &self.rounds {
            (left, right) = (right, left ^ Self::mix(round, right));
        }
        left << HALF_BITS | right
    }

    /// The slot that an index stands for.
    #[inline(never)]
    pub fn slot_of(&self, index: u32) -> u32 {
        let (mut left, mut right) = (index >> HALF_BITS & HALF, index & HALF);
        for round in self.rounds.iter().rev() {
            (left, right) = (right ^ Self::mix(round, left), left);
        }
        left << HALF_BITS | right
    }

    #[inline]
    fn mix(round: &[AtomicU16; 1 << HALF_BITS], half: u32) -> u32 {
        u32::from(round[(half & HALF) as usize].load(Relaxed)) & HALF
    }

    /// A permutation from a small seed, for tests and simulations: not secret.
    pub fn for_simulation(seed: u64) -> Box<Self> {
        let mut state = seed | 1;
        let mut random = [0; Self::SEED_BYTES];
        for byte in &mut random {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 56) as u8;
        }
        let scramble = Box::new(Self {
            rounds: core::array::from_fn(|_| core::array::from_fn(|_| AtomicU16::new(0))),
        });
        scramble.seed(&random);
        scramble
    }
}

/// The slots of the last indexes, in one process's view of one permutation. Four table look-ups, each of which waits
/// for the one before, are a good part of a small access.
pub struct RecentSlots {
    slots: [AtomicU64; REMEMBERED],
    /// By which bits L_Keys differ from keys.
    pub(super) l_keys: u32,
}

impl Default for RecentSlots {
    fn default() -> Self {
        Self::differing(0)
    }
}

impl RecentSlots {
    /// For a table whose L_Keys differ from its keys by these bits of the low byte.
    pub const fn differing(l_keys: u32) -> Self {
        Self { slots: [const { AtomicU64::new(0) }; REMEMBERED], l_keys }
    }

    /// In an entry: there is one. The low half is the index, the high half its slot.
    const TAKEN: u64 = 1 << 31;

    /// The slot that an index stands for in the permutation that this always goes with.
    #[inline(always)]
    pub fn slot_of(&self, scramble: &Scramble, index: u32) -> u32 {
        let entry = &self.slots[index as usize % REMEMBERED];
        let (known, name) = (entry.load(Relaxed), u64::from(index) | Self::TAKEN);
        if known & u64::from(u32::MAX) == name {
            return (known >> 32) as u32;
        }
        let slot = scramble.slot_of(index);
        entry.store(u64::from(slot) << 32 | name, Relaxed);
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_is_remembered_is_that_of_its_own_index() {
        let (scramble, recent) = (Scramble::for_simulation(7), RecentSlots::default());
        // Neighbours share an entry with those of the next round; some come again at once.
        for index in (0..4096).flat_map(|index| [index, index, index ^ 64, 0]) {
            assert_eq!(recent.slot_of(&scramble, index), scramble.slot_of(index), "{index}");
        }
    }

    #[test]
    fn every_slot_comes_back_from_its_index() {
        let scramble = Scramble::for_simulation(7);
        let mut seen = vec![false; 1 << 24];
        for slot in 0..1 << 20 {
            let index = scramble.index_of(slot);
            assert_eq!(scramble.slot_of(index), slot);
            assert!(!std::mem::replace(&mut seen[index as usize], true), "index {index} twice");
        }
    }
}

//! Hands out the slots of a key table. Only its own process does so.

use std::collections::VecDeque;

use super::{Key, KeyTable};
use crate::protection::entry::{CLOSED, Kind, Meta, State};
use crate::sync::Ordering::SeqCst;

/// Slots to hand out and to take back. Freed slots wait in line, so that a stale key finds its
/// index unused for as long as possible (rule DR-16).
pub struct KeyOwner {
    freed: VecDeque<u32>,
    /// Slots below this one have been handed out before.
    fresh: u32,
    /// Slots below this one have memory behind them.
    open: u32,
    /// Slots of the whole table.
    capacity: u32,
}

/// No slot is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exhausted {
    /// Put memory behind more of the table, say so with [`KeyOwner::opened`], and ask again.
    #[error("all of the {open} slots with memory are taken")]
    NeedsMemory {
        /// Slots that have memory now.
        open: u32,
    },
    /// The table is full.
    #[error("the key table is full")]
    Full,
}

/// Prefer fresh slots until this many freed ones wait.
const REST: usize = 1024;

impl KeyOwner {
    /// The owner of a table of `capacity` slots, of which the first `open` have memory.
    pub fn new(capacity: u32, open: u32) -> Self {
        Self { freed: VecDeque::new(), fresh: 0, open, capacity }
    }

    /// Says that the first `open` slots have memory now.
    pub fn opened(&mut self, open: u32) {
        self.open = open.min(self.capacity);
    }

    /// Takes a slot and the first key for it. `random` makes the key byte unpredictable. On a slot used before, it
    /// always differs from the last one (rule DR-16).
    pub fn take(
        &mut self,
        table: &KeyTable<'_>,
        kind: Kind,
        random: u8,
    ) -> Result<(u32, Key), Exhausted> {
        let slot = self.choose()?;
        let last = table.entry(slot).load().byte;
        let mut key = table.key_of(slot, last.wrapping_add(1).wrapping_add(random % 255));
        // Zero is no key, and the next byte may be the last key's.
        while key.0 == 0 || key.byte() == last {
            key = key.next();
        }
        Ok(Self::given(table, kind, slot, key))
    }

    /// Whether a slot waits.
    pub fn has_freed(&self) -> bool {
        !self.freed.is_empty()
    }

    /// Takes the slot that came back last, and its last key, for a rehearsal of the most hostile adapter (rule REH-24).
    /// `None` if none waits.
    pub fn take_again(&mut self, table: &KeyTable<'_>, kind: Kind) -> Option<(u32, Key)> {
        let slot = *self.freed.back()?;
        let key = table.key_of(slot, table.entry(slot).load().byte);
        // Zero is no key.
        if key.0 == 0 {
            return None;
        }
        self.freed.pop_back();
        Some(Self::given(table, kind, slot, key))
    }

    fn given(table: &KeyTable<'_>, kind: Kind, slot: u32, key: Key) -> (u32, Key) {
        let entry = table.entry(slot);
        // Only a region may be held by windows; a bind that names this slot by mistake right now
        // has its count kept, and takes it back.
        entry.windows.fetch_or(CLOSED, SeqCst);
        entry.publish(Meta {
            byte: key.byte(),
            state: State::Vacant,
            kind,
            access: crate::Access::empty(),
        });
        (slot, key)
    }

    fn choose(&mut self) -> Result<u32, Exhausted> {
        if self.freed.len() > REST || self.fresh == self.capacity {
            return self.freed.pop_front().ok_or(Exhausted::Full);
        }
        if self.fresh == self.open {
            return Err(Exhausted::NeedsMemory { open: self.open });
        }
        // Room for all slots to come back, which they do where nothing may fail.
        let away = self.fresh as usize + 1 - self.freed.len();
        self.freed.try_reserve(away).map_err(|_| Exhausted::Full)?;
        self.fresh += 1;
        Ok(self.fresh - 1)
    }

    /// Takes a slot back.
    pub fn give_back(&mut self, slot: u32) {
        self.freed.push_back(slot);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::protection::{Hazards, KeyEntry, RecentSlots, Scramble};
    use crate::sync::AtomicU32;

    /// Rule: REH-24
    #[test]
    fn a_slot_that_is_taken_again_has_its_last_key() {
        let scramble = Scramble::for_simulation(1);
        let (open, recent, hazards) =
            (AtomicU32::new(2), RecentSlots::default(), Box::<Hazards>::default());
        let entries = [(); 2].map(|()| KeyEntry::default());
        let table = KeyTable::new(&entries, &open, &scramble, &recent, &hazards);
        let mut owner = KeyOwner::new(2, 2);
        assert!(!owner.has_freed());
        assert_eq!(owner.take_again(&table, Kind::Region), None);
        let taken = owner.take(&table, Kind::Region, 3).unwrap();
        owner.give_back(taken.0);
        assert_eq!(owner.take_again(&table, Kind::Region), Some(taken));
        assert_eq!(owner.take_again(&table, Kind::Region), None);
    }

    /// Whatever is drawn, also for the index whose keys may not all be used: zero is none.
    /// Rules: DR-16
    #[test]
    fn a_slot_that_is_used_again_has_another_key() {
        let scramble = Scramble::for_simulation(1);
        // Nothing is mixed, so that an index is its slot.
        scramble.seed(&[0; Scramble::SEED_BYTES]);
        let (open, recent, hazards) =
            (AtomicU32::new(2), RecentSlots::default(), Box::<Hazards>::default());
        for slot in 0..2 {
            for (last, random) in
                (0..=u8::MAX).flat_map(|last| (0..=u8::MAX).map(move |it| (last, it)))
            {
                let entries = [(); 2].map(|()| KeyEntry::default());
                let table = KeyTable::new(&entries, &open, &scramble, &recent, &hazards);
                let mut owner = KeyOwner::new(2, 2);
                owner.fresh = 2;
                owner.give_back(slot);
                let meta = Meta { byte: last, ..entries[slot as usize].load() };
                entries[slot as usize].publish(meta);
                let taken = owner.take(&table, Kind::Region, random).expect("a slot");
                assert_eq!((taken.0, table.slot_of(taken.1)), (slot, Some(slot)));
                assert_ne!(taken.1.byte(), last, "slot {slot}, random {random}");
                assert_ne!(taken.1, Key(0));
            }
        }
    }
}

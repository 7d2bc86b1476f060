//! The key table of one process, as its own threads and other processes see it.

use super::{
    Announcement, Announcer, Attempt, Hazards, Key, KeyEntry, Place, Rank, Reason, RecentSlots,
    Refusal, Scramble, Snapshot, Use, Waiter, decide,
};
use crate::operation::Subject;
use crate::sync::{AtomicU32, Ordering::*};

/// A view of a key table wherever it lies: in this process or in memory shared with another.
#[derive(Clone, Copy)]
pub struct KeyTable<'m> {
    entries: &'m [KeyEntry],
    open: &'m AtomicU32,
    scramble: &'m Scramble,
    recent: &'m RecentSlots,
    hazards: &'m Hazards,
}

impl<'m> KeyTable<'m> {
    /// A table over its parts. `open` says how many of the entries have memory behind them; the
    /// rest is not touched. `recent` is the caller's own, and goes with this `scramble` alone.
    pub fn new(
        entries: &'m [KeyEntry],
        open: &'m AtomicU32,
        scramble: &'m Scramble,
        recent: &'m RecentSlots,
        hazards: &'m Hazards,
    ) -> Self {
        Self { entries, open, scramble, recent, hazards }
    }

    /// The announcements for this table's keys.
    pub fn hazards(&self) -> &'m Hazards {
        self.hazards
    }

    /// The key a peer uses for an object in `slot`.
    pub fn key_of(&self, slot: u32, byte: u8) -> Key {
        Key::new(self.scramble.index_of(slot), byte)
    }

    /// The slot a key's index stands for, if the table reaches that far.
    #[inline]
    pub fn slot_of(&self, key: Key) -> Option<u32> {
        let slot = self.recent.slot_of(self.scramble, key.index());
        let open = self.open.load(Acquire).min(self.entries.len() as u32);
        (slot < open).then_some(slot)
    }

    /// The entry of a slot that [`KeyTable::slot_of`] gave.
    #[inline]
    pub fn entry(&self, slot: u32) -> &'m KeyEntry {
        &self.entries[slot as usize]
    }

    /// What a key's index names right now, for explanations.
    pub fn look_up(&self, key: Key) -> Snapshot {
        self.slot_of(key).map_or(Snapshot::VACANT, |slot| self.entry(slot).snapshot())
    }

    /// Decides `attempt`. While the grant lives, nobody can take the key away: revoking waits.
    #[inline]
    pub fn grant(
        &self,
        attempt: Attempt,
        announcer: Announcer,
        waiter: &dyn Waiter,
    ) -> Result<Grant<'m>, Refusal> {
        let Some(slot) = self.slot_of(attempt.key) else {
            return Err(Refusal::without_object(Reason::UnknownIndex, attempt));
        };
        let used = Use { key_slot: slot, qp_index: attempt.qp as u16 };
        let rank = match attempt.operation.needs().subject {
            Subject::LocalDestination => Rank::LocalWrite,
            Subject::LocalSource => Rank::LocalRead,
            Subject::RemoteMemory
            | Subject::Receive
            | Subject::RemoteWindow
            | Subject::Binding
            | Subject::LocalWindow => Rank::Remote,
        };
        let announcement = self.hazards.announce(announcer, rank, used, waiter);
        let object = self.entry(slot).snapshot();
        match decide(&object, &attempt) {
            Ok(place) => {
                let address = match place {
                    Place::Memory(address) => address,
                    Place::Null => NOWHERE,
                };
                Ok(Grant { address, length: attempt.length, _announcement: announcement })
            }
            Err(reason) => Err(Refusal { reason, attempt, object }),
        }
    }

    /// Waits until nobody uses the key of `slot`; the caller has made it invalid before.
    pub(super) fn drain_key(&self, slot: u32, waiter: &dyn Waiter) {
        self.hazards.drain(|used| used.key_slot == slot, waiter);
    }

    /// Waits until nobody acts through the queue pair; the caller has closed it before.
    pub fn drain_queue_pair(&self, qp_index: u16, waiter: &dyn Waiter) {
        self.hazards.drain(|used| used.qp_index == qp_index, waiter);
    }
}

/// The address of a grant without memory. No process has memory at the very end of its addresses; a
/// number is half the size of a [`Place`], and every access carries it about.
const NOWHERE: u64 = u64::MAX;

/// Leave to touch one range of a process's memory, until it is dropped.
pub struct Grant<'m> {
    address: u64,
    length: u64,
    _announcement: Announcement<'m>,
}

impl Grant<'_> {
    /// First address, in the memory of the process whose table granted it; for a
    /// [null](Grant::is_null) grant one where no program has memory.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Whether there is no memory: reads give zeros, and what is written is discarded. Only local
    /// buffers can be null, since a null region has no remote rights (rule MR-36).
    #[inline]
    pub fn is_null(&self) -> bool {
        self.address == NOWHERE
    }

    /// Bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Leave for the first `length` bytes only.
    #[must_use]
    pub fn narrow(mut self, length: u64) -> Self {
        self.length = self.length.min(length);
        self
    }
}

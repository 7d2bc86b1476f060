//! The key table of one process, as its own threads and other processes see it.

use super::entry::Meta;
use super::{
    Announcement, Announcer, Attempt, Hazards, Key, KeyEntry, Place, Rank, Reason, RecentSlots,
    Refusal, SHARED, Scramble, Snapshot, State, Use, Waiter, decide,
};
use crate::Access;
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

    /// The key that an L_Key stands for: the same, if the table's owner has not chosen otherwise (rule REH-26).
    #[inline(always)]
    pub fn local_key(self, l_key: u32) -> Key {
        Key(l_key ^ self.recent.l_keys)
    }

    /// The slot a key's index stands for, if the table reaches that far.
    #[inline]
    pub fn slot_of(&self, key: Key) -> Option<u32> {
        self.find(key).map(|(slot, _)| slot)
    }

    #[inline(always)]
    fn find(self, key: Key) -> Option<(u32, &'m KeyEntry)> {
        let slot = self.recent.slot_of(self.scramble, key.index());
        let entry = self.entries.get(slot as usize)?;
        (slot < self.open.load(Acquire)).then_some((slot, entry))
    }

    /// The entry of a slot that [`KeyTable::slot_of`] gave.
    #[inline]
    pub fn entry(&self, slot: u32) -> &'m KeyEntry {
        &self.entries[slot as usize]
    }

    /// The object that a key's index names right now, for explanations.
    pub fn look_up(self, key: Key) -> Snapshot {
        self.find(key).map_or(Snapshot::VACANT, |(_, entry)| entry.snapshot())
    }

    /// Whether the memory that a key names is registered for relaxed ordering. A window has this of its region.
    pub fn is_relaxed(self, key: Key) -> bool {
        let of_region = |entry: &KeyEntry| match entry.load() {
            Meta { kind, .. } if kind.is_region() => Some(entry.load().access),
            _ => Some(self.entries.get(entry.parent.load(Relaxed) as usize)?.load().access),
        };
        let access = self.find(key).and_then(|(_, entry)| of_region(entry));
        access.is_some_and(|access| access.contains(Access::RELAXED_ORDERING))
    }

    /// Withholds these rights of the object with this key, as far as it grants them, until they are given back or the
    /// key gets new ones. Whether there is such an object.
    pub fn withhold(self, key: Key, rights: Access) -> bool {
        self.change_rights(key, |access| access.withholding(rights))
    }

    /// Gives these rights back, as far as they are withheld. Others than were granted are never given.
    pub fn give_back(self, key: Key, rights: Access) -> bool {
        self.change_rights(key, |access| access.giving_back(rights))
    }

    /// The rights are in the word that says that the object is there, so nobody's change of it is lost.
    fn change_rights(self, key: Key, change: impl Fn(Access) -> Access) -> bool {
        let Some((_, entry)) = self.find(key) else { return false };
        loop {
            let old = entry.load();
            if old.state != State::Valid || old.byte != key.byte() {
                return false;
            }
            let new = Meta { access: change(old.access), ..old };
            if new == old || entry.exchange(old, new) {
                return true;
            }
        }
    }

    /// Notes when the object of a slot ended, which nobody has taken since; for explanations.
    pub fn note_end(self, slot: u32, now: u64) {
        self.entries[slot as usize].since.store(now, Relaxed);
    }

    /// The content of the first slots, each with the key that names it now, for explanations.
    pub fn seen(self, most: usize) -> impl Iterator<Item = (Key, Snapshot)> {
        self.slots(most).map(move |(slot, entry)| {
            let object = entry.snapshot();
            let access = object.access.giving_back(Access::REMOTE);
            (self.key_of(slot, object.byte), Snapshot { access, ..object })
        })
    }

    /// The windows that are bound to the region of a slot, among the first slots, for explanations.
    pub fn windows_on(self, region: u32, most: usize) -> impl Iterator<Item = (Key, Snapshot)> {
        let on_it = move |entry: &KeyEntry| entry.parent.load(Relaxed) == region;
        let bound = |object: &Snapshot| object.state == State::Valid && !object.kind.is_region();
        self.slots(most).filter_map(move |(slot, entry)| {
            let object = entry.snapshot();
            let found = bound(&object) && on_it(entry);
            found.then(|| (self.key_of(slot, object.byte), object))
        })
    }

    fn slots(self, most: usize) -> impl Iterator<Item = (u32, &'m KeyEntry)> {
        let open = self.open.load(Acquire) as usize;
        (0..).zip(self.entries.iter().take(open.min(most)))
    }

    /// Decides `attempt`. While the grant lives, nobody can take the key away: revoking waits.
    ///
    /// Inlined into its callers: each knows the operation, and with it half of the decision.
    #[inline(always)]
    pub fn grant(
        self,
        attempt: Attempt,
        announcer: Announcer,
        waiter: &dyn Waiter,
    ) -> Result<Grant<'m>, Refusal> {
        let Some((slot, entry)) = self.find(attempt.key) else {
            return Err(refusal(Reason::UnknownIndex, &{ attempt }, None));
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
        match decide(&entry.snapshot(), &attempt) {
            Ok(place) => {
                let place = match place {
                    Place::Memory(address) => address,
                    Place::Shared(offset) => offset | SHARED,
                    Place::Null => NOWHERE,
                };
                Ok(Grant { place, length: attempt.length, _announcement: announcement })
            }
            Err(reason) => Err(refusal(reason, &{ attempt }, Some(entry))),
        }
    }

    /// Waits until nobody uses the key of `slot`; the caller has made it invalid before.
    pub(super) fn drain_key(&self, slot: u32, waiter: &dyn Waiter) {
        self.hazards.drain(|used| used.key_slot == slot, waiter);
        waiter.drained();
    }

    /// Waits until nobody acts through the queue pair; the caller has closed it before.
    pub fn drain_queue_pair(&self, qp_index: u16, waiter: &dyn Waiter) {
        self.hazards.drain(|used| used.qp_index == qp_index, waiter);
        waiter.drained();
    }
}

/// A refusal, with the object as it is now. Fields that only it needs are not read when nothing is refused. Callers
/// pass a copy of the attempt, so that the attempt itself need not be kept in memory for this.
#[cold]
#[inline(never)]
fn refusal(reason: Reason, attempt: &Attempt, entry: Option<&KeyEntry>) -> Refusal {
    let object = entry.map_or(Snapshot::VACANT, KeyEntry::snapshot);
    Refusal { reason, attempt: *attempt, object }
}

/// The place of a grant without memory: no shared memory is as long. A number is half the size of a [`Place`], and
/// every access carries it about.
const NOWHERE: u64 = u64::MAX;

/// Leave to touch one range of a process's memory, until it is dropped.
pub struct Grant<'m> {
    place: u64,
    length: u64,
    _announcement: Announcement<'m>,
}

impl Grant<'_> {
    /// Its first byte in the memory of the process whose table granted it: an address, or with [`SHARED`] a place in
    /// its shared memory. A [null](Grant::is_null) grant has a place where there is no memory.
    pub fn place(&self) -> u64 {
        self.place
    }

    /// Whether there is no memory: reads give zeros, and writes are discarded (rules MR-36, MR-45).
    #[inline]
    pub fn is_null(&self) -> bool {
        self.place == NOWHERE
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

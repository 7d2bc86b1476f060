//! Memory regions in the key table: registration, change, deregistration (rules A.2, A.3).

use super::entry::{CLOSED, KeyEntry, Kind, Meta, Place, SHARED, State};
use super::{Key, KeyTable, Waiter};
use crate::Access;
use crate::sync::Ordering::*;

/// The rights that a region's key grants, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its protection domain's number.
    pub pd: u32,
    /// Rights.
    pub access: Access,
    /// First address as requests name it: the virtual address, the iova, or zero.
    pub base: u64,
    /// Bytes; `base + length` and the end of the place do not pass 2^64.
    pub length: u64,
    /// Where its first byte is.
    pub place: Place,
}

/// Windows are bound to the region, so it stays as it is (rules DR-03, RR-12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("windows are bound to the region")]
pub struct InUse;

/// Whether a region is held against changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    Yes,
    /// It is being changed. Try again.
    NotYet,
    /// There is no region, or one that ends or moves.
    No,
}

/// A place where no process has memory. A region there has addresses that no program can have.
const NO_PLACE: u64 = SHARED - 1;

impl Region {
    /// A null region of the greatest length, for this side and for WRITEs and READs of peers (rules MR-36, MR-45).
    pub const fn null(pd: u32) -> Self {
        let access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ);
        Self { pd, access, base: 0, length: u64::MAX, place: Place::Null }
    }

    /// Makes `key`, freshly taken for `slot`, grant this region.
    pub fn register(&self, table: &KeyTable<'_>, slot: u32, key: Key, now: u64) {
        self.publish(table, slot, key, now);
        table.entry(slot).windows.fetch_and(!CLOSED, SeqCst);
    }

    fn publish(&self, table: &KeyTable<'_>, slot: u32, key: Key, now: u64) {
        let entry = table.entry(slot);
        let kind = if self.place == Place::Null { Kind::Null } else { Kind::Region };
        entry.base.store(self.base, Relaxed);
        entry.length.store(self.length, Relaxed);
        entry.place.store(self.place.pack().unwrap_or(NO_PLACE), Relaxed);
        entry.pd.store(self.pd, Relaxed);
        entry.since.store(now, Relaxed);
        // Nothing here outlasts a loss of power, so nobody is promised that (rule FL-02).
        let access = self.access.difference(Access::FLUSH_PERSISTENT);
        entry.publish(Meta { byte: key.byte(), state: State::Valid, kind, access });
    }

    /// Begins to change the region of `slot` to this one. When it returns, no access is under way that this one does
    /// not allow, and no bind begins until [`Region::reopen`]. Refused while a window is bound (rule RR-12).
    ///
    /// What both allow goes on all the time, if addresses, place and domain stay. Otherwise nobody is let in until the
    /// region is open again: those fields cannot be changed at once, and with some old and some new, an access would go
    /// somewhere else.
    pub fn begin_change(
        &self,
        table: &KeyTable<'_>,
        slot: u32,
        waiter: &dyn Waiter,
    ) -> Result<(), InUse> {
        let entry = table.entry(slot);
        if !self.is_at_the_place_of(entry) {
            return Self::close(table, slot, waiter);
        }
        Self::shut_out_binds(entry)?;
        // Who sees the meta word that is written next sees this too.
        entry.length.store(self.length.min(entry.length.load(Relaxed)), Relaxed);
        loop {
            let old = entry.load();
            if entry.exchange(old, Meta { access: old.access.within(self.access), ..old }) {
                break;
            }
        }
        table.drain_key(slot, waiter);
        Ok(())
    }

    fn is_at_the_place_of(&self, entry: &KeyEntry) -> bool {
        let place = self.place.pack().unwrap_or(NO_PLACE);
        entry.base.load(Relaxed) == self.base
            && entry.place.load(Relaxed) == place
            && entry.pd.load(Relaxed) == self.pd
    }

    /// Ends what [`Region::begin_change`] or [`Region::close`] has begun: the region of `slot` has these properties.
    pub fn reopen(&self, table: &KeyTable<'_>, slot: u32, key: Key, now: u64) {
        self.publish(table, slot, key, now);
        table.entry(slot).windows.store(0, Release);
    }

    /// Whether windows are bound to the region of `slot`.
    pub fn check_unused(table: &KeyTable<'_>, slot: u32) -> Result<(), InUse> {
        match table.entry(slot).windows.load(SeqCst) & !CLOSED {
            0 => Ok(()),
            _ => Err(InUse),
        }
    }

    /// Ends the region of `slot`. When it returns, no access through its key is under way
    /// (rule DR-15). Refused while a window is bound (rules DR-03, DR-04).
    pub fn deregister(table: &KeyTable<'_>, slot: u32, waiter: &dyn Waiter) -> Result<(), InUse> {
        Self::close(table, slot, waiter)?;
        let entry = table.entry(slot);
        entry.publish(Meta { state: State::Vacant, ..entry.load() });
        Ok(())
    }

    /// Shuts out binds, then accesses, and waits for those under way: when it returns, none is. Refused while a window
    /// is bound.
    pub fn close(table: &KeyTable<'_>, slot: u32, waiter: &dyn Waiter) -> Result<(), InUse> {
        let entry = table.entry(slot);
        Self::shut_out_binds(entry)?;
        entry.publish(Meta { state: State::Changing, ..entry.load() });
        table.drain_key(slot, waiter);
        Ok(())
    }

    fn shut_out_binds(entry: &KeyEntry) -> Result<(), InUse> {
        entry.windows.compare_exchange(0, CLOSED, SeqCst, Relaxed).map(drop).map_err(|_| InUse)
    }

    /// Counts one more window on the region of `slot`.
    pub(super) fn hold(table: &KeyTable<'_>, slot: u32) -> Held {
        let entry = table.entry(slot);
        let one_more = |count| (count & CLOSED == 0).then(|| count + 1);
        match entry.windows.fetch_update(SeqCst, Relaxed, one_more) {
            Ok(_) => Held::Yes,
            Err(_) => match entry.load() {
                // The region is there, and shuts out binds for a moment only. A window shuts them out for ever.
                Meta { state: State::Valid, kind, .. } if kind.is_region() => Held::NotYet,
                _ => Held::No,
            },
        }
    }

    /// Counts one window less.
    pub(super) fn release(table: &KeyTable<'_>, slot: u32) {
        table.entry(slot).windows.fetch_sub(1, Release);
    }
}

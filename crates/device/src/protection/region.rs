//! Memory regions in the key table: registration, change, deregistration (rules A.2, A.3).

use super::entry::{CLOSED, Kind, Meta, Place, SHARED, State};
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

    /// Gives the region of `slot`, which is [closed](Region::close), these properties in place of its own.
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
    /// is bound (rule RR-12).
    pub fn close(table: &KeyTable<'_>, slot: u32, waiter: &dyn Waiter) -> Result<(), InUse> {
        let entry = table.entry(slot);
        entry.windows.compare_exchange(0, CLOSED, SeqCst, Relaxed).map_err(|_| InUse)?;
        entry.publish(Meta { state: State::Changing, ..entry.load() });
        table.drain_key(slot, waiter);
        Ok(())
    }

    /// Counts one more window on the region of `slot`, unless it is being closed.
    pub(super) fn hold(table: &KeyTable<'_>, slot: u32) -> bool {
        table
            .entry(slot)
            .windows
            .fetch_update(SeqCst, Relaxed, |count| (count & CLOSED == 0).then(|| count + 1))
            .is_ok()
    }

    /// Counts one window less.
    pub(super) fn release(table: &KeyTable<'_>, slot: u32) {
        table.entry(slot).windows.fetch_sub(1, Release);
    }
}

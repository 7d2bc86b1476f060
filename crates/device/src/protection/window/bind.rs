//! A posted bind: how its window and region are found, and the new content of the window's entry.

use crate::Access;
use crate::protection::decide::{Bind, Stamp, WindowType, bound_place, may_bind};
use crate::protection::entry::{KeyEntry, Meta, State};
use crate::protection::region::Held;
use crate::protection::{Attempt, KeyTable, Operation, Reason, Refusal, Region, Snapshot};
use crate::sync::Ordering::*;

impl Bind {
    fn attempt(&self, stamp: &Stamp) -> Attempt {
        Attempt {
            operation: Operation::Bind,
            key: self.window,
            address: self.address,
            length: self.length,
            qp: stamp.qp,
            pd: stamp.pd,
        }
    }

    fn refuse(&self, stamp: &Stamp, reason: Reason, object: Snapshot) -> Refusal {
        Refusal { reason, attempt: self.attempt(stamp), object }
    }

    /// Finds the window and decides what does not depend on the region.
    pub(super) fn window<'m>(
        &self,
        table: &KeyTable<'m>,
        stamp: &Stamp,
        as_type: WindowType,
    ) -> Result<(u32, &'m KeyEntry, Snapshot), Refusal> {
        let unknown = || self.refuse(stamp, Reason::UnknownIndex, Snapshot::VACANT);
        let slot = table.slot_of(self.window).ok_or_else(unknown)?;
        let entry = table.entry(slot);
        let window = entry.snapshot();
        match may_bind(&window, as_type, self, stamp) {
            Ok(()) => Ok((slot, entry, window)),
            // The index names no window, so the refusal describes none.
            Err(Reason::UnknownIndex) => Err(unknown()),
            Err(reason) => Err(self.refuse(stamp, reason, window)),
        }
    }

    /// Finds the region, holds it against deregistration, and answers its slot and the place of the window's first byte.
    /// `None` if its rights or its length are just being changed. Then, and on an error, nothing is held.
    pub(super) fn region(
        &self,
        table: &KeyTable<'_>,
        stamp: &Stamp,
        as_type: WindowType,
    ) -> Result<Option<(u32, u64)>, Refusal> {
        let unknown = || self.refuse(stamp, Reason::UnknownIndex, Snapshot::VACANT);
        let slot = table.slot_of(self.region).ok_or_else(unknown)?;
        match Region::hold(table, slot) {
            Held::Yes => {}
            Held::NotYet => return Ok(None),
            Held::No => {
                return Err(self.refuse(stamp, Reason::UnknownIndex, table.entry(slot).snapshot()));
            }
        }
        // The region is held, so it cannot be changed or ended, and the values read now stay.
        let region = table.entry(slot).snapshot();
        bound_place(&region, as_type, self, stamp).map(|place| Some((slot, place))).map_err(
            |reason| {
                Region::release(table, slot);
                self.refuse(stamp, reason, region)
            },
        )
    }

    /// The window as it is once it is bound.
    pub(super) fn bound(&self, window: &Snapshot, stamp: &Stamp, place: u64) -> Snapshot {
        Snapshot {
            byte: self.window.byte(),
            state: State::Valid,
            access: self.access,
            base: self.base(),
            length: self.length,
            place,
            qp: stamp.qp,
            wr_id: stamp.wr_id,
            since: stamp.now,
            ..*window
        }
    }

    fn base(&self) -> u64 {
        if self.access.contains(Access::ZERO_BASED) { 0 } else { self.address }
    }

    /// Writes the binding into an entry that the caller has taken: its region and its place there. Some rights may be
    /// withheld.
    pub(super) fn write(
        &self,
        entry: &KeyEntry,
        window: &Snapshot,
        stamp: &Stamp,
        (region, place): (u32, u64),
        withheld: Access,
    ) {
        entry.base.store(self.base(), Relaxed);
        entry.length.store(self.length, Relaxed);
        entry.place.store(place, Relaxed);
        entry.qp.store(stamp.qp, Relaxed);
        entry.parent.store(region, Relaxed);
        entry.wr_id.store(stamp.wr_id, Relaxed);
        entry.since.store(stamp.now, Relaxed);
        entry.publish(Meta {
            byte: self.window.byte(),
            state: State::Valid,
            kind: window.kind,
            access: self.access.withholding(withheld),
        });
    }
}

//! Regions and windows: made, taken away, made again.

use transom_device::Access;
use transom_device::protection::{self, Place, Region, WindowKind, release_window};

use super::{EXPOSED, EXPOSED_REGIONS, LOCAL, LOCAL_REGIONS, Programs, WINDOWS, all_rights};
use crate::device::Alone;
use crate::model::At;
use crate::model::rights::{Grants, Kind};
use crate::random::Random;

impl Programs<'_> {
    /// Registers or allocates an object that is not there.
    pub(super) fn make(&self, device: usize, index: usize, random: &mut Random) {
        let own = &self.shared.nodes[device].device;
        let (kind, pd) = {
            let model = self.shared.model();
            let object = &model.rights[device].objects[index];
            if object.handle.is_some() {
                return;
            }
            (object.kind, object.pd)
        };
        let (table, byte) = (own.keys(), random.number() as u8);
        let entry = match kind {
            Kind::Region => protection::Kind::Region,
            Kind::Window(WindowKind::Type1) => protection::Kind::Window1,
            Kind::Window(WindowKind::Type2A) => protection::Kind::Window2A,
            Kind::Window(WindowKind::Type2B) => protection::Kind::Window2B,
        };
        let taken = own.owner.borrow_mut().take(&table, entry, byte);
        let (slot, key) = taken.expect("there is room for keys");
        let mut grants = None;
        match kind {
            Kind::Window(kind) => kind.allocate(&table, slot, key, pd),
            Kind::Region => {
                let (region, place) = self.region(device, index, pd, random);
                region.register(&table, slot, key, 0);
                let Region { access, base, length, .. } = region;
                grants = Some(Grants { key: key.0, access, base, length, place, bound: None });
            }
        }
        self.shared.say(|| format!("device {device} makes {kind:?} {index}, {key}: {grants:x?}"));
        let mut model = self.shared.model();
        let object = &mut model.rights[device].objects[index];
        (object.handle, object.grants) = (Some((slot, key.0)), grants);
    }

    /// What the region of an index is when it is registered, and where.
    fn region(&self, device: usize, index: usize, pd: u32, random: &mut Random) -> (Region, u64) {
        let base = self.shared.nodes[device].device.base;
        let (access, place, length) = if LOCAL_REGIONS.contains(&index) {
            let (start, length) = LOCAL[index - LOCAL_REGIONS.start];
            (Access::LOCAL_WRITE, base + start, length)
        } else {
            let start = random.within(0..=EXPOSED.1 / 2);
            let length = random.within(0..=EXPOSED.1 - start);
            let mut access = all_rights();
            if random.chance(self.plan.wildness) {
                access &= Access::from_bits_retain(random.number() as u32) | Access::LOCAL_WRITE;
            }
            (access, base + EXPOSED.0 + start, length)
        };
        let zero_based = random.chance(200) && EXPOSED_REGIONS.contains(&index);
        let first = if zero_based { 0 } else { place };
        (Region { pd, access, base: first, length, place: Place::Memory(place) }, place)
    }

    /// Takes an object away, or makes it again.
    pub(super) fn change_rights(&self, at: At, random: &mut Random) {
        let device = at.device;
        // The first local region stays, so that something always goes on. What was aimed at last is
        // in use, most likely.
        let used = self.aimed_at[device].get().filter(|_| random.chance(500));
        let index = used.unwrap_or_else(|| random.within(1..=WINDOWS.end as u64 - 1) as usize);
        let there = self.shared.model().rights[device].objects[index].handle.is_some();
        if !there {
            self.make(device, index, random);
        } else if random.chance(self.plan.wildness * 4 + 50) {
            self.take_away(device, index);
            self.shared.model().counts.revoked += 1;
        }
    }

    /// Deregisters a region, if that is allowed, or ends a window.
    pub(super) fn take_away(&self, device: usize, index: usize) {
        let own = &self.shared.nodes[device].device;
        let (kind, handle, held) = {
            let model = self.shared.model();
            let object = &model.rights[device].objects[index];
            (object.kind, object.handle, model.rights[device].is_held(index))
        };
        let Some((slot, _)) = handle else { return };
        let table = own.keys();
        let ended = match kind {
            Kind::Region => Region::deregister(&table, slot, &Alone).is_ok(),
            Kind::Window(_) => {
                release_window(&table, &own.table(), slot, &Alone);
                true
            }
        };
        self.shared.say(|| format!("device {device} takes away object {index}: {ended}"));
        if ended {
            own.owner.borrow_mut().give_back(slot);
            let mut model = self.shared.model();
            model.rights[device].objects[index].handle = None;
            model.rights[device].revoke(index);
        }
        let right = ended == (!held || kind != Kind::Region);
        let verdict = right.then_some(()).ok_or_else(|| {
            format!("object {index} is taken away: {ended}; windows are bound to it: {held}")
        });
        self.shared.note(At { device, qp: 0 }, verdict);
    }

    /// Takes everything away: then nothing holds anything.
    pub fn clear(&self) {
        for device in 0..2 {
            for index in (0..WINDOWS.end).rev() {
                self.take_away(device, index);
            }
        }
    }
}

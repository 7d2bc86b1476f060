//! The slots and keys of this process's regions and windows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::*};

use parking_lot::Mutex;
use transom_device::protection::{Exhausted, Key, KeyOwner, Kind};
use transom_system::object_counts::ObjectKind;
use transom_system::segment::KEY_SLOTS;
use transom_system::{ThisProcess, rehearsal};

use super::Limits;

/// The free slots, and the number of objects that have one.
pub(crate) struct Keys {
    process: Arc<ThisProcess>,
    owner: Mutex<KeyOwner>,
    windows: AtomicU32,
}

impl Keys {
    /// All are free.
    pub(super) fn new(process: Arc<ThisProcess>) -> Self {
        let owner = Mutex::new(KeyOwner::new(KEY_SLOTS, 0));
        Self { process, owner, windows: AtomicU32::new(0) }
    }

    /// Takes a slot and key for an object. Windows of all kinds count as one kind.
    pub(crate) fn take(&self, kind: Kind) -> Result<(u32, Key), Exhausted> {
        let one_more = |count| (count < Limits::here().windows).then(|| count + 1);
        let counted = if is_region(kind) {
            self.process.objects().add_below(ObjectKind::Region, Limits::here().regions)
        } else {
            self.windows.fetch_update(AcqRel, Relaxed, one_more).is_ok()
        };
        if !counted {
            return Err(Exhausted::Full);
        }
        self.take_slot(kind).inspect_err(|_| self.count_off(kind))
    }

    fn take_slot(&self, kind: Kind) -> Result<(u32, Key), Exhausted> {
        let mut random = [0];
        getrandom::fill(&mut random).map_err(|_| Exhausted::Full)?;
        let mut keys = self.owner.lock();
        if keys.has_freed()
            && rehearsal::comes_again()
            && let Some(again) = keys.take_again(&self.process.segment().keys(), kind)
        {
            return Ok(again);
        }
        loop {
            match keys.take(&self.process.segment().keys(), kind, random[0]) {
                Err(Exhausted::NeedsMemory { open }) => {
                    // Opens a quarter of a megabyte at a time, so that little is taken unused.
                    let open = (open + 4096).min(KEY_SLOTS);
                    self.process.segment().open_keys(open).map_err(|_| Exhausted::Full)?;
                    keys.opened(open);
                }
                other => return other,
            }
        }
    }

    pub(crate) fn give_back(&self, kind: Kind, slot: u32) {
        self.owner.lock().give_back(slot);
        self.count_off(kind);
    }

    fn count_off(&self, kind: Kind) {
        if is_region(kind) {
            self.process.objects().remove(ObjectKind::Region);
        } else {
            self.windows.fetch_sub(1, AcqRel);
        }
    }
}

fn is_region(kind: Kind) -> bool {
    matches!(kind, Kind::Region | Kind::Null)
}

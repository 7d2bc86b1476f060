//! Memory windows of this process (rules B.1). Binding is work for a queue pair.

use std::sync::Arc;

use transom_device::protection::{Exhausted, Key, Kind, WindowKind, release_window};

use transom_system::clock;

use super::{ProtectionDomain, RegisterError};

/// A memory window. Dropping it without [`MemoryWindow::deallocate`] leaves it allocated.
#[derive(Debug)]
pub struct MemoryWindow {
    pd: Arc<ProtectionDomain>,
    slot: u32,
    key: Key,
}

impl MemoryWindow {
    /// Allocates an unbound window. Type 2 windows are of the kind that the device was opened for.
    pub fn allocate(pd: &Arc<ProtectionDomain>, type1: bool) -> Result<Self, RegisterError> {
        let device = pd.device();
        device.check_own()?;
        pd.adopt().map_err(|_| RegisterError::Busy)?;
        let kind = match (type1, device.options().windows_2a) {
            (true, _) => WindowKind::Type1,
            (false, true) => WindowKind::Type2A,
            (false, false) => WindowKind::Type2B,
        };
        let taken = device.resources.keys.take(Kind::Window1).inspect_err(|_| pd.release());
        let (slot, key) = taken.map_err(|_: Exhausted| RegisterError::Exhausted)?;
        kind.allocate(&device.process().segment().keys(), slot, key, pd.number());
        Ok(Self { pd: pd.clone(), slot, key })
    }

    /// The key from its allocation. Binding changes the low byte.
    pub fn key(&self) -> Key {
        self.key
    }

    /// Its protection domain.
    pub fn pd(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }

    /// Unbinds and frees it. When it returns, no access through its key is under way
    /// (rules MWA-13, MWA-14).
    pub fn deallocate(self) {
        // In a forked child it is the parent's, and stays bound.
        if !self.pd.device().process().is_inherited() {
            let segment = self.pd.device().process().segment();
            let keys = segment.keys();
            let process = &**self.pd.device().process();
            if release_window(&keys, &segment.qps(), self.slot, process) {
                self.pd.device().closes(self.slot);
            }
            keys.note_end(self.slot, clock::steady());
        }
        self.pd.device().resources.keys.give_back(Kind::Window1, self.slot);
        self.pd.release();
    }
}

//! The rights of peers to memory, and their use.

use std::sync::Arc;

use transom_check::ledger::{Rights, Thing};
use transom_device::Access;
use transom_device::protection::{Key, Operation, Snapshot};
use transom_host::device::{Device, Listener, listen};

use super::{Checker, checker, id_of};

/// From now on the check hears of peers' requests.
pub(super) fn begin() {
    listen(&PeersUse);
}

/// Hears of peers' requests.
struct PeersUse;

impl Listener for PeersUse {
    fn asked(&self, device: &Device, operation: Operation, key: Key) {
        // Not `on`: this thread may be doing librdmacm's own work.
        if let Some(checker) = checker() {
            let (id, rights) = (std::ptr::from_ref(device).addr(), rights(operation.rights()));
            let unwatched = checker.tell(|ledger| {
                ledger.peer_uses(id, key.0, rights);
                if rights.write { ledger.peer_writes(id) } else { Vec::new() }
            });
            // Before others may take the direct path.
            if !unwatched.is_empty() {
                checker.attempt(|| checker.log_writes_of(device, &unwatched));
            }
        }
        // Also after the check has ended: otherwise the right would stay withheld.
        device.give_back(key, operation.rights());
    }

    fn withholds(&self, device: &Device, slot: u32, window: &Snapshot) -> Access {
        let key = device.process().segment().keys().key_of(slot, window.byte);
        let id = std::ptr::from_ref(device).addr();
        // Not `on`, as above.
        let withheld = checker().map(|checker| {
            checker.tell(|ledger| ledger.bind_opens(id, key.0, rights(window.access)))
        });
        withheld.map_or(Access::empty(), access)
    }
}

/// Rights in the ledger's form.
pub(crate) fn rights(access: Access) -> Rights {
    Rights {
        read: access.contains(Access::REMOTE_READ),
        write: access.contains(Access::REMOTE_WRITE),
        atomic: access.contains(Access::REMOTE_ATOMIC),
    }
}

fn access(rights: Rights) -> Access {
    let all = [
        (rights.read, Access::REMOTE_READ),
        (rights.write, Access::REMOTE_WRITE),
        (rights.atomic, Access::REMOTE_ATOMIC),
    ];
    all.into_iter().filter(|(has, _)| *has).map(|(_, access)| access).collect()
}

impl Checker {
    /// A region is registered, or registered anew.
    pub(super) fn opened(&self, device: &Arc<Device>, key: Key, access_of: Access) {
        let (rights, id) = (rights(access_of), id_of(device));
        // Windows may be bound to it.
        self.attempt(|| _ = self.devices.lock().insert(id, Arc::downgrade(device)));
        if rights == Rights::default() {
            self.tell(|ledger| ledger.grants_nothing(id, key.0));
            return;
        }
        let call = self.call();
        self.attempt(|| {
            let unused =
                self.tell(|ledger| ledger.granted(id, key.0, Thing::Region, rights, &call));
            // No kind of mistake depends on reads, so reads stay direct.
            device.withhold(key, access(Rights { read: false, ..unused }));
        });
    }
}

//! What the keys of a device grant, kept beside the device and without its code: by what the program
//! did and what completed.

use transom_device::Access;
use transom_device::protection::WindowKind;

/// What a key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A region.
    Region,
    /// A window.
    Window(WindowKind),
}

/// What the holder of a key may do now.
#[derive(Clone, Copy, Debug)]
pub struct Grants {
    /// The key.
    pub key: u32,
    /// The rights.
    pub access: Access,
    /// First address as requests name it.
    pub base: u64,
    /// Bytes.
    pub length: u64,
    /// Where the first byte is.
    pub place: u64,
    /// A window: the queue pair that bound it, and the object it is bound to.
    pub bound: Option<(u32, usize)>,
}

/// A region or window of a device; its index names it for the whole run.
#[derive(Clone, Debug)]
pub struct Object {
    /// What it is.
    pub kind: Kind,
    /// Its protection domain.
    pub pd: u32,
    /// Its slot in the key table and the last key the program knows, while it exists.
    pub handle: Option<(u32, u32)>,
    /// What it grants, unless it is not there or a window that is not bound.
    pub grants: Option<Grants>,
    /// What it granted before.
    pub past: Vec<Grants>,
}

/// All of a device.
#[derive(Debug, Default)]
pub struct Rights {
    /// Its regions and windows.
    pub objects: Vec<Object>,
}

/// On whose behalf.
#[derive(Clone, Copy, Debug)]
pub struct Who {
    /// The queue pair at whose device the memory is.
    pub qp: u32,
    /// Its protection domain.
    pub pd: u32,
}

impl Rights {
    /// Where `[address, +length)` is if the key lets it be used with all these rights; `Err` says why
    /// not. `local` tells an L_Key from an R_Key.
    pub fn place(
        &self,
        key: u32,
        (address, length): (u64, u64),
        needs: Access,
        who: Who,
        local: bool,
    ) -> Result<u64, &'static str> {
        let holds = |object: &&Object| object.grants.is_some_and(|grants| grants.key == key);
        let Some(object) = self.objects.iter().find(holds) else {
            return Err("the key grants nothing now");
        };
        let grants = object.grants.ok_or("the key grants nothing now")?;
        let owned = grants.bound.is_some_and(|(qp, _)| qp == who.qp);
        let domain = object.pd == who.pd;
        match object.kind {
            Kind::Window(_) if local => return Err("a window's key used as an L_Key"),
            Kind::Region | Kind::Window(WindowKind::Type1) if !domain => {
                return Err("another protection domain");
            }
            Kind::Window(WindowKind::Type2B) if !domain => {
                return Err("another protection domain");
            }
            Kind::Window(WindowKind::Type2A | WindowKind::Type2B) if !owned => {
                return Err("another queue pair's window");
            }
            _ => {}
        }
        if grants.access.intersection(needs) != needs {
            return Err("a right is missing");
        }
        let [first, base] = [i128::from(address), i128::from(grants.base)];
        if first < base || first + i128::from(length) > base + i128::from(grants.length) {
            return Err("out of range");
        }
        Ok(grants.place + (address - grants.base))
    }

    /// Whether a window is bound to this object.
    pub fn is_held(&self, region: usize) -> bool {
        let bound = |object: &Object| object.grants.and_then(|grants| grants.bound);
        self.objects.iter().any(|object| bound(object).is_some_and(|(_, to)| to == region))
    }

    /// Takes away what the object grants.
    pub fn revoke(&mut self, index: usize) {
        let object = &mut self.objects[index];
        object.past.extend(object.grants.take());
    }

    /// The object that a key of the program's belongs to, whatever its byte.
    pub fn object_of(&self, key: u32) -> Option<usize> {
        let same = |object: &Object| object.handle.is_some_and(|(_, known)| known >> 8 == key >> 8);
        self.objects.iter().position(same)
    }
}

//! One entry of the key table: the content of an adapter's memory-key context, in 64 bytes of atomics.

use crate::Access;
use crate::sync::{AtomicU32, AtomicU64, Ordering::*};

/// The kind of object that a key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A memory region.
    Region = 0,
    /// A window of type 1: usable through every queue pair of its protection domain.
    Window1 = 1,
    /// A window of type 2A: checked against the queue pair that bound it (rule T2-01).
    Window2A = 2,
    /// A window of type 2B: checked against queue pair and protection domain (rule T2-02).
    Window2B = 3,
    /// A null region: reads give zeros, and writes are discarded (rule MR-36).
    Null = 4,
}

impl Kind {
    /// Whether it is a memory region. One without memory counts too.
    pub const fn is_region(self) -> bool {
        matches!(self, Self::Region | Self::Null)
    }
}

/// The place of the bytes of a region or window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// From this address of the process's memory on.
    Memory(u64),
    /// From here on in the process's shared memory, whatever the process has at which address.
    Shared(u64),
    /// Nowhere: reads give zeros, and writes are discarded.
    Null,
}

/// The bit of a place that says that it is one of the process's shared memory, and no address: a program has none so
/// high.
pub const SHARED: u64 = 1 << 63;

impl Place {
    /// Encodes it as one number. `None` for an address that could be taken for a place in shared memory.
    pub fn pack(self) -> Option<u64> {
        match self {
            Self::Memory(address) => Some(address).filter(|address| address & SHARED == 0),
            Self::Shared(offset) => Some(offset | SHARED),
            Self::Null => Some(0),
        }
    }

    #[inline(always)]
    pub(super) fn unpack(place: u64) -> Self {
        if place & SHARED == 0 { Self::Memory(place) } else { Self::Shared(place & !SHARED) }
    }
}

/// The stage of an entry's object in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// The slot holds no object.
    Vacant = 0,
    /// A window that is not bound.
    Free = 1,
    /// A region, or a bound window.
    Valid = 2,
    /// Being bound, unbound or changed; nobody is let in.
    Changing = 3,
}

/// The word that decides first: key byte, state, kind and rights, read and changed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) byte: u8,
    pub(super) state: State,
    pub(super) kind: Kind,
    pub(super) access: Access,
}

impl Meta {
    pub(super) fn pack(self) -> u64 {
        u64::from(self.byte)
            | u64::from(self.state as u8) << 8
            | u64::from(self.kind as u8) << 16
            | u64::from(self.access.bits()) << 24
    }

    #[inline(always)]
    pub(super) fn unpack(word: u64) -> Self {
        Self {
            byte: word as u8,
            // As many bits as there are states, so that it needs no branch.
            state: match word >> 8 & 3 {
                1 => State::Free,
                2 => State::Valid,
                3 => State::Changing,
                _ => State::Vacant,
            },
            kind: match word >> 16 & 7 {
                1 => Kind::Window1,
                2 => Kind::Window2A,
                3 => Kind::Window2B,
                4 => Kind::Null,
                _ => Kind::Region,
            },
            access: Access::from_bits_retain((word >> 24) as u32),
        }
    }
}

/// An entry of the key table. All zeros is a vacant slot.
#[derive(Default)]
#[repr(C, align(64))]
pub struct KeyEntry {
    pub(super) meta: AtomicU64,
    /// The first address by which requests name the object. Zero if it is zero-based.
    pub(super) base: AtomicU64,
    /// Bytes.
    pub(super) length: AtomicU64,
    /// The place of its first byte in the process's memory: an address, or with [`SHARED`] a place in its shared
    /// memory.
    pub(super) place: AtomicU64,
    pub(super) pd: AtomicU32,
    /// A window: the queue pair that bound it.
    pub(super) qp: AtomicU32,
    /// A bound window: the slot of its region.
    pub(super) parent: AtomicU32,
    /// A region: how many windows are bound to it, or [`CLOSED`].
    pub(super) windows: AtomicU32,
    /// A bound window: `wr_id` of the bind.
    pub(super) wr_id: AtomicU64,
    /// When it was registered or bound, in the host's nanoseconds.
    pub(super) since: AtomicU64,
}

/// In [`KeyEntry::windows`]: no region is here, or it is being deregistered or changed; no bind may
/// begin.
pub(super) const CLOSED: u32 = 1 << 31;

/// The contents of an entry at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The low byte of the valid key.
    pub byte: u8,
    /// The stage of the object in its life.
    pub state: State,
    /// The kind of object.
    pub kind: Kind,
    /// The rights it grants.
    pub access: Access,
    /// The first address by which requests name it.
    pub base: u64,
    /// Bytes.
    pub length: u64,
    /// The place of its first byte in the process's memory: an address, or with [`SHARED`] a place in its shared
    /// memory.
    pub place: u64,
    /// The protection domain's number.
    pub pd: u32,
    /// A window: the number of the queue pair that bound it.
    pub qp: u32,
    /// A window: `wr_id` of the bind.
    pub wr_id: u64,
    /// When it was registered or bound, in the host's nanoseconds.
    pub since: u64,
}

impl Snapshot {
    /// A slot without an object.
    pub const VACANT: Self = Self {
        byte: 0,
        state: State::Vacant,
        kind: Kind::Region,
        access: Access::empty(),
        base: 0,
        length: 0,
        place: 0,
        pd: 0,
        qp: 0,
        wr_id: 0,
        since: 0,
    };
}

impl KeyEntry {
    #[inline]
    pub(super) fn load(&self) -> Meta {
        Meta::unpack(self.meta.load(SeqCst))
    }

    /// Changes the meta word from `old` to `new`, unless someone else changed it first.
    pub(super) fn exchange(&self, old: Meta, new: Meta) -> bool {
        self.meta.compare_exchange(old.pack(), new.pack(), SeqCst, Relaxed).is_ok()
    }

    /// Ends a change: everyone who sees the new state also sees everything written before.
    pub(super) fn publish(&self, meta: Meta) {
        self.meta.store(meta.pack(), SeqCst);
    }

    /// The entry's contents. While the caller's announcement stands and the state is `Valid`, they
    /// belong together; otherwise they serve an explanation only.
    #[inline(always)]
    pub fn snapshot(&self) -> Snapshot {
        let meta = self.load();
        Snapshot {
            byte: meta.byte,
            state: meta.state,
            kind: meta.kind,
            access: meta.access,
            base: self.base.load(Relaxed),
            length: self.length.load(Relaxed),
            place: self.place.load(Relaxed),
            pd: self.pd.load(Relaxed),
            qp: self.qp.load(Relaxed),
            wr_id: self.wr_id.load(Relaxed),
            since: self.since.load(Relaxed),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_entry_takes_64_bytes() {
        assert_eq!(size_of::<KeyEntry>(), 64);
    }

    #[test]
    fn meta_reads_back() {
        let meta = Meta {
            byte: 0xa5,
            state: State::Valid,
            kind: Kind::Window2B,
            access: Access::REMOTE | Access::ZERO_BASED | Access::RELAXED_ORDERING,
        };
        assert_eq!(Meta::unpack(meta.pack()), meta);
    }
}

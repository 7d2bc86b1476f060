//! How much memory a process has registered, by its place. It lies in its segment, where other processes of its user
//! may look.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use transom_device::protection::Place;

use crate::memory::Sharing;

/// Bytes of the regions of one process. If two regions share memory, it counts twice.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Registered {
    shared: AtomicU64,
    private: AtomicU64,
    /// A [`Sharing`] plus one. Zero for no shared memory.
    sharing: AtomicU32,
}

/// What is registered at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisteredMemory {
    /// Bytes of shared memory.
    pub shared: u64,
    /// Bytes of private memory.
    pub private: u64,
    /// Which memory of the process is shared. `None` if it has no shared memory.
    pub sharing: Option<Sharing>,
}

impl Registered {
    /// Notes which memory is shared.
    pub fn set_sharing(&self, sharing: Option<Sharing>) {
        self.sharing.store(sharing.map_or(0, |sharing| sharing as u32 + 1), Relaxed);
    }

    fn bytes(&self, place: Place) -> Option<&AtomicU64> {
        match place {
            Place::Shared(_) => Some(&self.shared),
            Place::Memory(_) => Some(&self.private),
            Place::Null => None,
        }
    }

    /// A region of so many bytes has begun.
    pub fn add(&self, place: Place, length: u64) {
        if let Some(bytes) = self.bytes(place) {
            bytes.fetch_add(length, Relaxed);
        }
    }

    /// It has ended.
    pub fn remove(&self, place: Place, length: u64) {
        if let Some(bytes) = self.bytes(place) {
            bytes.fetch_sub(length, Relaxed);
        }
    }

    /// The amounts registered now.
    pub fn get(&self) -> RegisteredMemory {
        let sharing = self.sharing.load(Relaxed).checked_sub(1).and_then(Sharing::from_number);
        RegisteredMemory {
            shared: self.shared.load(Relaxed),
            private: self.private.load(Relaxed),
            sharing,
        }
    }
}

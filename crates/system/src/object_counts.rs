//! The number of objects that a process has of its device. It lies in its segment, where other processes of its user
//! may look.

use std::sync::atomic::{AtomicU32, Ordering::*};

use strum::{EnumCount, VariantArray};

/// The objects that programs make on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumCount, VariantArray)]
pub enum ObjectKind {
    /// Protection domains, without parent domains.
    Domain,
    /// Completion queues.
    CompletionQueue,
    /// Queue pairs.
    QueuePair,
    /// Memory regions.
    Region,
    /// Opened devices.
    Context,
    /// Shared receive queues.
    SharedReceiveQueue,
}

impl ObjectKind {
    /// All of them.
    pub const ALL: [Self; Self::COUNT] =
        *Self::VARIANTS.first_chunk().expect("as many as there are");
}

/// The objects of one process, by kind.
#[derive(Debug, Default)]
#[repr(C)]
pub struct ObjectCounts([AtomicU32; ObjectKind::ALL.len()]);

impl ObjectCounts {
    /// None of any kind.
    pub const fn new() -> Self {
        Self([const { AtomicU32::new(0) }; ObjectKind::ALL.len()])
    }

    /// A copy of these numbers.
    pub fn copy(&self) -> Self {
        let copy = Self::new();
        for kind in ObjectKind::ALL {
            copy.0[kind as usize].store(self.get(kind), Relaxed);
        }
        copy
    }

    /// How many there are now.
    pub fn get(&self, kind: ObjectKind) -> u32 {
        self.0[kind as usize].load(Relaxed)
    }

    /// One more.
    pub fn add(&self, kind: ObjectKind) {
        self.0[kind as usize].fetch_add(1, AcqRel);
    }

    /// Counts one more. False at the limit.
    #[must_use]
    pub fn add_below(&self, kind: ObjectKind, limit: u32) -> bool {
        let one_more = |count| (count < limit).then(|| count + 1);
        self.0[kind as usize].fetch_update(AcqRel, Relaxed, one_more).is_ok()
    }

    /// One less.
    pub fn remove(&self, kind: ObjectKind) {
        self.0[kind as usize].fetch_sub(1, AcqRel);
    }
}

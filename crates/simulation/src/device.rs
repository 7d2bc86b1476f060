//! A device: memory, and the key table and the summaries of queue pairs by which peers reach it, as a
//! process's segment has them.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use transom_device::protection::{
    Announcer, Grant, Hazards, KeyEntry, KeyOwner, KeyTable, RecentSlots, Scramble, Waiter,
};
use transom_device::qp::{QpNumber, QpSummary, QpTable};

/// A device. Its queue pairs' state is elsewhere.
pub struct Device {
    /// First address of its memory.
    pub base: u64,
    memory: RefCell<Vec<u8>>,
    entries: Box<[KeyEntry]>,
    open: AtomicU32,
    scramble: Arc<Scramble>,
    recent: RecentSlots,
    hazards: Box<Hazards>,
    summaries: Box<[QpSummary]>,
    /// Who hands out its keys.
    pub owner: RefCell<KeyOwner>,
}

/// As whom a device announces: there is one process in it.
pub const SELF: Announcer = Announcer { slot: 1, generation: 1 };

impl Device {
    /// A device with this memory, and room for so many keys and queue pairs.
    pub fn new(
        base: u64,
        memory: Vec<u8>,
        scramble: Arc<Scramble>,
        keys: u32,
        queue_pairs: usize,
    ) -> Self {
        let hazards = Box::new(Hazards::default());
        hazards.attach(SELF);
        Self {
            base,
            memory: RefCell::new(memory),
            entries: (0..keys).map(|_| KeyEntry::default()).collect(),
            open: AtomicU32::new(keys),
            scramble,
            recent: RecentSlots::default(),
            hazards,
            summaries: (0..queue_pairs).map(|_| QpSummary::default()).collect(),
            owner: RefCell::new(KeyOwner::new(keys, keys)),
        }
    }

    /// The key table.
    pub fn keys(&self) -> KeyTable<'_> {
        KeyTable::new(&self.entries, &self.open, &self.scramble, &self.recent, &self.hazards)
    }

    /// The queue pairs as initiators see them.
    pub fn table(&self) -> QpTable<'_> {
        QpTable::new(&self.summaries)
    }

    /// The summary of a queue pair.
    pub fn summary(&self, number: QpNumber) -> &QpSummary {
        &self.summaries[usize::from(number.index())]
    }

    /// Copies from memory; `None` if there is none.
    pub fn load(&self, address: u64, length: u64) -> Option<Vec<u8>> {
        let start = usize::try_from(address.checked_sub(self.base)?).ok()?;
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        self.memory.borrow().get(start..end).map(<[u8]>::to_vec)
    }

    /// Writes to memory; `None` if there is none.
    pub fn store(&self, address: u64, bytes: &[u8]) -> Option<()> {
        let start = usize::try_from(address.checked_sub(self.base)?).ok()?;
        let end = start.checked_add(bytes.len())?;
        self.memory.borrow_mut().get_mut(start..end)?.copy_from_slice(bytes);
        Some(())
    }

    /// The memory of a grant.
    pub fn granted(&self, at: &Grant<'_>) -> Option<Vec<u8>> {
        self.load(at.place(), at.length())
    }

    /// The word of a grant, if it is one.
    pub fn word(&self, at: &Grant<'_>) -> Option<u64> {
        Some(u64::from_ne_bytes(self.granted(at)?.try_into().ok()?))
    }
}

/// Nobody else runs here, so a wait never ends.
pub struct Alone;

impl Waiter for Alone {
    fn pause(&self, round: u32, _on: Option<Announcer>) {
        assert!(round < 1000, "the device waits for something that cannot come");
    }

    fn resumed(&self) {}

    fn is_gone(&self, _process: Announcer) -> bool {
        false
    }
}

//! A device: key table, queue pairs and memory in one place, as a process's segment has them, and a
//! link that takes so many packets at a time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::AtomicU32;

use transom_device::execution::{Requester, Responder};
use transom_device::protection::{
    Announcer, Grant, Hazards, KeyEntry, KeyOwner, KeyTable, Scramble, Waiter,
};
use transom_device::qp::{QpNumber, QpSummary, QpTable, Service};
use transom_device::transport::responder::PacketResponder;

use crate::clock::Clock;

/// Bytes of memory.
pub const MEMORY: usize = 3 << 19;
/// Slots of the key table.
const KEYS: usize = 256;
/// Queue pairs.
pub const QUEUE_PAIRS: usize = 64;

/// A queue pair.
pub struct Qp {
    /// Its number.
    pub number: QpNumber,
    /// Its peer's.
    pub peer: QpNumber,
    /// Its transport service.
    pub service: Service,
    /// Path MTU.
    pub mtu: u64,
    /// The half that sends.
    pub requester: RefCell<Requester>,
    /// The half that receives: what carries requests out.
    pub execution: RefCell<Responder>,
    /// What makes them of packets.
    pub responder: RefCell<PacketResponder>,
    /// The send queue, the receive queue is to be flushed.
    pub flush: [Cell<bool>; 2],
    /// The reading of the device's clock for which a look at the queue pair is arranged.
    pub alarm: Cell<Option<u64>>,
}

/// How packets leave.
pub struct Egress {
    /// Packets that it holds at most.
    pub depth: usize,
    /// Nanoseconds for each.
    pub pace: u64,
    /// How many it holds.
    pub pending: Cell<usize>,
    /// When the last of them will have left.
    pub free_at: Cell<u64>,
    /// Somebody found it full, and waits.
    pub was_full: Cell<bool>,
    /// Somebody ever did.
    pub ever_full: Cell<bool>,
}

/// A device.
pub struct Device {
    /// Its clock.
    pub clock: Clock,
    /// First address of its memory.
    pub base: u64,
    memory: RefCell<Vec<u8>>,
    entries: Box<[KeyEntry]>,
    open: AtomicU32,
    scramble: Box<Scramble>,
    hazards: Box<Hazards>,
    summaries: Box<[QpSummary]>,
    /// Who hands out its keys.
    pub owner: RefCell<KeyOwner>,
    /// Its queue pairs; a queue pair's index is its place here.
    pub qps: RefCell<Vec<Rc<Qp>>>,
    /// Its way out.
    pub egress: Egress,
}

/// As whom a device announces: there is one process in it.
pub const SELF: Announcer = Announcer { slot: 1, generation: 1 };

impl Device {
    /// A device without anything; `seed` is that of its keys.
    pub fn new(base: u64, clock: Clock, seed: u64, egress: Egress) -> Self {
        let hazards = Box::new(Hazards::default());
        hazards.attach(SELF);
        Self {
            clock,
            base,
            memory: RefCell::new(vec![0; MEMORY]),
            entries: (0..KEYS).map(|_| KeyEntry::default()).collect(),
            open: AtomicU32::new(KEYS as u32),
            scramble: Scramble::for_simulation(seed),
            hazards,
            summaries: (0..QUEUE_PAIRS).map(|_| QpSummary::default()).collect(),
            owner: RefCell::new(KeyOwner::new(KEYS as u32, KEYS as u32)),
            qps: RefCell::default(),
            egress,
        }
    }

    /// The key table.
    pub fn keys(&self) -> KeyTable<'_> {
        KeyTable::new(&self.entries, &self.open, &self.scramble, &self.hazards)
    }

    /// The queue pairs as initiators see them.
    pub fn table(&self) -> QpTable<'_> {
        QpTable::new(&self.summaries)
    }

    /// The summary of a queue pair.
    pub fn summary(&self, index: usize) -> &QpSummary {
        &self.summaries[index]
    }

    /// The queue pair at a place.
    pub fn qp(&self, index: usize) -> Rc<Qp> {
        Rc::clone(&self.qps.borrow()[index])
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
        self.load(at.address(), at.length())
    }
}

/// Nobody else runs here, so whoever waits waits for ever.
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

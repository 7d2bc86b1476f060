//! A node of the network: a device, its queue pairs, and a link that takes so many packets at a time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use transom_device::protection::Scramble;
use transom_device::qp::{QpNumber, QpSummary};

use crate::clock::Clock;
use crate::device::Device;
use crate::endpoint::Endpoint;

/// Bytes of memory.
pub const MEMORY: usize = 3 << 19;
/// Slots of the key table.
const KEYS: u32 = 256;
/// Queue pairs.
pub const QUEUE_PAIRS: usize = 64;

/// A queue pair.
pub struct Qp {
    /// Its number.
    pub number: QpNumber,
    /// Path MTU.
    pub mtu: u64,
    /// The same as the device has it.
    pub endpoint: RefCell<Endpoint>,
    /// How many work requests its send queue takes.
    pub size: usize,
    /// The places of its send queue, and of its receive queue, that completions have given back.
    pub given_back: [Cell<u32>; 2],
    /// The reading of the node's clock for which a look at the queue pair is arranged.
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
    /// Messages that were to leave together have found no room since it was empty.
    pub has_refused: Cell<bool>,
    /// Somebody found it full, and waits.
    pub was_full: Cell<bool>,
    /// Somebody ever did.
    pub ever_full: Cell<bool>,
}

/// A node.
pub struct Node {
    /// Its clock.
    pub clock: Clock,
    /// Its device.
    pub device: Device,
    /// Its queue pairs; a queue pair's index is its place here.
    pub qps: RefCell<Vec<Rc<Qp>>>,
    /// Its way out.
    pub egress: Egress,
}

impl Node {
    /// A node without anything; `seed` is that of its keys.
    pub fn new(base: u64, clock: Clock, seed: u64, egress: Egress) -> Self {
        let scramble = Arc::from(Scramble::for_simulation(seed));
        let device = Device::new(base, vec![0; MEMORY], scramble, KEYS, QUEUE_PAIRS);
        Self { clock, device, qps: RefCell::default(), egress }
    }

    /// The queue pair at a place.
    pub fn qp(&self, index: usize) -> Rc<Qp> {
        Rc::clone(&self.qps.borrow()[index])
    }

    /// Its summary.
    pub fn summary(&self, index: usize) -> &QpSummary {
        self.device.summary(self.qps.borrow()[index].number)
    }
}

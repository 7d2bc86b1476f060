//! The deadlines of a device: who is to be served, and when.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Arc, Weak};

use arrayvec::ArrayVec;
use parking_lot::{Mutex, MutexGuard};
use transom_net::faults::IncidentKind;
use transom_system::ThisProcess;

use crate::events::HoldsEvents;

/// A change of the port, with the number of the outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PortChange {
    /// An outage begins.
    Down(usize),
    /// It is over.
    Up(usize),
}

/// The owner of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// A queue pair goes on.
    QueuePair(u16),
    /// A queue pair in error tells of more work that was flushed, in a rehearsal.
    Flushes(u16),
    /// The data of WRITEs that are complete gets to memory, in a rehearsal.
    Writes,
    /// Somebody raises events that were held back.
    Events(u64),
    /// An injected fault changes the port.
    Port(PortChange),
    /// An injected incident happens to the device.
    Incident(IncidentKind),
    /// The connection manager repeats a message, or gives up.
    Connections,
}

/// How many expired deadlines are taken at a time.
const MOST_DUE: usize = 16;

/// The deadlines that somebody waits for. They come and go with posted work, so memory that was needed once is kept.
#[derive(Default)]
struct Waiting {
    /// The earliest first.
    all: BinaryHeap<Reverse<(u64, Due)>>,
    /// The deadline of the connection manager, which may move to a later time.
    connections: Option<u64>,
}

impl Waiting {
    /// The earliest.
    fn first(&self) -> Option<u64> {
        let first = self.all.peek().map(|Reverse((deadline, _))| *deadline);
        [first, self.connections].into_iter().flatten().min()
    }

    /// Takes one that has come.
    fn take(&mut self, now: u64) -> Option<(u64, Due)> {
        if let Some(deadline) = self.connections.take_if(|deadline| *deadline <= now) {
            return Some((deadline, Due::Connections));
        }
        let first = self.all.peek_mut().filter(|first| first.0.0 <= now)?;
        Some(PeekMut::pop(first).0)
    }
}

/// The deadlines. An earlier one than all before wakes the background thread.
pub(crate) struct Deadlines {
    process: Arc<ThisProcess>,
    waiting: Mutex<Waiting>,
    /// Those among them who hold events back, by the numbers of the deadlines.
    holding: Mutex<HashMap<u64, Weak<dyn HoldsEvents>>>,
    numbers: AtomicU64,
    /// The earliest of `waiting`. Zero for none.
    next: AtomicU64,
}

impl Deadlines {
    /// There are none.
    pub(super) fn new(process: Arc<ThisProcess>) -> Self {
        let (waiting, holding, numbers, next) = Default::default();
        Self { process, waiting, holding, numbers, next }
    }

    /// The earliest, if there is one.
    #[inline]
    pub(crate) fn next(&self) -> Option<u64> {
        let next = self.next.load(Acquire);
        (next != 0).then_some(next)
    }

    /// Schedules something that needs no more than its name.
    pub(crate) fn schedule(&self, deadline: u64, due: Due) {
        let mut waiting = self.waiting.lock();
        waiting.all.push(Reverse((deadline, due)));
        self.note_first(waiting);
    }

    /// Schedules the time when somebody raises events that are held back.
    pub(crate) fn schedule_events(&self, deadline: u64, holder: Weak<dyn HoldsEvents>) {
        let number = self.numbers.fetch_add(1, Relaxed);
        self.holding.lock().insert(number, holder);
        self.schedule(deadline, Due::Events(number));
    }

    /// Sets the deadline of the connection manager, in place of the one before. `None` removes it.
    pub(crate) fn schedule_connections(&self, deadline: Option<u64>) {
        let mut waiting = self.waiting.lock();
        waiting.connections = deadline;
        self.note_first(waiting);
    }

    /// Wakes the background thread if it would sleep too long.
    fn note_first(&self, waiting: MutexGuard<'_, Waiting>) {
        let first = waiting.first().unwrap_or(0);
        let before = self.next.swap(first, AcqRel);
        drop(waiting);
        if first != 0 && (before == 0 || first < before) {
            self.process.wake();
        }
    }

    /// Takes the deadlines that have come, a few at a time. The others stay for the next call.
    pub(crate) fn take_due(&self, now: u64) -> ArrayVec<(u64, Due), MOST_DUE> {
        let mut waiting = self.waiting.lock();
        let taken = std::iter::from_fn(|| waiting.take(now));
        let due = taken.take(MOST_DUE).collect();
        self.next.store(waiting.first().unwrap_or(0), Release);
        due
    }

    /// Takes the one who holds events back until this deadline. `None` if it is gone.
    pub(crate) fn take_holder(&self, number: u64) -> Option<Arc<dyn HoldsEvents>> {
        self.holding.lock().remove(&number)?.upgrade()
    }

    /// Takes all who hold events back.
    pub(crate) fn take_holders(&self) -> Vec<Arc<dyn HoldsEvents>> {
        self.holding.lock().drain().filter_map(|(_, holder)| holder.upgrade()).collect()
    }
}

//! Work on a device that has to wait for a time, or for another thread.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use arrayvec::ArrayVec;
use parking_lot::{Mutex, MutexGuard};
use transom_net::Peer;
use transom_net::faults::IncidentKind;
use transom_system::ThisProcess;
use transom_system::lock::ShortMutex;

/// A change of the port, with the number of the outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PortChange {
    /// An outage begins.
    Down(usize),
    /// It is over.
    Up(usize),
}

/// A completion queue that holds an event back for a while.
pub(crate) trait Moderated: Send + Sync {
    /// The period is over.
    fn end_period(self: Arc<Self>, now: u64);
}

/// The owner of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// A queue pair goes on.
    QueuePair(u16),
    /// A moderated completion queue raises the event that it holds back.
    CompletionEvent(u64),
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
struct Deadlines {
    /// The earliest first.
    all: BinaryHeap<Reverse<(u64, Due)>>,
    /// The deadline of the connection manager, which may move to a later time.
    connections: Option<u64>,
}

impl Deadlines {
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

/// The work to do on a device, and the state of the threads that may do it.
pub(crate) struct Work {
    process: Arc<ThisProcess>,
    /// Counts polls that found nothing.
    pub(crate) polls_in_vain: AtomicU64,
    /// The program has polled since the thread last asked, whether or not it found something. A program that finds
    /// completions which the thread brought polls all the same.
    polled: AtomicBool,
    /// The program is about to sleep, so the thread has to listen for it.
    pub(crate) sleeps: AtomicBool,
    /// The thread sleeps and listens to the sockets of the wire link.
    pub(crate) listens: AtomicBool,
    /// Peers found to have ended by a thread that held locks. Messages on their way to them still have to count as
    /// lost.
    lost: Mutex<Vec<Arc<Peer>>>,
    lost_count: AtomicUsize,
    /// Test only: the thread that looks for them panics instead.
    #[cfg(test)]
    pub(crate) panics: AtomicBool,
    deadlines: Mutex<Deadlines>,
    /// The completion queues among them.
    moderated: Mutex<HashMap<u64, Weak<dyn Moderated>>>,
    /// The earliest of `deadlines`. Zero for none.
    pub(crate) next_deadline: AtomicU64,
    /// Held by the background thread while it works, and by a thread that forks.
    pub(crate) working: ShortMutex<()>,
    /// Held by the background thread while it keeps the adapter from being closed.
    pub(crate) holding: Mutex<()>,
    /// The background thread, until somebody joins it.
    pub(crate) thread: Mutex<Option<JoinHandle<()>>>,
}

impl Work {
    /// Nothing is.
    pub(super) fn new(process: Arc<ThisProcess>) -> Self {
        Self {
            process,
            polls_in_vain: AtomicU64::new(0),
            polled: AtomicBool::new(false),
            sleeps: AtomicBool::new(false),
            listens: AtomicBool::new(false),
            lost: Mutex::default(),
            lost_count: AtomicUsize::new(0),
            #[cfg(test)]
            panics: AtomicBool::new(false),
            deadlines: Mutex::default(),
            moderated: Mutex::default(),
            next_deadline: AtomicU64::new(0),
            working: ShortMutex::default(),
            holding: Mutex::default(),
            thread: Mutex::default(),
        }
    }

    /// The program polls.
    #[inline]
    pub(crate) fn note_poll(&self) {
        // Threads that poll at the same time must not take the cache line from each other.
        if !self.polled.load(Relaxed) {
            self.polled.store(true, Relaxed);
        }
    }

    /// Whether the program has polled since the last call with `begin_anew`. The background thread asks.
    pub(crate) fn has_polled(&self, begin_anew: bool) -> bool {
        let polled = self.polled.load(Relaxed);
        if polled && begin_anew {
            self.polled.store(false, Relaxed);
        }
        polled
    }

    /// A peer has ended. The background thread, or a poll that comes first, tells the queue pairs.
    pub(crate) fn lose(&self, peer: Arc<Peer>) {
        self.lost.lock().push(peer);
        self.lost_count.fetch_add(1, Release);
        self.process.wake();
    }

    /// Takes a peer that has ended and that the queue pairs have to hear of.
    #[inline]
    pub(crate) fn take_lost(&self) -> Option<Arc<Peer>> {
        if self.lost_count.load(Acquire) == 0 {
            return None;
        }
        let peer = self.lost.lock().pop()?;
        self.lost_count.fetch_sub(1, Release);
        Some(peer)
    }

    /// Schedules the queue pair to be advanced at `deadline`.
    pub(crate) fn schedule(&self, deadline: u64, qp_index: u16) {
        self.add_deadline(deadline, Due::QueuePair(qp_index));
    }

    /// Schedules the end of the period of the completion queue with this id at `deadline`.
    pub(crate) fn schedule_event(&self, deadline: u64, id: u64, cq: Weak<dyn Moderated>) {
        self.moderated.lock().insert(id, cq);
        self.add_deadline(deadline, Due::CompletionEvent(id));
    }

    /// Schedules a change of the port at `deadline`.
    pub(crate) fn schedule_outage(&self, deadline: u64, change: PortChange) {
        self.add_deadline(deadline, Due::Port(change));
    }

    /// Schedules an incident at `deadline`.
    pub(crate) fn schedule_incident(&self, deadline: u64, kind: IncidentKind) {
        self.add_deadline(deadline, Due::Incident(kind));
    }

    /// Sets the deadline of the connection manager, in place of the one before. `None` removes it.
    pub(crate) fn schedule_connections(&self, deadline: Option<u64>) {
        let mut deadlines = self.deadlines.lock();
        deadlines.connections = deadline;
        self.note_first(deadlines);
    }

    fn add_deadline(&self, deadline: u64, due: Due) {
        let mut deadlines = self.deadlines.lock();
        deadlines.all.push(Reverse((deadline, due)));
        self.note_first(deadlines);
    }

    /// Wakes the background thread if it would sleep too long.
    fn note_first(&self, deadlines: MutexGuard<'_, Deadlines>) {
        let first = deadlines.first().unwrap_or(0);
        let before = self.next_deadline.swap(first, AcqRel);
        drop(deadlines);
        if first != 0 && (before == 0 || first < before) {
            self.process.wake();
        }
    }

    /// Takes the deadlines that have come, a few at a time. The others stay for the next call.
    pub(crate) fn due(&self, now: u64) -> ArrayVec<(u64, Due), MOST_DUE> {
        let mut deadlines = self.deadlines.lock();
        let taken = std::iter::from_fn(|| deadlines.take(now));
        let due = taken.take(MOST_DUE).collect();
        self.next_deadline.store(deadlines.first().unwrap_or(0), Release);
        due
    }

    /// Takes a completion queue whose deadline has come. `None` if it is gone.
    pub(crate) fn take_moderated(&self, id: u64) -> Option<Arc<dyn Moderated>> {
        self.moderated.lock().remove(&id)?.upgrade()
    }
}

//! What is to be done on a device at a time, or by another thread.

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

/// What becomes of the port, by the number of the outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PortChange {
    /// An outage begins.
    Down(usize),
    /// It is over.
    Up(usize),
}

/// A completion queue that holds an event back for a period.
pub(crate) trait Moderated: Send + Sync {
    /// The period is over.
    fn end_period(self: Arc<Self>, now: u64);
}

/// Who waits for a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// A queue pair goes on.
    QueuePair(u16),
    /// A moderated completion queue raises the event it holds back.
    CompletionEvent(u64),
    /// A user wants the port to change.
    Port(PortChange),
    /// A user wants something to happen to the device.
    Incident(IncidentKind),
    /// A message of the connection manager is sent again, or it gives up.
    Connections,
}

/// How many deadlines that have come are taken at a time.
const MOST_DUE: usize = 16;

/// Deadlines that somebody waits for. They come and go with what is posted, so room that was needed once is
/// kept.
#[derive(Default)]
struct Deadlines {
    /// The earliest first.
    all: BinaryHeap<Reverse<(u64, Due)>>,
    /// That of the connection manager, which may move away.
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

/// What is to be done on a device, and who is about to do it.
pub(crate) struct Work {
    process: Arc<ThisProcess>,
    /// Counts polls that found nothing.
    pub(crate) polls_in_vain: AtomicU64,
    /// The program has polled, whatever it found, since the thread has asked. One that finds completions which
    /// the thread has brought polls all the same.
    polled: AtomicBool,
    /// The program is about to sleep: the thread is to listen for it.
    pub(crate) sleeps: AtomicBool,
    /// The thread sleeps listening to the sockets of the wire link.
    pub(crate) listens: AtomicBool,
    /// Peers that have ended, found so by somebody who held locks: what was under way to them is still to
    /// count as lost.
    lost: Mutex<Vec<Arc<Peer>>>,
    lost_count: AtomicUsize,
    /// The thread that looks for them panics instead.
    #[cfg(test)]
    pub(crate) panics: AtomicBool,
    deadlines: Mutex<Deadlines>,
    /// The completion queues among them.
    moderated: Mutex<HashMap<u64, Weak<dyn Moderated>>>,
    /// The earliest of `deadlines`; zero for none.
    pub(crate) next_deadline: AtomicU64,
    /// Held by the background thread while it works, and by a thread that forks.
    pub(crate) working: ShortMutex<()>,
    /// Held by the background thread while it keeps the adapter from being closed.
    pub(crate) holding: Mutex<()>,
    /// The background thread, until somebody waits for its end.
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
        // Threads that poll at the same time do not take the line from each other.
        if !self.polled.load(Relaxed) {
            self.polled.store(true, Relaxed);
        }
    }

    /// Whether it has polled since this was asked last with `begin_anew`; asked by the background thread.
    pub(crate) fn has_polled(&self, begin_anew: bool) -> bool {
        let polled = self.polled.load(Relaxed);
        if polled && begin_anew {
            self.polled.store(false, Relaxed);
        }
        polled
    }

    /// A peer has ended; the background thread, or a poll that comes first, tells the queue pairs.
    pub(crate) fn lose(&self, peer: Arc<Peer>) {
        self.lost.lock().push(peer);
        self.lost_count.fetch_add(1, Release);
        self.process.wake();
    }

    /// A peer that has ended, and of which the queue pairs are to be told.
    #[inline]
    pub(crate) fn take_lost(&self) -> Option<Arc<Peer>> {
        if self.lost_count.load(Acquire) == 0 {
            return None;
        }
        let peer = self.lost.lock().pop()?;
        self.lost_count.fetch_sub(1, Release);
        Some(peer)
    }

    /// Sees to it that the queue pair is advanced at `deadline`.
    pub(crate) fn schedule(&self, deadline: u64, qp_index: u16) {
        self.add_deadline(deadline, Due::QueuePair(qp_index));
    }

    /// Sees to it that the period of the completion queue of this id is ended at `deadline`.
    pub(crate) fn schedule_event(&self, deadline: u64, id: u64, cq: Weak<dyn Moderated>) {
        self.moderated.lock().insert(id, cq);
        self.add_deadline(deadline, Due::CompletionEvent(id));
    }

    /// Sees to it that a change of the port comes at `deadline`.
    pub(crate) fn schedule_outage(&self, deadline: u64, change: PortChange) {
        self.add_deadline(deadline, Due::Port(change));
    }

    /// Sees to it that this happens at `deadline`.
    pub(crate) fn schedule_incident(&self, deadline: u64, kind: IncidentKind) {
        self.add_deadline(deadline, Due::Incident(kind));
    }

    /// Sees to it that the connection manager is called at a deadline, if there is one, and not at the one
    /// before.
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

    /// Takes those whose deadline has come, but no more than a few at a time: the others are still there
    /// when somebody looks next.
    pub(crate) fn due(&self, now: u64) -> ArrayVec<(u64, Due), MOST_DUE> {
        let mut deadlines = self.deadlines.lock();
        let taken = std::iter::from_fn(|| deadlines.take(now));
        let due = taken.take(MOST_DUE).collect();
        self.next_deadline.store(deadlines.first().unwrap_or(0), Release);
        due
    }

    /// Takes a completion queue whose deadline has come; none if it is gone.
    pub(crate) fn take_moderated(&self, id: u64) -> Option<Arc<dyn Moderated>> {
        self.moderated.lock().remove(&id)?.upgrade()
    }
}

//! What a rehearsal (`transom rehearse`) refuses when objects are made, and what it knows of completion queues. A process
//! without a rehearsal only looks whether there is one.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use transom_abi::ibv_cq;
use transom_rehearse::Provocation;
use transom_system::rehearsal;

/// A verb is about to make an object. In a rehearsal that may fail.
#[inline]
pub(crate) fn may_make() -> Result<(), c_int> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let Some(rehearsal) = rehearsal::on() else { return Ok(()) };
    let nth = MADE.fetch_add(1, Relaxed);
    let refused = rehearsal.provokes(Provocation::RefusedObjects, 0, nth);
    refused.map_or(Ok(()), |_| Err(libc::ENOMEM))
}

/// Whether a new queue pair takes only as much as was asked for.
pub(crate) fn is_exact() -> bool {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    rehearsal::on().is_some_and(|rehearsal| {
        let nth = ASKED.fetch_add(1, Relaxed);
        rehearsal.provokes(Provocation::ExactSizes, 0, nth).is_some()
    })
}

/// What a rehearsal counts of a receive queue: of a queue pair's own one, or of a shared one.
#[derive(Debug)]
pub(crate) struct Receives {
    /// The number of the queue in this process. Queue pairs and shared receive queues are numbered together, in the
    /// order of their creation.
    queue: u32,
    /// How many elements of lists the program has posted.
    posts: AtomicU64,
}

impl Receives {
    /// For a new queue.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self { queue: NEXT.fetch_add(1, Relaxed), posts: AtomicU64::new(0) }
    }

    /// Counts an element. Returns the number of the queue, and how many elements came before.
    pub(crate) fn count_post(&self) -> (u32, u64) {
        (self.queue, self.posts.fetch_add(1, Relaxed))
    }
}

/// What a rehearsal knows of a completion queue.
#[derive(Debug, Default)]
pub(crate) struct Polled {
    /// How many polls had something to find.
    pub(crate) finding: u64,
    /// How many completions were given.
    pub(crate) given: u64,
    /// How often it was armed with completions there.
    pub(crate) armed_late: u64,
    /// It was armed, and its event has not been taken.
    pub(crate) is_armed: bool,
    /// The program has been told of completions, or would be: they must not be hidden until a poll has found none.
    pub(crate) shows_all: bool,
}

pub(crate) static POLLED: Mutex<BTreeMap<usize, Polled>> = Mutex::new(BTreeMap::new());

/// A completion queue ends. Another may get its address.
pub(crate) fn forget(cq: *const ibv_cq) {
    if rehearsal::on().is_some() {
        POLLED.lock().remove(&cq.addr());
    }
}

/// The program takes an event of a queue, which promises it a completion.
pub(crate) fn event_taken(cq: *const ibv_cq) {
    if rehearsal::on().is_some() {
        let mut polled = POLLED.lock();
        let polled = polled.entry(cq.addr()).or_default();
        (polled.is_armed, polled.shows_all) = (false, true);
    }
}

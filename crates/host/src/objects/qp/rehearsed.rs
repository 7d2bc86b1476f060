//! The sending half in a rehearsal: its requests may begin late.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use transom_rehearse::Provocation;
use transom_system::{clock, rehearsal};

use super::QueuePair;

/// The shortest time that a request is late, in nanoseconds. It may be doubled [`DOUBLINGS`] times.
const SHORTEST: u64 = 100_000;
const DOUBLINGS: u64 = 8;

/// What a rehearsal counts of a queue pair.
#[derive(Debug)]
pub(super) struct Rehearsed {
    /// The number of the queue pair in this process, in the order of their creation. Its number in packets would not
    /// do: that differs from run to run.
    object: u32,
    /// How many times requests were handed to the send queue.
    sends: AtomicU64,
    /// How many elements of lists the program has posted.
    posts: AtomicU64,
    /// How many times the program has queried it.
    queries: AtomicU64,
}

impl Rehearsed {
    /// For a new queue pair.
    pub(super) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let object = NEXT.fetch_add(1, Relaxed);
        let [sends, posts, queries] = [const { AtomicU64::new(0) }; 3];
        Self { object, sends, posts, queries }
    }
}

impl QueuePair {
    /// Until when requests that are posted now must not begin, if they are to be late.
    #[inline]
    pub(super) fn held_until(&self) -> Option<u64> {
        rehearsal::on().and_then(|rehearsal| {
            let nth = self.rehearsed.sends.fetch_add(1, Relaxed);
            let number = rehearsal.provokes(Provocation::LateWork, self.rehearsed.object, nth)?;
            let late = SHORTEST << (number % (DOUBLINGS + 1));
            Some(clock::steady() + late)
        })
    }

    /// Counts an element of a list that the program posts. Returns the number of the queue pair in a rehearsal, and how
    /// many elements came before.
    pub fn count_post(&self) -> (u32, u64) {
        (self.rehearsed.object, self.rehearsed.posts.fetch_add(1, Relaxed))
    }

    /// Counts a query of its attributes in the same way.
    pub fn count_query(&self) -> (u32, u64) {
        (self.rehearsed.object, self.rehearsed.queries.fetch_add(1, Relaxed))
    }
}

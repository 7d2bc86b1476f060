//! The sending half in a rehearsal: its requests may begin late.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use transom_rehearse::Provocation;
use transom_system::{clock, rehearsal};

use super::QueuePair;

/// The shortest time that a request is late, in nanoseconds. It may be doubled [`DOUBLINGS`] times.
const SHORTEST: u64 = 20_000;
const DOUBLINGS: u64 = 9;

/// What a rehearsal counts of a queue pair.
#[derive(Debug, Default)]
pub(super) struct Rehearsed {
    /// How many times requests were handed to the send queue.
    sends: AtomicU64,
    /// How many elements of lists the program has posted.
    posts: AtomicU64,
}

impl QueuePair {
    /// Until when requests that are posted now must not begin, if they are to be late.
    #[inline]
    pub(super) fn held_until(&self) -> Option<u64> {
        rehearsal::on().and_then(|rehearsal| {
            let nth = self.rehearsed.sends.fetch_add(1, Relaxed);
            let object = u32::from(self.number().index());
            let number = rehearsal.provokes(Provocation::LateWork, object, nth)?;
            let late = SHORTEST << (number % (DOUBLINGS + 1));
            Some(clock::steady() + late)
        })
    }

    /// Counts an element of a list that the program posts. Answers how many came before.
    pub fn count_post(&self) -> u64 {
        self.rehearsed.posts.fetch_add(1, Relaxed)
    }
}

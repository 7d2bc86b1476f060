//! The latest work requests of this process and where they were posted, for reports.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;

use super::{Half, runtimes};
use crate::callers::{Callers, callers};

/// So many buffers are known; what was posted before them is forgotten.
const KNOWN: usize = 4 << 10;

/// A buffer of a work request.
#[derive(Clone, Copy, Debug)]
pub struct Posted {
    /// The half that it is for.
    pub half: Half,
    /// The consumer's number of the work request.
    pub wr_id: u64,
    /// What it is called.
    pub name: &'static str,
    /// Its first byte.
    pub address: u64,
    /// How many there are.
    pub length: u64,
}

static POSTS: Mutex<Vec<(Posted, Callers)>> = Mutex::new(Vec::new());
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Notes the buffers of a work request that the program posts now.
pub fn note_post(buffers: impl IntoIterator<Item = Posted>) {
    if runtimes().is_none() {
        return;
    }
    let mut calls: Option<Callers> = None;
    let mut posts = POSTS.lock();
    for buffer in buffers {
        let calls = *calls.get_or_insert_with(callers);
        let next = NEXT.load(Relaxed);
        match posts.get_mut(next) {
            Some(oldest) => *oldest = (buffer, calls),
            None => posts.push((buffer, calls)),
        }
        NEXT.store((next + 1) % KNOWN, Relaxed);
    }
}

/// The latest that had this byte.
pub(super) fn find(half: Half, address: u64) -> Option<(Posted, Callers)> {
    let posts = POSTS.lock();
    let (older, newer) = posts.split_at(NEXT.load(Relaxed).min(posts.len()));
    let mut latest = older.iter().rev().chain(newer.iter().rev());
    latest.find(|(it, _)| it.half == half && address.wrapping_sub(it.address) < it.length).cloned()
}

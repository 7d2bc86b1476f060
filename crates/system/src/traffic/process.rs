//! What a process has counted that belongs to no queue pair that is there.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use transom_device::protection::Reason;

use super::{Moves, Totals, Traffic};

/// The part of a process's counters that belongs to no queue pair that is there.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ProcessTraffic {
    /// What queue pairs carried that are gone.
    pub(crate) ended: Traffic,
    pub(crate) moves: Moves,
    /// How many places are in use, or were.
    places: AtomicU32,
    /// All of it is in the sums of the registry.
    settled: AtomicU32,
    /// Refusals, by the code of their reason.
    refusals: [AtomicU64; REASONS],
}

/// Room for the codes of reasons.
const REASONS: usize = 64;

const _: () = {
    let mut left = Reason::ALL;
    while let [reason, rest @ ..] = left {
        assert!((reason.code() as usize) < REASONS);
        left = rest;
    }
};

/// Everything that a process has counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessTotals {
    /// Its queue pairs, those that are gone too.
    pub all: Totals,
    refusals: [u64; REASONS],
}

impl Default for ProcessTotals {
    fn default() -> Self {
        Self { all: Totals::default(), refusals: [0; REASONS] }
    }
}

impl ProcessTotals {
    /// How often something was refused for this reason.
    pub fn refusals(&self, reason: Reason) -> u64 {
        self.refusals[usize::from(reason.code())]
    }

    /// Adds another process's.
    pub fn add(&mut self, other: &Self) {
        self.all.add(&other.all);
        for (sum, more) in self.refusals.iter_mut().zip(other.refusals) {
            *sum = sum.wrapping_add(more);
        }
    }
}

impl ProcessTraffic {
    /// Something is refused for this reason.
    pub fn note_refusal(&self, reason: Reason) {
        if let Some(counter) = self.refusals.get(usize::from(reason.code())) {
            counter.fetch_add(1, Relaxed);
        }
    }

    /// How many places have been opened, if the process tells the truth.
    pub fn places(&self) -> u32 {
        self.places.load(Acquire)
    }

    /// So many places are open now.
    pub(crate) fn open(&self, places: u32) {
        self.places.fetch_max(places, AcqRel);
    }

    /// Whether all of it is in the sums of the registry, and has to be left out here.
    pub fn is_settled(&self) -> bool {
        self.settled.load(SeqCst) != 0
    }

    /// Says that it is. True for the one who has to add it there.
    pub(crate) fn settle(&self) -> bool {
        self.settled.swap(1, SeqCst) == 0
    }

    /// Adds an ended process's.
    pub(crate) fn collect(&self, totals: &ProcessTotals) {
        self.ended.collect(&totals.all);
        for (counter, count) in self.refusals.iter().zip(totals.refusals) {
            counter.fetch_add(count, Relaxed);
        }
    }

    /// What is counted here, and what was collected.
    pub(crate) fn get(&self) -> ProcessTotals {
        ProcessTotals { all: self.ended.get(), refusals: self.refusal_counts() }
    }

    fn refusal_counts(&self) -> [u64; REASONS] {
        self.refusals.each_ref().map(|counter| counter.load(Relaxed))
    }
}

//! Ranges of memory: the ranges of regions, and the parts of them that were given back.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::Call;

/// Whether two ranges have bytes in common.
pub(super) fn overlap(one: &Range<u64>, two: &Range<u64>) -> bool {
    one.start < two.end && two.start < one.end
}

/// How memory is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It is unmapped.
    Unmapped,
    /// Its pages are dropped. The next access to it gets new pages.
    Emptied,
    /// It is memory that Transom shares with peers, and was freed or emptied. Transom gives it out again when its
    /// regions have ended.
    Dropped,
    /// It was freed and is still mapped. The allocator may give it out again.
    Freed,
    /// It was freed and is unmapped.
    FreedAndUnmapped,
}

impl How {
    pub(super) const fn was(self) -> &'static str {
        match self {
            Self::Unmapped => "unmapped",
            Self::Emptied => "emptied by madvise",
            Self::Dropped => "given back",
            Self::Freed => "freed",
            Self::FreedAndUnmapped => "freed and unmapped",
        }
    }

    pub(super) fn here(self) -> String {
        format!("{} here", self.was())
    }
}

/// Memory of a region whose pages the program cannot get back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gone {
    pub(super) region: u64,
    pub(super) range: Range<u64>,
    pub(super) how: How,
    pub(super) call: Call,
}

/// Registrations by their addresses.
#[derive(Debug, Default)]
pub(super) struct Spans {
    /// The end of each, by its start and number.
    all: BTreeMap<(u64, u64), u64>,
    /// The length of the longest one that ever was added, in bytes.
    longest: u64,
}

impl Spans {
    pub(super) fn add(&mut self, number: u64, range: &Range<u64>) {
        self.longest = self.longest.max(range.end - range.start);
        self.all.insert((range.start, number), range.end);
    }

    pub(super) fn remove(&mut self, number: u64, range: &Range<u64>) {
        self.all.remove(&(range.start, number));
    }

    pub(super) fn of(&self, range: &Range<u64>) -> Vec<u64> {
        let first = (range.start.saturating_sub(self.longest), 0);
        let near = self.all.range(first..(range.end, 0));
        near.filter(|(_, end)| **end > range.start).map(|((_, number), _)| *number).collect()
    }
}

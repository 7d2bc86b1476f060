//! How long and how often.

use std::time::Duration;

/// How much is measured.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    pub(super) rounds: usize,
    /// How long each contender has in a round.
    pub(super) budget: Duration,
    /// Windows where there are many.
    pub(super) windows: usize,
    /// Queue pairs where there are many.
    pub(super) queue_pairs: usize,
    pub(super) idle: Duration,
}

impl Extent {
    pub(super) fn new(quick: bool) -> Self {
        let (rounds, milliseconds, windows, queue_pairs, seconds) =
            if quick { (3, 5, 100_000, 1000, 1) } else { (11, 20, 1_000_000, 10_000, 10) };
        Self {
            rounds,
            budget: Duration::from_millis(milliseconds),
            windows,
            queue_pairs,
            idle: Duration::from_secs(seconds),
        }
    }
}

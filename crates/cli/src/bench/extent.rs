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
    /// Processes where there are many.
    pub(super) processes: usize,
    pub(super) idle: Duration,
}

impl Extent {
    pub(super) fn new(quick: bool) -> Self {
        if quick {
            return Self {
                rounds: 3,
                budget: Duration::from_millis(5),
                windows: 100_000,
                queue_pairs: 1000,
                processes: 8,
                idle: Duration::from_secs(1),
            };
        }
        Self {
            rounds: 11,
            budget: Duration::from_millis(20),
            windows: 1_000_000,
            queue_pairs: 10_000,
            processes: 64,
            idle: Duration::from_secs(10),
        }
    }
}

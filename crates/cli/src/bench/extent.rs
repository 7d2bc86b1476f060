//! The length and number of measurements.

use std::time::Duration;

/// How much is measured.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    pub(super) rounds: usize,
    /// The time of each contender in a round.
    pub(super) budget: Duration,
    /// The number of windows in workloads with many.
    pub(super) windows: usize,
    /// The number of queue pairs in workloads with many.
    pub(super) queue_pairs: usize,
    /// The number of processes in workloads with many.
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

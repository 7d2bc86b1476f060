//! How the processes of a measurement are set up.

use serde::{Deserialize, Serialize};

/// Who of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Side {
    /// It starts the other, and looks at the clock.
    Near,
    Far,
}

/// What a process is started as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Role {
    /// The near side of two that measure.
    Near,
    /// The far side.
    Far,
    /// One of many that are only connected.
    Bystander,
}

/// How two processes are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Setup {
    /// Their memory is shared.
    pub(super) shared: bool,
    /// They are started as by `transom run`.
    pub(super) run: bool,
    /// Each is in a network namespace of its own, and packets cross a veth pair.
    pub(super) wire: bool,
    pub(super) queue_pairs: usize,
    /// Processes that are connected with both, and with each other.
    pub(super) bystanders: usize,
    /// Where near and far run.
    pub(super) processors: Option<[usize; 2]>,
}

/// What the two say when they are connected.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Connected {
    /// Near and far.
    pub(super) pids: [u32; 2],
    /// Whether memory is shared, which not every system can.
    pub(super) is_shared: bool,
    /// Nanoseconds for each queue pair from its creation to RTS, at one end.
    pub(super) connecting: f64,
}

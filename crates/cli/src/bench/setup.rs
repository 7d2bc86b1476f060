//! The setup of measuring processes.

use serde::{Deserialize, Serialize};
use transom_abi::{IBV_MTU_1024, IBV_MTU_4096, ibv_mtu};

/// One of two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Side {
    /// The side that starts the other, and reads the clock.
    Near,
    Far,
}

/// The role that a process starts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Role {
    /// The near side of two that measure.
    Near,
    /// The far side.
    Far,
    /// One of many that only exist and are connected.
    Bystander,
}

/// The MTU of the interfaces between two network namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Mtu {
    /// 1500 bytes, as on most networks.
    Usual,
    /// 9000 bytes.
    Jumbo,
}

impl Mtu {
    /// In bytes, of the interfaces.
    pub(super) fn bytes(self) -> u32 {
        match self {
            Self::Usual => 1500,
            Self::Jumbo => 9000,
        }
    }

    /// The path MTU that fits: the bytes of a message in each packet.
    pub(super) fn path(self) -> (ibv_mtu, usize) {
        match self {
            Self::Usual => (IBV_MTU_1024, 1024),
            Self::Jumbo => (IBV_MTU_4096, 4096),
        }
    }
}

/// How two processes are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Setup {
    /// Whether their memory is shared.
    pub(super) shared: bool,
    /// Whether they start as under `transom run`.
    pub(super) run: bool,
    /// If each is in a network namespace of its own, and packets cross a veth pair: its MTU.
    pub(super) wire: Option<Mtu>,
    pub(super) queue_pairs: usize,
    /// The number of processes that are connected to both, and to each other.
    pub(super) bystanders: usize,
    /// The processors of near and far.
    pub(super) processors: Option<[usize; 2]>,
}

/// The answer of the two when they are connected.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Connected {
    /// The PIDs of near and far.
    pub(super) pids: [u32; 2],
    /// Whether memory is shared. Not every system can do that.
    pub(super) is_shared: bool,
    /// Nanoseconds for each queue pair from its creation to RTS, at one end.
    pub(super) connecting: f64,
    /// Nanoseconds for the memory alone: `malloc` of as many bytes, and five page faults.
    pub(super) memory: f64,
}

//! What each authority promises, as far as two of its promises differ.

use super::program::{Request, Verb};

/// Who says what may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authority {
    /// The InfiniBand specification, and the manual pages of rdma-core: the least.
    Spec,
    /// The published model of RDMA on x86, with PCIe in its usual order.
    Model,
    /// Transom's plain `run` on x86-64, on any of its links, with memory of any kind.
    Run,
}

/// What a request is, for the order of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Changes memory there, or consumes a receive there.
    Write,
    /// Reads memory there.
    Read,
    /// Does both.
    Atomic,
    /// Has nothing to do there.
    Local,
}

impl Request {
    /// What it is, for the order of two.
    pub fn kind(&self) -> Kind {
        match self.verb {
            Verb::Put(_) | Verb::PutImmediate(..) | Verb::Send(_) => Kind::Write,
            Verb::Get(..) | Verb::Flush => Kind::Read,
            Verb::FetchAdd(..) | Verb::CompareSwap(..) => Kind::Atomic,
            Verb::Bind(_) | Verb::Invalidate(_) => Kind::Local,
        }
    }
}

/// In which order what was written reaches memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// As it came, word by word.
    InOrder,
    /// One message as a whole after another; its words in any order.
    ByMessage,
    /// In any order, but for words of the same location.
    Any,
}

impl Authority {
    /// All, in the order of the table's columns.
    pub const ALL: [Self; 3] = [Self::Spec, Self::Model, Self::Run];

    /// Its column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spec => "spec",
            Self::Model => "model",
            Self::Run => "run",
        }
    }

    /// Whether the second of two requests of one queue pair, without a fence, is carried out after the first at their
    /// target.
    pub fn keeps(self, first: Kind, second: Kind) -> bool {
        match (self, first, second) {
            (_, Kind::Local, _) | (_, _, Kind::Local) => false,
            (Self::Run, ..) => true,
            (Self::Spec, Kind::Read | Kind::Atomic, second) => second == Kind::Read,
            // PCIe lets a read pass another, and a write pass a read.
            (Self::Model, Kind::Read, _) => false,
            _ => true,
        }
    }

    /// The order in which words reach the target's memory.
    pub fn placement(self) -> Placement {
        match self {
            Self::Spec => Placement::Any,
            Self::Model => Placement::InOrder,
            Self::Run => Placement::ByMessage,
        }
    }

    /// Whether a READ waits until earlier WRITEs of its queue pair are in memory. Otherwise it only sees their data.
    pub fn read_pushes_writes(self) -> bool {
        self != Self::Spec
    }

    /// Whether a WRITE completes only when all can see its data.
    pub fn write_completes_when_seen(self) -> bool {
        self == Self::Run
    }

    /// Whether an atomic completes only when all can see what it wrote.
    pub fn atomic_completes_when_seen(self) -> bool {
        self != Self::Spec
    }

    /// Whether a WRITE of another queue pair cannot come between the read and the write of an atomic. A processor can, by
    /// all authorities.
    pub fn atomic_excludes_writes(self) -> bool {
        self == Self::Spec
    }

    /// Whether the sources of WRITEs are read in order, and what READs brought lands in order.
    pub fn local_side_in_order(self) -> bool {
        self != Self::Spec
    }
}

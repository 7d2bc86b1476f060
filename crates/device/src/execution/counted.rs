//! The operations that completion counters count (rules G.9).

use bitflags::bitflags;

use crate::operation::Operation;
use crate::qp::Service;
use crate::queue::SendOp;

bitflags! {
    /// Operations that a completion counter may count, with the bits of
    /// `enum ibv_qp_attach_comp_cntr_op` (rule CC-05).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Counted: u32 {
        /// Any SEND posted here.
        const SEND = 1 << 0;
        /// Any message received here, WRITE with immediate included.
        const RECV = 1 << 1;
        /// READ posted here.
        const READ = 1 << 2;
        /// READ of the peer's.
        const REMOTE_READ = 1 << 3;
        /// Any WRITE posted here.
        const WRITE = 1 << 4;
        /// Any WRITE of the peer's.
        const REMOTE_WRITE = 1 << 5;
    }
}

impl Counted {
    /// Operations that only the other end posts.
    pub const REMOTE: Self = Self::REMOTE_READ.union(Self::REMOTE_WRITE);

    /// The operations that a queue pair can count. The receiving end of XRC has none: its messages are carried out by
    /// the process that has the shared receive queue they name.
    pub fn of(service: Service) -> Self {
        match service {
            Service::Rc => Self::all(),
            Service::Uc => Self::SEND | Self::RECV | Self::WRITE | Self::REMOTE_WRITE,
            Service::Ud => Self::SEND | Self::RECV,
            Service::XrcInitiator => Self::SEND | Self::READ | Self::WRITE,
            Service::XrcTarget => Self::empty(),
        }
    }

    /// The operation that a work request counts as (rule CC-13).
    #[inline]
    pub(super) fn of_posted(op: &SendOp) -> Option<Self> {
        match op.operation()? {
            Operation::Send => Some(Self::SEND),
            Operation::Write => Some(Self::WRITE),
            Operation::Read => Some(Self::READ),
            Operation::CompareSwap
            | Operation::FetchAdd
            | Operation::AtomicWrite
            | Operation::Flush
            | Operation::FlushPersistent
            | Operation::Bind
            | Operation::Invalidate
            | Operation::RemoteInvalidate
            | Operation::LocalRead
            | Operation::LocalWrite => None,
        }
    }

    /// The operation that a peer's request counts as, unless it is counted with the receive it takes.
    pub(super) fn of_peer(operation: Operation) -> Option<Self> {
        match operation {
            Operation::Write => Some(Self::REMOTE_WRITE),
            Operation::Read => Some(Self::REMOTE_READ),
            Operation::Send
            | Operation::CompareSwap
            | Operation::FetchAdd
            | Operation::AtomicWrite
            | Operation::Flush
            | Operation::FlushPersistent
            | Operation::Bind
            | Operation::Invalidate
            | Operation::RemoteInvalidate
            | Operation::LocalRead
            | Operation::LocalWrite => None,
        }
    }
}

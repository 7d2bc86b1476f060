//! Why something was refused. Statuses, NAK codes and `transom explain` all derive from this.

use crate::numbered::numbered;
use crate::operation::{Operation, Subject};
use transom_wire::NakCode;

numbered! {
    /// The reason of a refusal, each from the one place that decides it.
    #[derive(thiserror::Error)]
    pub enum Reason {
        /// No object has this key's index.
        #[error("no object has this key")]
        UnknownIndex = 1,
        /// The object exists, but its key byte is another one now.
        #[error("the object has another key now")]
        StaleKey = 2,
        /// The window is not bound.
        #[error("the window is not bound")]
        FreeWindow = 3,
        /// The object belongs to another protection domain.
        #[error("the object belongs to another protection domain")]
        OtherPd = 4,
        /// The window is bound through another queue pair.
        #[error("the window is bound through another queue pair")]
        OtherQp = 5,
        /// The object does not grant a right that the operation needs.
        #[error("the object does not grant the right that is needed")]
        RightMissing = 6,
        /// The range begins before the object.
        #[error("the range begins before the object")]
        BelowStart = 7,
        /// The range ends past the object.
        #[error("the range ends past the object")]
        PastEnd = 8,
        /// The end of the range is beyond 2^64.
        #[error("the end of the range is beyond 2^64")]
        Wraps = 9,
        /// An atomic's address is not a multiple of eight.
        #[error("the address is not a multiple of eight")]
        Misaligned = 10,
        /// A window's key was used where only a region's will do.
        #[error("only a region's key will do")]
        NotARegion = 11,
        /// The queue pair does not allow this operation from its peer.
        #[error("the queue pair does not allow the operation from its peer")]
        QpRightMissing = 12,
        /// The queue pair serves no RDMA READ or atomic (`max_dest_rd_atomic` is zero or used up).
        #[error("the queue pair serves no RDMA READ or atomic, or no more now")]
        NoReadResources = 13,
        /// The message is longer than 2^31 bytes.
        #[error("the message is longer than 2^31 bytes")]
        TooLong = 14,
        /// The memory is no longer there, or no longer allows it.
        #[error("the memory is no longer there, or no longer allows it")]
        MemoryGone = 15,
        /// The receive buffer is smaller than the message.
        #[error("the receive buffer is smaller than the message")]
        ReceiveTooSmall = 16,
        /// A bind to a region without MW_BIND.
        #[error("the region does not allow windows")]
        RegionForbidsBinding = 17,
        /// A window with remote write or atomic on a region without local write.
        #[error("the window is to be written to, and its region is not writable here")]
        RegionNotWritable = 18,
        /// A type 2 window that is bound already.
        #[error("the window is bound already")]
        WindowNotFree = 19,
        /// A type 2 window bound with length zero.
        #[error("the window would have no bytes")]
        EmptyWindow = 20,
        /// The window is of the other type.
        #[error("the window is of the other type")]
        WrongType = 21,
        /// An invalidation names an ordinary region.
        #[error("the key is a region's")]
        NotAWindow = 22,
        /// Rights that no window can have.
        #[error("no window can have these rights")]
        UnknownRights = 23,
        /// The operation does not exist on this kind of queue pair.
        #[error("the service of the queue pair does not have the operation")]
        WrongService = 24,
        /// The length of an atomic's buffer is not eight.
        #[error("the buffer of an atomic is not eight bytes")]
        AtomicLength = 25,
        /// No shared receive queue of the XRC domain has this number.
        #[error("no shared receive queue of the XRC domain has this number")]
        UnknownSrq = 26,
        /// A packet that cannot follow the one before it, or is of no known operation.
        #[error("the packet cannot follow the one before it, or is of no known operation")]
        PacketOrder = 27,
        /// A packet whose length is not what its message asks for.
        #[error("the packet is not as long as its message asks for")]
        PacketLength = 28,
        /// A user wants it refused as an access that is not allowed (`transom run --fault`).
        #[error("a fault was asked for: an access that is not allowed")]
        InjectedAccess = 29,
        /// A user wants it refused as a request that is wrong.
        #[error("a fault was asked for: a request that is wrong")]
        InjectedRequest = 30,
        /// A user wants it refused as one that could not be carried out.
        #[error("a fault was asked for: a request that could not be carried out")]
        InjectedOperational = 31,
        /// A type 1 window that shall be zero-based.
        #[error("a window of type 1 cannot be zero-based")]
        ZeroBasedWindow = 32,
        /// A type 1 window on a zero-based region.
        #[error("no window of type 1 is bound to a zero-based region")]
        ZeroBasedRegion = 33,
        /// The queue pair sends no READ or atomic (`max_rd_atomic` is zero).
        #[error("the queue pair sends no READ or atomic, for its max_rd_atomic is 0")]
        NoReadsSent = 34,
    }
}

impl Reason {
    /// A responder's answer to a remote access refused for this reason (rules E.3).
    pub const fn nak(self) -> NakCode {
        match self {
            Self::Misaligned
            | Self::QpRightMissing
            | Self::NoReadResources
            | Self::NoReadsSent
            | Self::TooLong
            | Self::ReceiveTooSmall
            | Self::UnknownSrq
            | Self::WrongService
            | Self::PacketOrder
            | Self::PacketLength
            | Self::InjectedRequest => NakCode::InvalidRequest,
            Self::MemoryGone | Self::InjectedOperational => NakCode::RemoteOperational,
            Self::UnknownIndex
            | Self::StaleKey
            | Self::FreeWindow
            | Self::OtherPd
            | Self::OtherQp
            | Self::RightMissing
            | Self::BelowStart
            | Self::PastEnd
            | Self::Wraps
            | Self::NotARegion
            | Self::RegionForbidsBinding
            | Self::RegionNotWritable
            | Self::WindowNotFree
            | Self::EmptyWindow
            | Self::WrongType
            | Self::NotAWindow
            | Self::UnknownRights
            | Self::ZeroBasedWindow
            | Self::ZeroBasedRegion
            | Self::AtomicLength
            | Self::InjectedAccess => NakCode::RemoteAccess,
        }
    }

    /// The rule that refuses this operation.
    pub const fn rule(self, operation: Operation) -> &'static str {
        use Subject::*;
        let needs = operation.needs();
        match self {
            Self::UnknownIndex => match needs.subject {
                Binding => "T1-31",
                LocalWindow => "INV-13",
                RemoteWindow => "INV-35",
                LocalSource => "LA-06",
                LocalDestination => "LA-09",
                RemoteMemory | Receive => "RA-23",
            },
            Self::StaleKey => match needs.subject {
                Binding => "T1-31",
                LocalWindow => "INV-12",
                RemoteWindow => "INV-35",
                LocalSource | LocalDestination => "LA-06",
                RemoteMemory | Receive => "RA-24",
            },
            Self::FreeWindow => match needs.subject {
                LocalWindow => "INV-15",
                RemoteWindow => "INV-39",
                RemoteMemory | Receive | LocalSource | LocalDestination | Binding => "RA-26",
            },
            Self::OtherPd => match needs.subject {
                Binding => "T1-30",
                LocalWindow | RemoteWindow => "INV-17",
                LocalSource => "LA-12",
                LocalDestination => "LA-13",
                RemoteMemory | Receive => "RA-25",
            },
            Self::OtherQp => match needs.subject {
                LocalWindow => "INV-11",
                RemoteWindow => "INV-37",
                RemoteMemory | Receive | LocalSource | LocalDestination | Binding => "RA-27",
            },
            Self::RightMissing => match needs.right {
                Some(right) => right.rule,
                None => "RA-31",
            },
            Self::BelowStart => match needs.subject {
                Binding => "T1-26",
                LocalSource | LocalDestination => "LA-10",
                RemoteMemory | Receive | RemoteWindow | LocalWindow => "RA-33",
            },
            Self::PastEnd => match needs.subject {
                Binding => "T1-27",
                LocalSource | LocalDestination => "LA-10",
                RemoteMemory | Receive | RemoteWindow | LocalWindow => "RA-33",
            },
            Self::Wraps => match needs.subject {
                Binding => "T1-28",
                LocalSource | LocalDestination => "LA-11",
                RemoteMemory | Receive | RemoteWindow | LocalWindow => "RA-34",
            },
            Self::Misaligned => match needs.word {
                Some(word) => word.alignment,
                None => "AT-01",
            },
            Self::AtomicLength => match needs.word {
                Some(word) => word.length,
                None => "AT-08",
            },
            Self::WrongType => match needs.subject {
                LocalWindow => "INV-14",
                RemoteWindow => "INV-36",
                RemoteMemory | Receive | LocalSource | LocalDestination | Binding => "T1-13",
            },
            Self::NotAWindow => match needs.subject {
                RemoteWindow => "INV-38",
                RemoteMemory | Receive | LocalSource | LocalDestination | Binding | LocalWindow => {
                    "INV-16"
                }
            },
            Self::NotARegion => "LA-24",
            Self::QpRightMissing => "RA-06",
            Self::NoReadResources => "RA-09",
            Self::NoReadsSent => "RN-12",
            Self::TooLong => "RA-39",
            Self::MemoryGone => "MR-40",
            Self::ReceiveTooSmall => "RA-53",
            Self::RegionForbidsBinding => "T1-20",
            Self::RegionNotWritable => "T1-21",
            Self::WindowNotFree => "T2-20",
            Self::EmptyWindow => "T2-24",
            Self::UnknownRights => "T1-14",
            Self::ZeroBasedWindow => "T1-05",
            Self::ZeroBasedRegion => "T1-06",
            Self::WrongService => "PS-06",
            Self::UnknownSrq => "RA-51",
            Self::PacketOrder => "OP-30",
            Self::PacketLength => "PK-09",
            Self::InjectedAccess => "RA-40",
            Self::InjectedRequest => "RA-50",
            Self::InjectedOperational => "RA-52",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Access;

    #[test]
    fn codes_read_back() {
        for reason in Reason::ALL {
            assert_eq!(Reason::from_code(reason.code()), Some(*reason));
        }
        for operation in Operation::ALL {
            assert_eq!(Operation::from_code(operation.code()), Some(*operation));
        }
        assert_eq!(Reason::from_code(0), None);
        assert_eq!(Reason::from_code(200), None);
    }

    /// If a FLUSH or an ATOMIC WRITE lacks a right, the rule that requires the right is named. Rule LA-04 is named only
    /// for a READ's local buffer.
    /// Rules: AT-15, AT-16, AT-17, FL-01, FL-02
    #[test]
    fn a_right_that_is_missing_has_the_rule_that_asks_for_it() {
        let rule = |operation| Reason::RightMissing.rule(operation);
        for (operation, rights, expected) in [
            (Operation::Write, Access::REMOTE_WRITE, "RA-28"),
            (Operation::Read, Access::REMOTE_READ, "RA-29"),
            (Operation::CompareSwap, Access::REMOTE_ATOMIC, "RA-30"),
            (Operation::FetchAdd, Access::REMOTE_ATOMIC, "RA-30"),
            (Operation::AtomicWrite, Access::REMOTE_WRITE, "AT-15"),
            (Operation::Flush, Access::FLUSH_GLOBAL, "FL-01"),
            (Operation::FlushPersistent, Access::FLUSH_PERSISTENT, "FL-02"),
            (Operation::LocalWrite, Access::LOCAL_WRITE, "LA-02"),
        ] {
            assert_eq!((operation.rights(), rule(operation)), (rights, expected));
        }
        let others = Operation::ALL.iter().filter(|operation| operation.needs().right.is_none());
        assert_eq!(others.count(), Operation::ALL.len() - 8, "nothing else needs a right");
        assert_eq!(Reason::Misaligned.rule(Operation::AtomicWrite), "AT-16");
        assert_eq!(Reason::AtomicLength.rule(Operation::AtomicWrite), "AT-17");
    }
}

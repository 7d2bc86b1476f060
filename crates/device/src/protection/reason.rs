//! Why something was refused. Statuses, NAK codes and `transom explain` all derive from this.

use super::{Attempt, Key, Snapshot};
use transom_wire::NakCode;

/// The reason of a refusal, each from the one place that decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Reason {
    /// No object has this key's index.
    UnknownIndex = 1,
    /// The object exists, but its key byte is another one now.
    StaleKey = 2,
    /// The window is not bound.
    FreeWindow = 3,
    /// The object belongs to another protection domain.
    OtherPd = 4,
    /// The window is bound through another queue pair.
    OtherQp = 5,
    /// The object does not grant a right that the operation needs.
    RightMissing = 6,
    /// The range begins before the object.
    BelowStart = 7,
    /// The range ends past the object.
    PastEnd = 8,
    /// The end of the range is beyond 2^64.
    Wraps = 9,
    /// An atomic's address is not a multiple of eight.
    Misaligned = 10,
    /// A window's key was used where only a region's will do.
    NotARegion = 11,
    /// The queue pair does not allow this operation from its peer.
    QpRightMissing = 12,
    /// The queue pair serves no RDMA READ or atomic (`max_dest_rd_atomic` is zero or used up).
    NoReadResources = 13,
    /// The message is longer than 2^31 bytes.
    TooLong = 14,
    /// The memory is no longer there, or no longer allows it.
    MemoryGone = 15,
    /// The receive buffer is smaller than the message.
    ReceiveTooSmall = 16,
    /// A bind to a region without MW_BIND.
    RegionForbidsBinding = 17,
    /// A window with remote write or atomic on a region without local write.
    RegionNotWritable = 18,
    /// A type 2 window that is bound already.
    WindowNotFree = 19,
    /// A type 2 window bound with length zero.
    EmptyWindow = 20,
    /// The window is of the other type.
    WrongType = 21,
    /// An invalidation names an ordinary region.
    NotAWindow = 22,
    /// Rights that no window can have.
    UnknownRights = 23,
    /// The operation does not exist on this kind of queue pair.
    WrongService = 24,
    /// The length of an atomic's buffer is not eight.
    AtomicLength = 25,
    /// No shared receive queue of the XRC domain has this number.
    UnknownSrq = 26,
    /// A packet that cannot follow the one before it, or is of no known operation.
    PacketOrder = 27,
    /// A packet whose length is not what its message asks for.
    PacketLength = 28,
    /// A user wants it refused as an access that is not allowed (`transom run --fault`).
    InjectedAccess = 29,
    /// A user wants it refused as a request that is wrong.
    InjectedRequest = 30,
    /// A user wants it refused as one that could not be carried out.
    InjectedOperational = 31,
}

impl Reason {
    const ALL: [Self; 31] = [
        Self::UnknownIndex,
        Self::StaleKey,
        Self::FreeWindow,
        Self::OtherPd,
        Self::OtherQp,
        Self::RightMissing,
        Self::BelowStart,
        Self::PastEnd,
        Self::Wraps,
        Self::Misaligned,
        Self::NotARegion,
        Self::QpRightMissing,
        Self::NoReadResources,
        Self::TooLong,
        Self::MemoryGone,
        Self::ReceiveTooSmall,
        Self::RegionForbidsBinding,
        Self::RegionNotWritable,
        Self::WindowNotFree,
        Self::EmptyWindow,
        Self::WrongType,
        Self::NotAWindow,
        Self::UnknownRights,
        Self::WrongService,
        Self::AtomicLength,
        Self::UnknownSrq,
        Self::PacketOrder,
        Self::PacketLength,
        Self::InjectedAccess,
        Self::InjectedRequest,
        Self::InjectedOperational,
    ];

    /// The reason of a code, as [`Reason::code`] gives it.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// A stable number; completions carry it as `vendor_err`.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// What a responder answers to a remote access refused for this reason (rules E.3).
    pub const fn nak(self) -> NakCode {
        match self {
            Self::Misaligned
            | Self::QpRightMissing
            | Self::NoReadResources
            | Self::TooLong
            | Self::ReceiveTooSmall
            | Self::UnknownSrq
            | Self::WrongService
            | Self::PacketOrder
            | Self::PacketLength
            | Self::InjectedRequest => NakCode::InvalidRequest,
            Self::MemoryGone | Self::InjectedOperational => NakCode::RemoteOperational,
            _ => NakCode::RemoteAccess,
        }
    }

    /// The rule that refuses, for this operation.
    pub const fn rule(self, operation: Operation) -> &'static str {
        use Operation as Op;
        match (self, operation) {
            (Self::UnknownIndex, Op::Bind) => "T1-31",
            (Self::UnknownIndex, Op::Invalidate) => "INV-13",
            (Self::UnknownIndex, Op::RemoteInvalidate) => "INV-35",
            (Self::UnknownIndex, Op::LocalRead) => "LA-06",
            (Self::UnknownIndex, Op::LocalWrite) => "LA-09",
            (Self::UnknownIndex, _) => "RA-23",
            (Self::StaleKey, Op::Bind) => "T1-31",
            (Self::StaleKey, Op::Invalidate) => "INV-12",
            (Self::StaleKey, Op::RemoteInvalidate) => "INV-35",
            (Self::StaleKey, Op::LocalRead | Op::LocalWrite) => "LA-06",
            (Self::StaleKey, _) => "RA-24",
            (Self::FreeWindow, Op::Invalidate) => "INV-15",
            (Self::FreeWindow, Op::RemoteInvalidate) => "INV-39",
            (Self::FreeWindow, _) => "RA-26",
            (Self::OtherPd, Op::Bind) => "T1-30",
            (Self::OtherPd, Op::Invalidate | Op::RemoteInvalidate) => "INV-17",
            (Self::OtherPd, Op::LocalRead) => "LA-12",
            (Self::OtherPd, Op::LocalWrite) => "LA-13",
            (Self::OtherPd, _) => "RA-25",
            (Self::OtherQp, Op::Invalidate) => "INV-11",
            (Self::OtherQp, Op::RemoteInvalidate) => "INV-37",
            (Self::OtherQp, _) => "RA-27",
            (Self::RightMissing, Op::Write | Op::AtomicWrite) => "RA-28",
            (Self::RightMissing, Op::Read) => "RA-29",
            (Self::RightMissing, Op::Atomic) => "RA-30",
            (Self::RightMissing, Op::LocalWrite) => "LA-02",
            (Self::RightMissing, _) => "LA-04",
            (Self::BelowStart, Op::Bind) => "T1-26",
            (Self::PastEnd, Op::Bind) => "T1-27",
            (Self::Wraps, Op::Bind) => "T1-28",
            (Self::BelowStart | Self::PastEnd, Op::LocalRead | Op::LocalWrite) => "LA-10",
            (Self::Wraps, Op::LocalRead | Op::LocalWrite) => "LA-11",
            (Self::BelowStart | Self::PastEnd, _) => "RA-33",
            (Self::Wraps, _) => "RA-34",
            (Self::Misaligned, _) => "AT-01",
            (Self::NotARegion, _) => "LA-24",
            (Self::QpRightMissing, _) => "RA-06",
            (Self::NoReadResources, _) => "RA-09",
            (Self::TooLong, _) => "RA-39",
            (Self::MemoryGone, _) => "MR-40",
            (Self::ReceiveTooSmall, _) => "RA-53",
            (Self::RegionForbidsBinding, _) => "T1-20",
            (Self::RegionNotWritable, _) => "T1-21",
            (Self::WindowNotFree, _) => "T2-20",
            (Self::EmptyWindow, _) => "T2-24",
            (Self::WrongType, Op::Invalidate) => "INV-14",
            (Self::WrongType, Op::RemoteInvalidate) => "INV-36",
            (Self::WrongType, _) => "T1-13",
            (Self::NotAWindow, Op::RemoteInvalidate) => "INV-38",
            (Self::NotAWindow, _) => "INV-16",
            (Self::UnknownRights, _) => "T1-14",
            (Self::WrongService, _) => "PS-06",
            (Self::AtomicLength, _) => "AT-08",
            (Self::UnknownSrq, _) => "RA-51",
            (Self::PacketOrder, _) => "OP-30",
            (Self::PacketLength, _) => "PK-09",
            (Self::InjectedAccess, _) => "RA-40",
            (Self::InjectedRequest, _) => "RA-50",
            (Self::InjectedOperational, _) => "RA-52",
        }
    }
}

/// What was being attempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Operation {
    /// A peer's RDMA WRITE, with or without immediate.
    Write = 1,
    /// A peer's RDMA READ.
    Read = 2,
    /// A peer's compare-and-swap or fetch-and-add.
    Atomic = 3,
    /// The adapter reading local memory to send it.
    LocalRead = 4,
    /// The adapter writing local memory: received data, READ data, an atomic's result.
    LocalWrite = 5,
    /// Binding a window.
    Bind = 6,
    /// LOCAL_INV.
    Invalidate = 7,
    /// The invalidation carried by a peer's SEND_WITH_INV.
    RemoteInvalidate = 8,
    /// A peer's SEND.
    Send = 9,
    /// A peer's ATOMIC WRITE.
    AtomicWrite = 10,
    /// A peer's FLUSH.
    Flush = 11,
}

impl Operation {
    const ALL: [Self; 11] = [
        Self::Write,
        Self::Read,
        Self::Atomic,
        Self::LocalRead,
        Self::LocalWrite,
        Self::Bind,
        Self::Invalidate,
        Self::RemoteInvalidate,
        Self::Send,
        Self::AtomicWrite,
        Self::Flush,
    ];

    /// The operation of a code, as `self as u8` gives it.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

/// A refusal with everything that explains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// What was attempted, by whom.
    pub attempt: Attempt,
    /// The object the key's index named, as it was.
    pub object: Snapshot,
}

impl Refusal {
    /// A refusal in which no object of the key table plays a part.
    pub fn without_object(reason: Reason, attempt: Attempt) -> Self {
        Self { reason, attempt, object: Snapshot::VACANT }
    }

    /// The key in question.
    pub fn key(&self) -> Key {
        self.attempt.key
    }

    /// The rule that refuses.
    pub fn rule(&self) -> &'static str {
        self.reason.rule(self.attempt.operation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_read_back() {
        for reason in Reason::ALL {
            assert_eq!(Reason::from_code(reason.code()), Some(reason));
        }
        for operation in Operation::ALL {
            assert_eq!(Operation::from_code(operation as u8), Some(operation));
        }
        assert_eq!(Reason::from_code(0), None);
        assert_eq!(Reason::from_code(200), None);
    }
}

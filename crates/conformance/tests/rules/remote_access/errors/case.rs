//! The errors: what is asked for, and what is wrong with it.

use std::fmt;

/// What queue pairs a case is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Service {
    Rc,
    /// RC, whose target takes its receives from a shared queue.
    RcShared,
    Uc,
    Ud,
    Xrc,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Op {
    Send,
    SendImmediate,
    SendInvalidate,
    Write,
    WriteImmediate,
    Read,
    FetchAdd,
    CompareSwap,
    AtomicWrite,
    Flush,
    Bind,
    LocalInvalidate,
}

impl Op {
    /// Whether it takes a receive of the target.
    pub(crate) fn receives(self) -> bool {
        self.is_send() || self == Self::WriteImmediate
    }

    pub(crate) fn is_send(self) -> bool {
        matches!(self, Self::Send | Self::SendImmediate | Self::SendInvalidate)
    }

    /// Whether it is of eight bytes always.
    pub(crate) fn is_word(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CompareSwap | Self::AtomicWrite)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Send => "SEND",
            Self::SendImmediate => "SEND with immediate",
            Self::SendInvalidate => "SEND with invalidate",
            Self::Write => "WRITE",
            Self::WriteImmediate => "WRITE with immediate",
            Self::Read => "READ",
            Self::FetchAdd => "fetch-and-add",
            Self::CompareSwap => "compare-and-swap",
            Self::AtomicWrite => "ATOMIC WRITE",
            Self::Flush => "FLUSH",
            Self::Bind => "bind (type 2)",
            Self::LocalInvalidate => "LOCAL_INV",
        }
    }
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    // At the origin.
    LocalKey,
    LocalBounds,
    LocalRight,
    LocalPd,
    LocalGone,
    WordLength,
    TooLong,
    NoReadsAsked,
    OtherOperation,
    AddressPd,
    DatagramTooLong,
    BadBind,
    BadInvalidate,
    // What the request names at the target.
    UnknownKey,
    StaleKey,
    EndedRegion,
    OtherPd,
    RightMissing,
    QpRight,
    BelowStart,
    PastEnd,
    Wraps,
    Gone,
    Unbound,
    BeyondWindow,
    OtherOwner,
    Misaligned,
    NoReadsAnswered,
    InvalidatesNothing,
    InvalidatesRegion,
    UnknownQueue,
    // The target's receive.
    NoReceive,
    NoReceiveUnknownKey,
    ShortReceive,
    ReceiveKey,
    ReceiveRight,
    ReceivePd,
    ReceiveGone,
    // The target itself.
    TargetReset,
    TargetInit,
    TargetError,
    TargetEnded,
    OtherPsn,
    OtherQkey,
    NoSuchNumber,
    GroupsAddress,
    MembersNumber,
}

impl Fault {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::LocalKey => "local memory by a key that nobody has",
            Self::LocalBounds => "local memory beyond its region",
            Self::LocalRight => "local memory that is not to be written",
            Self::LocalPd => "local memory of another domain",
            Self::LocalGone => "local memory that is unmapped",
            Self::WordLength => "local length is not 8",
            Self::TooLong => "message longer than 2^31",
            Self::NoReadsAsked => "origin's max_rd_atomic is 0",
            Self::OtherOperation => "operation that the service does not have",
            Self::AddressPd => "address handle of another domain",
            Self::DatagramTooLong => "datagram longer than a packet may be",
            Self::BadBind => "bind beyond the region",
            Self::BadInvalidate => "key that nobody has",
            Self::UnknownKey => "remote key that nobody has",
            Self::StaleKey => "remote key whose low byte differs",
            Self::EndedRegion => "remote key of a region deregistered since",
            Self::OtherPd => "remote key of another domain",
            Self::RightMissing => "remote region without the right",
            Self::QpRight => "target's queue pair without the right",
            Self::BelowStart => "remote address below the region",
            Self::PastEnd => "remote range beyond the region",
            Self::Wraps => "remote range beyond 2^64",
            Self::Gone => "remote memory that is unmapped",
            Self::Unbound => "remote key of a window that is not bound",
            Self::BeyondWindow => "remote range beyond the window",
            Self::OtherOwner => "remote key of another queue pair's window",
            Self::Misaligned => "remote address that is no multiple of 8",
            Self::NoReadsAnswered => "target's max_dest_rd_atomic is 0",
            Self::InvalidatesNothing => "invalidates a key that nobody has",
            Self::InvalidatesRegion => "invalidates the key of a region",
            Self::UnknownQueue => "shared receive queue that nobody has",
            Self::NoReceive => "no receive",
            Self::NoReceiveUnknownKey => "no receive, and remote key that nobody has",
            Self::ShortReceive => "receive too short",
            Self::ReceiveKey => "receive by a key that nobody has",
            Self::ReceiveRight => "receive into memory that is not to be written",
            Self::ReceivePd => "receive into memory of another domain",
            Self::ReceiveGone => "receive into memory that is unmapped",
            Self::TargetReset => "target back in RESET",
            Self::TargetInit => "target still in INIT",
            Self::TargetError => "target in ERR",
            Self::TargetEnded => "target destroyed",
            Self::OtherPsn => "target expects another PSN",
            Self::OtherQkey => "another Q_Key",
            Self::NoSuchNumber => "queue pair number that nobody has",
            Self::GroupsAddress => "one queue pair's number at a group's address",
            Self::MembersNumber => "a group's members at a host's address",
        }
    }

    /// Whether the target has no receives.
    pub(crate) fn leaves_no_receive(self) -> bool {
        matches!(self, Self::NoReceive | Self::NoReceiveUnknownKey)
    }

    /// Whether nothing answers, so that retries have to be used up.
    pub(crate) fn is_silence(self) -> bool {
        matches!(
            self,
            Self::TargetReset
                | Self::TargetInit
                | Self::TargetError
                | Self::TargetEnded
                | Self::OtherPsn
                | Self::NoSuchNumber
                | Self::InvalidatesNothing
                | Self::InvalidatesRegion
        )
    }
}

/// One error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) service: Service,
    pub(crate) op: Op,
    /// Bytes.
    pub(crate) length: u32,
    pub(crate) fault: Fault,
}

impl Case {
    pub(crate) fn service_name(&self) -> &'static str {
        match self.service {
            Service::Rc => "RC",
            Service::RcShared => "RC, shared receives",
            Service::Uc => "UC",
            Service::Ud => "UD",
            Service::Xrc => "XRC",
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, length, fault, .. } = self;
        let (service, op) = (self.service_name(), op.name());
        write!(f, "{service}, {op} of {length} bytes: {}", fault.name())
    }
}

/// One packet.
pub(crate) const WORD: u32 = 8;
/// Three packets.
const PACKETS: u32 = 3000;
/// More than any link takes at once.
const SEGMENTS: u32 = 1_200_000;

/// Every error.
pub(crate) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    let mut add = |service, ops: &[Op], lengths: &[u32], faults: &[Fault]| {
        for fault in faults {
            for op in ops {
                let of = lengths.iter().filter(|length| **length == WORD || !op.is_word());
                all.extend(of.map(|&length| Case { service, op: *op, length, fault: *fault }));
            }
        }
    };
    use Fault::*;
    use Op::*;
    use Service::*;
    let lengths = &[WORD, PACKETS, SEGMENTS];
    let (sends, word) = (&[Send, SendImmediate, SendInvalidate], &[WORD]);
    let data = &[Write, WriteImmediate, Read];
    let words = &[FetchAdd, CompareSwap, AtomicWrite];

    let gathers = &[Send, Write, WriteImmediate];
    add(Rc, gathers, lengths, &[LocalKey, LocalBounds, LocalPd, LocalGone]);
    let scatters = &[Read, FetchAdd, CompareSwap];
    add(Rc, scatters, word, &[LocalKey, LocalBounds, LocalRight, LocalPd, LocalGone]);
    add(Rc, &[Read], &[SEGMENTS], &[LocalKey, LocalBounds, LocalRight]);
    add(Rc, words, word, &[WordLength]);
    add(Rc, &[Send, Write, WriteImmediate, Read], word, &[TooLong]);
    add(Rc, &[Read, FetchAdd, CompareSwap, AtomicWrite, Flush], word, &[NoReadsAsked]);
    add(Rc, &[Bind], word, &[BadBind]);
    add(Rc, &[LocalInvalidate], word, &[BadInvalidate]);

    let named = &[UnknownKey, StaleKey, EndedRegion, OtherPd, RightMissing, QpRight, PastEnd];
    let placed = &[BelowStart, Wraps, Gone, Unbound, BeyondWindow, OtherOwner];
    add(Rc, data, lengths, named);
    add(Rc, data, word, placed);
    add(Rc, words, word, named);
    add(Rc, words, word, &[BelowStart, Gone, Unbound, BeyondWindow, OtherOwner]);
    add(Rc, &[Flush], word, &[UnknownKey, StaleKey, EndedRegion, OtherPd, RightMissing, PastEnd]);
    add(Rc, words, word, &[Misaligned]);
    add(Rc, &[Read, FetchAdd, CompareSwap, AtomicWrite, Flush], word, &[NoReadsAnswered]);
    add(Rc, &[SendInvalidate], word, &[InvalidatesNothing, InvalidatesRegion]);

    let received = &[ShortReceive, ReceiveKey, ReceiveRight, ReceivePd, ReceiveGone];
    for service in [Rc, RcShared] {
        add(service, sends, word, &[NoReceive]);
        add(service, &[WriteImmediate], word, &[NoReceive]);
        add(service, &[Send], lengths, received);
        add(service, &[SendImmediate, SendInvalidate], word, received);
    }
    add(Rc, &[WriteImmediate], lengths, &[NoReceiveUnknownKey]);
    add(RcShared, &[Write, Read, FetchAdd], word, &[UnknownKey]);
    add(RcShared, &[WriteImmediate], lengths, &[UnknownKey]);
    let absent = &[TargetReset, TargetInit, TargetError, TargetEnded, OtherPsn, NoSuchNumber];
    add(Rc, &[Send, Write, Read, FetchAdd], word, absent);

    add(Uc, gathers, lengths, &[LocalKey, LocalBounds, LocalGone]);
    add(Uc, &[Read, FetchAdd], word, &[OtherOperation]);
    add(Uc, &[Write, WriteImmediate], lengths, &[UnknownKey, RightMissing, QpRight, PastEnd]);
    add(Uc, &[Write, WriteImmediate], word, &[Gone]);
    add(Uc, &[Send, WriteImmediate], word, &[NoReceive]);
    add(Uc, &[Send], lengths, received);
    add(Uc, &[Send, Write], word, &[TargetReset, TargetError, TargetEnded, NoSuchNumber]);

    add(Ud, &[Send], word, &[LocalKey, LocalBounds, LocalGone, AddressPd, DatagramTooLong]);
    add(Ud, &[Send, SendImmediate], word, &[NoReceive]);
    add(Ud, &[Send], word, received);
    add(Ud, &[Send], word, &[GroupsAddress, MembersNumber]);
    add(Ud, &[Send], word, &[OtherQkey, NoSuchNumber, TargetReset, TargetError, TargetEnded]);

    add(Xrc, &[Send, Write], word, &[LocalKey]);
    add(Xrc, &[Send, Write, WriteImmediate, Read, FetchAdd], word, &[UnknownQueue]);
    add(Xrc, data, lengths, &[UnknownKey, RightMissing, QpRight]);
    add(Xrc, &[FetchAdd], word, &[UnknownKey, Misaligned]);
    add(Xrc, &[Send, WriteImmediate], word, &[NoReceive]);
    add(Xrc, &[Send], lengths, received);
    add(Xrc, &[SendInvalidate], word, &[InvalidatesNothing]);
    add(Xrc, &[Send, Write], word, &[TargetReset, TargetError, TargetEnded]);
    all.sort_by_key(|case| (case.service, case.fault, case.op, case.length));
    all
}

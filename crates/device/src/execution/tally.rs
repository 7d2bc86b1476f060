//! What happens to the work of a queue pair, beside that it is carried out: named for those who count it.

use crate::numbered::numbered;
use crate::queue::Status;
use transom_wire::NakCode;

numbered! {
    /// Something to count. Each is seen by one half of a queue pair only.
    pub enum Tally {
        /// A window was bound.
        Bound = 0,
        /// A key was invalidated by this end.
        Invalidated = 1,
        /// A request of the send queue ended in error, flushed ones included.
        SendFailed = 2,
        /// A request of the send queue was flushed.
        SendFlushed = 3,
        /// The other end answered that an access is not allowed.
        RemoteAccess = 4,
        /// The other end answered that a request is invalid.
        RemoteInvalid = 5,
        /// The other end was not ready, and asked to wait.
        NotReady = 6,
        /// How long it asked to wait, in nanoseconds.
        NotReadyTime = 7,
        /// No answer came in time.
        Timeout = 8,
        /// The other end missed a packet, and said so.
        SequenceError = 9,
        /// An answer showed that an earlier one is missing.
        ImpliedSequenceError = 10,
        /// A receive ended in error, flushed ones included.
        ReceiveFailed = 11,
        /// A receive was flushed.
        ReceiveFlushed = 12,
        /// A message was longer than its receive.
        LengthError = 13,
        /// A peer's access was refused.
        AccessRefused = 14,
        /// A peer's message found no receive.
        NoReceive = 15,
        /// A peer's packet had come before.
        Duplicate = 16,
        /// A peer's packet came too early: one before it is missing.
        OutOfSequence = 17,
        /// A peer invalidated a key.
        InvalidatedByPeer = 18,
        /// No answer came, however often a request was sent.
        RetryExceeded = 19,
        /// The other end was not ready, however often it was asked.
        NotReadyExceeded = 20,
        /// A datagram left for a group.
        GroupSent = 21,
        /// A datagram for a group was received that came without packets.
        GroupReceived = 22,
    }
}

impl Tally {
    /// The kind of error that a request of the send queue ended in, if it is counted apart.
    pub(super) fn of_send(status: Status) -> Option<Self> {
        match status {
            Status::Flushed => Some(Self::SendFlushed),
            Status::RemoteAccess => Some(Self::RemoteAccess),
            Status::RemoteInvalidRequest => Some(Self::RemoteInvalid),
            Status::RetryExceeded => Some(Self::RetryExceeded),
            Status::RnrRetryExceeded => Some(Self::NotReadyExceeded),
            _ => None,
        }
    }

    /// The kind of error that a receive ended in, if it is counted apart.
    pub(super) fn of_receive(status: Status) -> Option<Self> {
        match status {
            Status::Flushed => Some(Self::ReceiveFlushed),
            Status::LocalLength => Some(Self::LengthError),
            _ => None,
        }
    }

    /// The kind of refusal of a peer's request, if it is counted apart. All refusals are counted by their reasons.
    pub(super) fn of_refusal(nak: NakCode) -> Option<Self> {
        (nak == NakCode::RemoteAccess).then_some(Self::AccessRefused)
    }
}

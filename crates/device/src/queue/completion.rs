//! Completions (rules G.5, G.6).

use bitflags::bitflags;

use crate::numbered::numbered;
use crate::operation::Opcode;

numbered! {
    /// Statuses, with the values of `enum ibv_wc_status` (rules WC-00 to WC-23).
    #[non_exhaustive]
    pub enum Status {
        /// Done.
        Success = 0,
        /// The receive buffer was too small, or a length is wrong.
        LocalLength = 1,
        /// The queue pair does not do this.
        LocalQpOperation = 2,
        /// A local buffer may not be used so.
        LocalProtection = 4,
        /// Not done: the queue pair had failed or was told to fail.
        Flushed = 5,
        /// A bind or invalidation was refused.
        WindowBind = 6,
        /// The answer does not fit the request.
        BadResponse = 7,
        /// A WRITE with immediate was refused after it had taken a receive.
        LocalAccess = 8,
        /// The peer called the request invalid.
        RemoteInvalidRequest = 9,
        /// The peer refused access.
        RemoteAccess = 10,
        /// The peer could not carry it out.
        RemoteOperation = 11,
        /// No answer, after all retries.
        RetryExceeded = 12,
        /// The peer had no receive posted, after all retries.
        RnrRetryExceeded = 13,
        /// A tagged buffer to be removed is not there any more.
        TagMatching = 22,
    }
}

bitflags! {
    /// With the values of `enum ibv_wc_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Flags: u8 {
        /// The first 40 bytes of the receive buffer are the GRH area (rule UD-01).
        const GRH = 1;
        /// The immediate field is valid.
        const IMMEDIATE = 2;
        /// The message asked for an event; programs are not told.
        const SOLICITED = 4;
        /// The immediate field is the key that was invalidated.
        const INVALIDATED = 8;
        /// New tagged buffers wait until the count of unexpected messages is reported.
        const TAG_SYNC_REQUIRED = 16;
        /// The datagram's header is that of IPv4; programs learn it by the service level only.
        const IPV4 = 128;
        /// A tagged buffer matched; the tag fields are valid.
        const TAG_MATCH = 32;
        /// The tagged buffer holds the data.
        const TAG_DATA_VALID = 64;
    }
}

/// A work queue that completes into a completion queue, by the name that it has there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Feeder(pub(super) u32);

/// One work completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The consumer's number of the work request.
    pub wr_id: u64,
    /// How it ended.
    pub status: Status,
    /// The operation. It is set on errors too.
    pub opcode: Opcode,
    /// The code of the [`Reason`](crate::protection::Reason), zero if none.
    pub vendor_error: u8,
    /// Bytes received, read, or returned by an atomic.
    pub byte_length: u32,
    /// Immediate data in network order, or the invalidated key.
    pub immediate: u32,
    /// The queue pair of the work request.
    pub qp: u32,
    /// Which fields are valid.
    pub flags: Flags,
    /// A received datagram's sender (rule UD-07).
    pub source_qp: u32,
    /// When it was added to its queue, in the host's nanoseconds, if the queue wanted to know.
    pub time: u64,
    /// The tag of a matched message.
    pub tag: u64,
    /// The sender's own data beside the tag.
    pub tag_context: u32,
    /// The places of its work queue that are free once it is polled: its own, and those of work before it that
    /// has no completion.
    pub places: u32,
    /// The work queue that added it.
    pub feeder: Feeder,
}

// They are copied a lot, and a queue's memory is full of them.
const _: () = assert!(size_of::<Completion>() == 56);

impl Completion {
    /// A completion in which only the given fields are valid.
    pub fn new(wr_id: u64, status: Status, opcode: Opcode, qp: u32) -> Self {
        Self {
            wr_id,
            status,
            opcode,
            vendor_error: 0,
            byte_length: 0,
            immediate: 0,
            qp,
            flags: Flags::empty(),
            source_qp: 0,
            time: 0,
            tag: 0,
            tag_context: 0,
            places: 0,
            feeder: Feeder::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number for every status. If you add one, decide here whether it may occur.
    fn number(status: Status) -> u32 {
        match status {
            Status::Success => 0,
            Status::LocalLength => 1,
            Status::LocalQpOperation => 2,
            Status::LocalProtection => 4,
            Status::Flushed => 5,
            Status::WindowBind => 6,
            Status::BadResponse => 7,
            Status::LocalAccess => 8,
            Status::RemoteInvalidRequest => 9,
            Status::RemoteAccess => 10,
            Status::RemoteOperation => 11,
            Status::RetryExceeded => 12,
            Status::RnrRetryExceeded => 13,
            Status::TagMatching => 22,
        }
    }

    /// Statuses of reliable datagrams, of a rendezvous left to software, of hardware failures and of unnamed failures
    /// have no value here, so no completion can have them.
    /// Rules: WC-03, WC-14, WC-15, WC-16, WC-17, WC-18, WC-19, WC-20, WC-21, WC-23
    #[test]
    fn statuses_that_never_occur_have_no_value() {
        let all = [
            Status::Success,
            Status::LocalLength,
            Status::LocalQpOperation,
            Status::LocalProtection,
            Status::Flushed,
            Status::WindowBind,
            Status::BadResponse,
            Status::LocalAccess,
            Status::RemoteInvalidRequest,
            Status::RemoteAccess,
            Status::RemoteOperation,
            Status::RetryExceeded,
            Status::RnrRetryExceeded,
            Status::TagMatching,
        ];
        let never = |value: u32| value == 3 || (value > 13 && value != 22);
        let numbers: Vec<_> = all.into_iter().map(number).collect();
        let expected: Vec<_> = (0..=23).filter(|value| !never(*value)).collect();
        assert_eq!(numbers, expected);
        assert!(all.into_iter().all(|status| status as u32 == number(status)));
    }
}

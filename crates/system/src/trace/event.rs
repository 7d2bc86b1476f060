//! What an event is: one record of fixed size.

use std::fmt;
use std::net::Ipv6Addr;

use transom_device::numbered;

/// Words of an event in a ring.
pub(super) const WORDS: usize = 7;

numbered! {
    /// What has happened. For each, the fields of [`Event`] that have a meaning, beside its time. `qp` is a queue pair
    /// of the process, `peer` the one at the other end. `message` is the number of a message or of its first packet,
    /// and the attempt.
    pub enum What {
        /// A request was put into the send queue: `code` an [operation](transom_device::operation::Operation), `qp`,
        /// `peer`, `key`, `number` its `wr_id`, `address`, `length`, `detail` its position in the queue.
        Posted = 1,
        /// A request was carried out as it was posted, in the memory of its target and without a message: as for
        /// `Posted`, but `detail` is the time at which it was posted.
        CarriedOut = 2,
        /// A request of the send queue has ended: `code` its operation, `more` its status, `qp`, `number` its `wr_id`,
        /// `length`, `detail` its position.
        Ended = 3,
        /// A segment of a request was handed to its link: `code` its operation, `more` what became of it ([`Handed`]),
        /// `qp`, `peer`, `key` its packets, `number` the position of its request, `address` its offset in the message,
        /// `length`, `detail` its message.
        Sent = 4,
        /// A segment of a peer's has come and is about to be carried out: `code` its operation, `qp`, `peer`, `key`,
        /// `number` its offset, `address`, `length`, `detail` its message.
        Came = 5,
        /// A peer's access to memory was carried out here: as for `Came`.
        Touched = 6,
        /// The same by this process in the memory of its peer, without a message, for a request of the queue: as for
        /// `Posted`.
        Reached = 7,
        /// A receive was posted: `qp`, or zero and `key` the number of a shared queue, `number` its `wr_id`, `length`.
        ReceivePosted = 8,
        /// A receive has completed: `code` the [opcode](transom_device::operation::Opcode), `more` its status, `qp`,
        /// `peer`, `key` the number of the shared queue that it was posted to, or zero, `number` its `wr_id`, `length`.
        Received = 9,
        /// Something was refused here: `code` the [reason](transom_device::protection::Reason), `more` the operation,
        /// `qp`, `peer`, `key`, `address`, `length`.
        Refused = 10,
        /// A region or window is open from now on: `code` its kind, `qp` that a type 2 window is bound to, `key`,
        /// `number` its slot, `address`, `length`, `detail` its rights, and in the upper half the slot of its region
        /// plus one.
        Opened = 11,
        /// It is not any more: `code` its kind, `more` the operation that closed it, or zero if it has ended, `qp` and
        /// `peer` those of the operation, `key`, `number` its slot, `address`, `length`, `detail` its rights.
        Closed = 12,
        /// A queue pair has changed its state, or what it lets in: `code` the state, `qp`, `peer`.
        Changed = 13,
        /// Something that is counted: `code` a [tally](transom_device::execution::Tally), `qp`, `peer`, `length` how
        /// often, or for how many nanoseconds.
        Counted = 14,
        /// The oldest request that has not been sent whole waits: `code` [for what](transom_device::execution::Awaited),
        /// `qp`, `peer`, `number` its position.
        Waits = 15,
        /// The program asks for a connection, or for the queue pair of a datagram service: as for `Managed`, and `qp` the
        /// queue pair that it offers.
        Connects = 16,
        /// Something has happened to an id of the connection manager: `code` the event (`enum rdma_cm_event_type`),
        /// `more` its status as 16 bits, `peer` the queue pair that the peer offers, `key` the id, `number` the two
        /// [ports](Event::ports) and the id that listens, `address` and `length` the [address](Event::peer_address) of
        /// the peer, `detail` what a request has in common with its CONNECT_REQUEST at the peer.
        Managed = 17,
    }
}

numbered! {
    /// What became of a segment that was handed to its link.
    pub enum Handed {
        /// The link has it.
        Sent = 0,
        /// There was no room, so it goes again.
        Busy = 1,
        /// Nobody is there.
        Unreachable = 2,
        /// The origin's own memory could not be read.
        Failed = 3,
    }
}

/// One event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When, in nanoseconds of the steady clock. Zero for now.
    pub time: u64,
    /// What has happened. It says which of the other fields have a meaning.
    pub what: What,
    /// Of what kind.
    pub code: u8,
    /// How it ended.
    pub more: u16,
    /// The queue pair.
    pub qp: u32,
    /// The queue pair at the other end.
    pub peer: u32,
    /// A key.
    pub key: u32,
    /// The program's number of the work, or another.
    pub number: u64,
    /// An address, as the key's object names its addresses.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// See [`What`].
    pub detail: u64,
}

impl Event {
    /// An event of this kind, now, about nothing yet.
    pub const fn of(what: What) -> Self {
        Self {
            time: 0,
            what,
            code: 0,
            more: 0,
            qp: 0,
            peer: 0,
            key: 0,
            number: 0,
            address: 0,
            length: 0,
            detail: 0,
        }
    }

    /// The ports of an id, its own and the peer's, as `number` has them beside an id that listens.
    pub const fn ports(self) -> (u16, u16) {
        ((self.number >> 48) as u16, (self.number >> 32) as u16)
    }

    /// The address of an id's peer, as `address` and `length` have it. Unspecified if there is none yet.
    pub const fn peer_address(self) -> Ipv6Addr {
        Ipv6Addr::from_bits((self.address as u128) << 64 | self.length as u128)
    }

    /// A message's number and the attempt, as `detail` has them.
    pub const fn message(number: u32, attempt: u64) -> u64 {
        number as u64 | attempt << 32
    }

    pub(super) fn to_words(self) -> [u64; WORDS] {
        let small = [self.what as u8, self.code, self.more as u8, (self.more >> 8) as u8];
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        [
            self.time,
            pair(self.qp, u32::from_le_bytes(small)),
            pair(self.key, self.peer),
            self.number,
            self.address,
            self.length,
            self.detail,
        ]
    }

    /// `None` if another version wrote it.
    pub(super) fn from_words(words: &[u64; WORDS]) -> Option<Self> {
        let &[time, first, second, number, address, length, detail] = words;
        let [what, code, low, high, ..] = first.to_le_bytes();
        Some(Self {
            time,
            what: What::from_code(what)?,
            code,
            more: u16::from_le_bytes([low, high]),
            qp: (first >> 32) as u32,
            peer: second as u32,
            key: (second >> 32) as u32,
            number,
            address,
            length,
            detail,
        })
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?}({}, {}) qp {:#x} peer {:#x} ",
            self.what, self.code, self.more, self.qp, self.peer
        )?;
        write!(
            f,
            "key {:#x} number {} at {:#x} +{} ",
            self.key, self.number, self.address, self.length
        )?;
        write!(f, "detail {:#x} t {}", self.detail, self.time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_reads_back() {
        let event = Event {
            time: u64::MAX,
            what: What::Touched,
            code: 200,
            more: 0xfedc,
            qp: 0xff_ffff,
            peer: 0xff_fffe,
            key: u32::MAX,
            number: 1 << 63,
            address: u64::MAX - 1,
            length: 1 << 31,
            detail: Event::message(0xff_ffff, 7),
        };
        assert_eq!(Event::from_words(&event.to_words()), Some(event));
        assert_eq!(Event::from_words(&[u64::MAX; WORDS]), None);
        assert_eq!(Event::from_words(&[0; WORDS]), None);
    }
}

//! The fate of packets, counted where `transom devices` reads it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use strum::{EnumCount, VariantArray};

/// Why packets were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumCount, VariantArray)]
pub enum Dropped {
    /// The ICRC is wrong (rule CRC-09).
    WrongIcrc,
    /// No packet at all (rule NET-13).
    Malformed,
    /// Of another partition (rule PK-14).
    OtherPartition,
    /// No queue pair of that number (rule NET-12).
    NoQueuePair,
    /// The queue pair is of another service (rule OP-32), or not connected over the wire.
    OtherService,
    /// It came from another address than the one the queue pair is connected to (rule NET-10).
    OtherAddress,
    /// The socket had no room for them.
    Overflow,
    /// It is longer than any packet, or has no source address.
    Cut,
    /// It is for a process that has ended, or for one with no room for more waiting packets.
    NobodyThere,
    /// It was not sent, because there is no route, or it is too long for the route.
    Unreachable,
    /// It is for a group's address and one queue pair, or for all members and one address (rule NET-17).
    WrongDestination,
}

impl Dropped {
    /// All reasons.
    pub const ALL: [Self; Self::COUNT] =
        *Self::VARIANTS.first_chunk().expect("as many as there are");

    /// The reason for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::WrongIcrc => "wrong_icrc",
            Self::Malformed => "malformed",
            Self::OtherPartition => "other_partition",
            Self::NoQueuePair => "no_queue_pair",
            Self::OtherService => "other_service",
            Self::OtherAddress => "other_address",
            Self::Overflow => "overflow",
            Self::Cut => "cut",
            Self::NobodyThere => "nobody_there",
            Self::Unreachable => "unreachable",
            Self::WrongDestination => "wrong_destination",
        }
    }
}

/// The reason for a user, read after "12 packets dropped: ".
impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WrongIcrc => "wrong ICRC (damaged, or the addresses were translated)",
            Self::Malformed => "malformed, no RoCEv2 packets",
            Self::OtherPartition => "of another partition (P_Key)",
            Self::NoQueuePair => "for a queue pair that does not exist",
            Self::OtherService => {
                "for a queue pair of another service, or not connected over the wire"
            }
            Self::OtherAddress => "from an address that their queue pair is not connected to",
            Self::Overflow => "the socket was full (net.core.rmem_max bounds its room)",
            Self::Cut => "too long, or come without an address",
            Self::NobodyThere => "for a process that has ended, or does not take its packets",
            Self::Unreachable => "not sent, no way to their address or too long for it",
            Self::WrongDestination => {
                "to a multicast address but one queue pair, or to a group by one host's address"
            }
        })
    }
}

/// Counters of one device, since it was opened.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Counters {
    /// Packets sent.
    pub sent: AtomicU64,
    /// Bytes of UDP payload sent.
    pub bytes_sent: AtomicU64,
    /// How many runs of packets had to wait for room to be sent.
    pub no_room: AtomicU64,
    /// How many received packets some queue pair took.
    pub received: AtomicU64,
    /// How many of them were for a group, however many members took them.
    pub received_by_groups: AtomicU64,
    /// Bytes of UDP payload received, whatever their fate.
    pub bytes_received: AtomicU64,
    /// How many datagrams for another process were handed on to it.
    pub handed_on: AtomicU64,
    /// Congestion notifications sent (rule CNP-03).
    pub notifications_sent: AtomicU64,
    /// Congestion notifications received (rule CNP-02).
    pub notifications_received: AtomicU64,
    /// How many of them came to a queue pair that does not slow down.
    pub notifications_ignored: AtomicU64,
    /// Packets that a congested network had marked, for queue pairs that tell their peers (rule CNP-03).
    pub marked: AtomicU64,
    /// By reason.
    dropped: [AtomicU64; Dropped::ALL.len()],
}

impl Counters {
    /// Counts `count` more.
    pub fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Relaxed);
    }

    /// Counts packets that are dropped.
    pub fn drop(&self, why: Dropped, count: usize) {
        Self::add(&self.dropped[why as usize], count);
    }

    /// Sets how many the socket has lost in all.
    pub fn set_overflow(&self, count: u32) {
        self.dropped[Dropped::Overflow as usize].store(count.into(), Relaxed);
    }

    /// Packets dropped for a reason.
    pub fn dropped(&self, why: Dropped) -> u64 {
        self.dropped[why as usize].load(Relaxed)
    }

    /// Adds the values of others, which may grow meanwhile.
    pub(super) fn collect(&self, others: &Self) {
        for (sum, counter) in self.all().zip(others.all()) {
            sum.fetch_add(counter.load(Relaxed), Relaxed);
        }
    }

    /// Begins anew, for another device.
    pub(super) fn clear(&self) {
        self.all().for_each(|counter| counter.store(0, Relaxed));
    }

    fn all(&self) -> impl Iterator<Item = &AtomicU64> {
        let Self {
            sent,
            bytes_sent,
            no_room,
            received,
            received_by_groups,
            bytes_received,
            handed_on,
            notifications_sent,
            notifications_received,
            notifications_ignored,
            marked,
            dropped,
        } = self;
        let all = [sent, bytes_sent, no_room, received, bytes_received, handed_on];
        let notifications = [notifications_sent, notifications_received, notifications_ignored];
        all.into_iter().chain([received_by_groups, marked]).chain(notifications).chain(dropped)
    }
}

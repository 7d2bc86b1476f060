//! What became of packets, counted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of one device, from when it was opened.
#[derive(Debug, Default)]
pub struct Counters {
    /// Packets sent.
    pub sent: AtomicU64,
    /// Bytes of UDP payload sent.
    pub bytes_sent: AtomicU64,
    /// Packets received that some queue pair took.
    pub received: AtomicU64,
    /// Bytes of UDP payload received, whatever became of them.
    pub bytes_received: AtomicU64,
    /// Dropped: the ICRC is wrong (rule CRC-09).
    pub bad_icrc: AtomicU64,
    /// Dropped: no packet at all (rule NET-13).
    pub malformed: AtomicU64,
    /// Dropped: of another partition.
    pub bad_pkey: AtomicU64,
    /// Dropped: no queue pair of that number and service (rule NET-12).
    pub no_queue_pair: AtomicU64,
    /// Dropped: not from the address that the queue pair is connected to (rule NET-10).
    pub wrong_address: AtomicU64,
    /// Runs of packets that found no room to be sent.
    pub no_room: AtomicU64,
    /// Runs of packets that found no way, or were too long for it.
    pub unreachable: AtomicU64,
}

impl Counters {
    /// Counts `count` more.
    pub(crate) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Relaxed);
    }
}

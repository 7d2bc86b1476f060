//! The pace of messages that are never repeated.
//!
//! A window bounds the traffic of a reliable service. UC and UD have no answers to count. A message of megabytes would
//! be in the receiver's socket before its thread gets a processor, and packets that find no room there are lost for
//! good. So UC and UD get a steady rate, and may fill a part of that room at once.

use std::sync::atomic::{AtomicU64, Ordering::*};

/// Bytes per microsecond: a quarter of what a thread with a processor to itself takes. If all processors are busy the
/// thread has half of one, and is without it for milliseconds.
const RATE: u64 = 500;

/// The least room that the kernel charges a receiver for a packet, in bytes.
const LEAST: u64 = 1024;

/// How much a process may send without answers.
pub(super) struct Pace {
    /// When a receiver that takes them at the rate has taken all, by the adapter's clock.
    taken_at: AtomicU64,
    /// How far ahead of that a sender may be, in nanoseconds.
    ahead: u64,
}

impl Pace {
    /// For a receiver of which `room` bytes may be filled.
    pub(super) fn new(room: u64) -> Self {
        Self { taken_at: AtomicU64::new(0), ahead: duration(room) }
    }

    /// Whether packets of `bytes` may be sent now. If so, they are counted.
    pub(super) fn admits(&self, bytes: u64, now: u64) -> bool {
        let takes = duration(bytes.max(LEAST));
        let admit = |taken_at: u64| {
            let waits = taken_at.saturating_sub(now);
            (waits <= self.ahead).then(|| now + waits + takes)
        };
        self.taken_at.fetch_update(Relaxed, Relaxed, admit).is_ok()
    }
}

/// How long they take at the rate, in nanoseconds.
fn duration(bytes: u64) -> u64 {
    bytes.saturating_mul(1000) / RATE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_goes_at_once_and_the_rest_at_the_rate() {
        let pace = Pace::new(100_000);
        let start = 7_000_000_000;
        let burst = (0..).take_while(|_| pace.admits(10_000, start)).count();
        assert_eq!(burst, 11);
        let mut sent = 0_u64;
        for microsecond in 1..=1000 {
            sent += u64::from(pace.admits(10_000, start + microsecond * 1000));
        }
        assert_eq!(sent * 10_000, 1000 * RATE);
    }

    #[test]
    fn rest_is_not_saved_up_beyond_the_room() {
        let pace = Pace::new(100_000);
        assert!(pace.admits(10_000, 1_000));
        let later = 60_000_000_000;
        assert_eq!((0..).take_while(|_| pace.admits(10_000, later)).count(), 11);
    }
}

//! How fast goes what nobody sends again.
//!
//! What a reliable service has on its way is bounded by its window. UC and UD have no answers to count:
//! a message of megabytes would be in the receiver's socket before its thread has got a processor, and
//! what finds no room there is lost for good. So they are given a steady rate, and a part of that room
//! at once.

use std::sync::atomic::{AtomicU64, Ordering::*};

/// Bytes in a microsecond: a quarter of what a thread takes that has a processor to itself. Where all
/// processors are busy it has half of one, and misses it for milliseconds.
const RATE: u64 = 500;

/// What the kernel takes for a packet at least, in bytes of a receiver's room.
const LEAST: u64 = 1024;

/// What a process may send without answers.
pub(super) struct Pace {
    /// When a receiver that takes them at the rate has taken all, by the adapter's clock.
    taken_at: AtomicU64,
    /// How far ahead of it one may be, in nanoseconds.
    ahead: u64,
}

impl Pace {
    /// For a receiver of which `room` bytes may be filled.
    pub(super) fn new(room: u64) -> Self {
        Self { taken_at: AtomicU64::new(0), ahead: duration(room) }
    }

    /// Whether packets of `bytes` may be sent now; they are counted then.
    pub(super) fn admits(&self, bytes: u64, now: u64) -> bool {
        let takes = duration(bytes.max(LEAST));
        let admit = |taken_at: u64| {
            let waits = taken_at.saturating_sub(now);
            (waits <= self.ahead).then(|| now + waits + takes)
        };
        self.taken_at.fetch_update(Relaxed, Relaxed, admit).is_ok()
    }
}

/// How long the rate takes for them, in nanoseconds.
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

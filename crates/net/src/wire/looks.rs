//! How often a program that polls looks for packets.
//!
//! Each look is a system call, which takes as long as a message between two processes of a host. While only such
//! messages come, few polls look.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Then one poll in so many looks. Together they take a microsecond or two, of the several that a packet takes.
const SELDOM: u32 = 16;

/// Decides which polls look. Threads that poll at the same time may miscount; nothing depends on the exact number.
#[derive(Default)]
pub(super) struct Looks {
    /// How many polls do not look between two that do.
    between: AtomicU32,
    /// How many polls have not looked so far.
    passed: AtomicU32,
}

impl Looks {
    /// Whether a poll looks now.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        let between = self.between.load(Relaxed);
        if between == 0 {
            return true;
        }
        let passed = self.passed.load(Relaxed);
        let is_due = passed >= between;
        self.passed.store(if is_due { 0 } else { passed + 1 }, Relaxed);
        is_due
    }

    /// A message has come without packets: few polls look from now on.
    pub(super) fn seldom(&self) {
        self.between.store(SELDOM - 1, Relaxed);
    }

    /// Packets have come, or are expected: every poll looks.
    #[inline]
    pub(super) fn always(&self) {
        // Write only a change, so that no other processor loses its copy of the cache line for nothing.
        if self.between.load(Relaxed) != 0 {
            self.between.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_polls_look_while_no_packets_come() {
        let looks = Looks::default();
        let due = |polls: u32| (0..polls).filter(|_| looks.is_due()).count();
        assert_eq!(due(100), 100);
        looks.seldom();
        assert_eq!(due(SELDOM - 1), 0);
        assert_eq!(due(SELDOM * 10), 10);
        looks.always();
        assert_eq!(due(100), 100);
        // The old count goes on.
        looks.seldom();
        assert!(due(SELDOM) <= 1);
    }
}

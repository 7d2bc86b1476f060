//! Delayed acknowledgements: they wait for a packet to leave with.
//!
//! A program that receives a message often sends one back at once. An acknowledgement that leaves with that one saves a
//! packet. It also helps the other end, which polls for the acknowledgement: it finds the answer in the same poll.
//! Otherwise it might next look only at its memory, and only the background thread would take the answer for it.
//!
//! So when a poll has taken a message, or the background thread has for a program that polls, its acknowledgement waits
//! for the next post or poll, whichever comes first. If a program does neither in time, its next acknowledgements do
//! not wait.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

/// How long an acknowledgement waits before the wait counts as vain, in nanoseconds. A program may be without a
/// processor for that long because the background thread has it.
const DELAY: u64 = 200_000;

/// How long until the background thread looks at a waiting acknowledgement, in nanoseconds: the first time, and at
/// most. The time doubles until one has waited in vain: waking the thread takes the program's processor, and a program
/// that posts and polls needs no look.
const LOOKS: [u64; 2] = [DELAY, 4 * DELAY];

/// How many acknowledgements do not wait after one has waited in vain: the first time, and at most. The number doubles
/// until one has found a packet to leave with. One vain wait says little: most of the acknowledgements between two
/// programs may find a packet again.
const AT_ONCE: [u32; 2] = [4, 64];

/// The queue pair that delays an acknowledgement. At most one does.
pub struct DelayedAck {
    /// When it began, above the queue pair's index plus one. The latter is zero if none waits.
    state: AtomicU64,
    /// Whether acknowledgements of the packets being received may wait. Written with the arrivals locked.
    may_wait: AtomicBool,
    /// How many more must not wait.
    at_once: AtomicU32,
    /// How many have waited in vain since the last that did not.
    in_vain: AtomicU32,
    /// How long until the background thread looks again at a waiting one. Only that thread uses it.
    next_look: AtomicU64,
}

impl Default for DelayedAck {
    fn default() -> Self {
        Self {
            state: AtomicU64::new(0),
            may_wait: AtomicBool::new(false),
            at_once: AtomicU32::new(0),
            in_vain: AtomicU32::new(0),
            next_look: AtomicU64::new(LOOKS[0]),
        }
    }
}

/// The bits of the state that hold an index plus one.
const INDEX_BITS: u32 = 17;
const INDEX: u64 = (1 << INDEX_BITS) - 1;

impl DelayedAck {
    /// Whether acknowledgements of packets received from now on may wait, as far as the receiver says.
    pub fn begin(&self, may_wait: bool) {
        self.may_wait.store(may_wait, Relaxed);
    }

    /// Whether an acknowledgement may wait now.
    pub fn may_wait(&self) -> bool {
        if !self.may_wait.load(Relaxed) {
            return false;
        }
        // Two threads may count one down as one. Nothing depends on the exact number.
        let at_once = self.at_once.load(Relaxed);
        if at_once > 0 {
            self.at_once.store(at_once - 1, Relaxed);
        }
        at_once == 0
    }

    /// A queue pair delays an acknowledgement. Returns another one that did so before and has to send its own now.
    pub fn delay(&self, index: u16, now: u64) -> Option<u16> {
        // The uppermost bits of a time in nanoseconds only tell days apart.
        let state = now << INDEX_BITS | (u64::from(index) + 1);
        index_in(self.state.swap(state, AcqRel)).filter(|other| *other != index)
    }

    /// The queue pair that delays one. The caller makes it send.
    #[inline]
    pub fn take(&self) -> Option<u16> {
        index_in(self.state.load(Acquire))?;
        index_in(self.state.fetch_and(!INDEX, AcqRel))
    }

    /// The same, if it has waited in vain.
    pub fn take_late(&self, now: u64) -> Option<u16> {
        if waited(self.state.load(Acquire), now) > DELAY { self.take() } else { None }
    }

    /// Whether this queue pair delays one. The caller makes it send.
    #[inline]
    pub fn take_of(&self, index: u16) -> bool {
        let state = self.state.load(Acquire);
        let is_taken = index_in(state) == Some(index)
            && self.state.compare_exchange(state, state & !INDEX, AcqRel, Acquire).is_ok();
        if is_taken && self.in_vain.load(Relaxed) > 0 {
            self.in_vain.store(0, Relaxed);
        }
        is_taken
    }

    /// Whether one waits.
    pub fn waits(&self) -> bool {
        index_in(self.state.load(Acquire)).is_some()
    }

    /// Checks how long the current one has waited. If it was in vain, the next do not wait. The background thread calls
    /// this.
    pub fn look(&self, now: u64) {
        let state = self.state.load(Acquire);
        let [first, most] = LOOKS;
        if index_in(state).is_none() || waited(state, now) <= DELAY {
            let next_look = self.next_look.load(Relaxed);
            self.next_look.store((2 * next_look).min(most), Relaxed);
            return;
        }
        self.next_look.store(first, Relaxed);
        let [first, most] = AT_ONCE;
        let in_vain = self.in_vain.fetch_add(1, Relaxed);
        let doubled = most.ilog2() - first.ilog2();
        self.at_once.store(first << in_vain.min(doubled), Relaxed);
    }

    /// How long until the background thread has to look again, in nanoseconds, if one waits.
    pub(super) fn next_look(&self) -> Option<u64> {
        self.waits().then(|| self.next_look.load(Relaxed))
    }
}

/// How long it has waited, in nanoseconds. Zero if it was delayed after the caller read the clock.
fn waited(state: u64, now: u64) -> u64 {
    const TIME_BITS: u32 = u64::BITS - INDEX_BITS;
    let waited = (now << INDEX_BITS).wrapping_sub(state & !INDEX) >> INDEX_BITS;
    if waited >> (TIME_BITS - 1) == 0 { waited } else { 0 }
}

fn index_in(state: u64) -> Option<u16> {
    (state & INDEX).checked_sub(1).map(|index| index as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_queue_pair_delays_at_a_time() {
        let delayed = DelayedAck::default();
        assert_eq!((delayed.take(), delayed.waits()), (None, false));
        assert_eq!(delayed.delay(0, 1), None);
        assert!(delayed.waits());
        assert_eq!(delayed.delay(0, 2), None, "again the same");
        assert_eq!(delayed.delay(u16::MAX, 3), Some(0));
        assert!(!delayed.take_of(0));
        assert!(delayed.take_of(u16::MAX));
        assert_eq!((delayed.take(), delayed.waits()), (None, false));
        assert_eq!(delayed.delay(7, 4), None);
        assert_eq!(delayed.take(), Some(7));
    }

    #[test]
    fn one_that_has_not_waited_long_is_left_to_the_program() {
        let delayed = DelayedAck::default();
        assert_eq!(delayed.take_late(u64::MAX), None);
        delayed.delay(7, 1_000);
        assert_eq!(delayed.take_late(1_000 + DELAY), None);
        assert!(delayed.waits());
        assert_eq!(delayed.take_late(1_001 + DELAY), Some(7));
        assert!(!delayed.waits());
    }

    #[test]
    fn after_one_in_vain_some_go_at_once() {
        let delayed = DelayedAck::default();
        let waiting = || (0..100).filter(|_| delayed.may_wait()).count();
        assert_eq!(waiting(), 0);
        delayed.begin(true);
        // Also at the largest time that the state can hold.
        for begun in [5, (1 << 47) - 7] {
            delayed.delay(1, begun);
            delayed.look(begun + DELAY);
            assert_eq!(waiting(), 100);
            for at_once in [4, 8, 16, 32, 64, 64] {
                delayed.look(begun + DELAY + 1);
                assert_eq!(waiting(), 100 - at_once);
            }
            // This one has found a packet to leave with.
            assert!(delayed.take_of(1));
        }
        delayed.take();
        delayed.look(u64::MAX);
        assert_eq!(waiting(), 100);
    }

    #[test]
    fn however_often_one_was_in_vain_the_next_do_not_wait() {
        let delayed = DelayedAck::default();
        delayed.begin(true);
        delayed.delay(1, 5);
        for in_vain in 0..100 {
            delayed.look(6 + DELAY);
            assert!(!delayed.may_wait(), "{in_vain}");
        }
    }

    /// The looking thread may lose its processor between reading the clock and looking.
    #[test]
    fn one_that_was_delayed_after_the_look_at_the_clock_has_not_waited() {
        let delayed = DelayedAck::default();
        delayed.begin(true);
        delayed.delay(1, 1000);
        delayed.look(999);
        assert!(delayed.may_wait());
        assert_eq!(delayed.take_late(999), None);
    }

    #[test]
    fn looks_become_rarer_until_one_has_waited_in_vain() {
        let delayed = DelayedAck::default();
        assert_eq!(delayed.next_look(), None);
        delayed.delay(1, 5);
        for next in [DELAY, 2 * DELAY, 4 * DELAY, 4 * DELAY] {
            assert_eq!(delayed.next_look(), Some(next));
            delayed.look(6);
        }
        delayed.look(6 + DELAY);
        assert_eq!(delayed.next_look(), Some(DELAY));
        delayed.look(7);
        assert_eq!(delayed.next_look(), Some(2 * DELAY));
    }
}

//! Delayed acknowledgements: they wait for something to go out with.
//!
//! Who receives a message often sends one back at once. An acknowledgement that goes out with that
//! one saves a packet, and more than that: the other end, which polls for it, then finds the answer
//! in the same poll, though it may have been about to look at its memory only, where nobody but the
//! background thread would take the answer for it.
//!
//! So when a message has been taken in a poll, or by the background thread for a program that polls, its
//! acknowledgement waits for the next post or poll, whichever comes first. A program that does neither in
//! time is noticed, and its next acknowledgements do not wait.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

/// How long one waits, in nanoseconds, before it was in vain. A program may be without a
/// processor for that long because the background thread has it.
const DELAY: u64 = 200_000;

/// After how long the background thread looks at one that waits, in nanoseconds: at first, and at most. Twice
/// as long each time until one has waited in vain, for to wake the thread takes the program's processor from
/// it, and one that posts and polls needs no look.
const LOOKS: [u64; 2] = [DELAY, 4 * DELAY];

/// How many acknowledgements do not wait after one has waited in vain, at first and at most: twice as many each
/// time, until one has found something to go with. One that was in vain says little, for most of those that
/// two programs exchange may be taken along again.
const AT_ONCE: [u32; 2] = [4, 64];

/// Which queue pair delays an acknowledgement: one at a time.
pub struct DelayedAck {
    /// Since when, above the queue pair's index plus one; the latter is zero if none waits.
    state: AtomicU64,
    /// Whether what is being received may wait. Written with the arrivals locked.
    may_wait: AtomicBool,
    /// How many more are not to wait.
    at_once: AtomicU32,
    /// How often one has waited in vain since the last that has not.
    in_vain: AtomicU32,
    /// After how long the background thread looks next at one that waits. Only that thread has it.
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

/// The part of the state that is an index plus one.
const INDEX_BITS: u32 = 17;
const INDEX: u64 = (1 << INDEX_BITS) - 1;

impl DelayedAck {
    /// Whether acknowledgements of what is received from now on may wait, as far as its taker says.
    pub fn begin(&self, may_wait: bool) {
        self.may_wait.store(may_wait, Relaxed);
    }

    /// Whether an acknowledgement may wait now.
    pub fn may_wait(&self) -> bool {
        if !self.may_wait.load(Relaxed) {
            return false;
        }
        // Two threads may count one down as one; nothing depends on the exact number.
        let at_once = self.at_once.load(Relaxed);
        if at_once > 0 {
            self.at_once.store(at_once - 1, Relaxed);
        }
        at_once == 0
    }

    /// A queue pair delays an acknowledgement. Answers another that did so before and is to send
    /// its own now.
    pub fn delay(&self, index: u16, now: u64) -> Option<u16> {
        // The uppermost bits of a time in nanoseconds only tell days apart.
        let state = now << INDEX_BITS | (u64::from(index) + 1);
        index_in(self.state.swap(state, AcqRel)).filter(|other| *other != index)
    }

    /// The queue pair that delays one, which the caller has send it.
    #[inline]
    pub fn take(&self) -> Option<u16> {
        index_in(self.state.load(Acquire))?;
        index_in(self.state.fetch_and(!INDEX, AcqRel))
    }

    /// The same, if it has waited in vain.
    pub fn take_late(&self, now: u64) -> Option<u16> {
        if waited(self.state.load(Acquire), now) > DELAY { self.take() } else { None }
    }

    /// Whether this queue pair delays one, which the caller has it send.
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

    /// Looks how long the one has waited that waits now: if it was in vain, the next do not wait. Called by the
    /// background thread.
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

    /// After how long, in nanoseconds, the background thread is to look again, if one waits.
    pub(super) fn next_look(&self) -> Option<u64> {
        self.waits().then(|| self.next_look.load(Relaxed))
    }
}

/// For how long it has waited, in nanoseconds: not yet, if it was delayed only after the caller has looked at the
/// clock.
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
        // At the end of what the state can tell of a time, too.
        for begun in [5, (1 << 47) - 7] {
            delayed.delay(1, begun);
            delayed.look(begun + DELAY);
            assert_eq!(waiting(), 100);
            for at_once in [4, 8, 16, 32, 64, 64] {
                delayed.look(begun + DELAY + 1);
                assert_eq!(waiting(), 100 - at_once);
            }
            // One that has found something to go with.
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

    /// Whoever looks may have lost his processor between his look at the clock and that.
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

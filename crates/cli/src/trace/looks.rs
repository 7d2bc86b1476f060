//! When to look at what is open of a process.
//!
//! Its events tell what it opens and closes while it records. What was open before, only a look at its memory tells. One
//! look is not enough: a thread may have seen that nothing is recorded, lose its processor, and open or close something
//! after the look. So there are more looks, each twice as long after the beginning as the one before.
//!
//! While one looks, the rings are not read. A look that takes long may make events be missed, which calls for another look.
//! So a look is followed by a rest, which is longer the longer it took.

use transom_system::trace::Event;
use transom_system::wanted::Turn;

/// How long an event is held back, in nanoseconds: one of another process, or of another thread, may be older and come
/// later.
pub(super) const HELD: u64 = 20_000_000;

/// How many times as long as a look the rest after it is.
const REST: u64 = 16;

/// What somebody has seen who looked at the memory of a process.
#[derive(Default)]
pub(super) struct Look {
    /// What is open, as if it were opened just then.
    pub(super) open: Vec<Event>,
    /// The slots where nothing is open, each with when the last object there had ended. What began before that is over.
    /// What began after that is about to open: it is told of first.
    pub(super) ended: Vec<(u64, u64)>,
}

/// The looks at one process.
#[derive(Debug)]
pub(super) struct Looks {
    /// Whether it records.
    turn: Turn,
    /// Since when its events tell everything, but for stragglers.
    begun: u64,
    next: u64,
    /// How long to rest after a look, judged by the last one.
    rest: u64,
    missed: u64,
    /// It was looked at while it was stopped, since it last began or ceased to record.
    was_stopped: bool,
}

impl Looks {
    pub(super) fn new(now: u64) -> Self {
        Self {
            turn: Turn(0),
            begun: now,
            next: now.saturating_add(HELD),
            rest: HELD,
            missed: 0,
            was_stopped: false,
        }
    }

    /// Whether to look now. A process that is stopped does not begin to record, and changes nothing: one look is enough
    /// for it.
    pub(super) fn next(
        &mut self,
        now: u64,
        turn: Turn,
        is_last: bool,
        is_stopped: impl FnOnce() -> bool,
    ) -> bool {
        if std::mem::replace(&mut self.turn, turn) != turn {
            self.begun = now;
            self.next = now.saturating_add(HELD);
            self.was_stopped = false;
            return turn.is_on();
        }
        if now < self.next && !is_last {
            return false;
        }
        if turn.is_on() {
            self.next = now.saturating_add(now.saturating_sub(self.begun).max(HELD));
            return true;
        }
        self.next = now.saturating_add(HELD);
        let look = !self.was_stopped && is_stopped();
        self.was_stopped |= look;
        look
    }

    /// A look has begun and ended at these times.
    pub(super) fn took(&mut self, from: u64, until: u64) {
        self.rest = until.saturating_sub(from).saturating_mul(REST).max(HELD);
        self.next = self.next.max(until.saturating_add(self.rest));
    }

    /// So many events were missed so far. They may have told of something that was opened or closed.
    pub(super) fn note_missed(&mut self, now: u64, missed: u64) {
        if std::mem::replace(&mut self.missed, missed) != missed {
            self.begun = now;
            self.next = self.next.min(now.saturating_add(self.rest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It does not record, and it records for the first time.
    const OFF: Turn = Turn(0);
    const ON: Turn = Turn(1);

    /// The times at which one looks, asked each millisecond.
    fn times(looks: &mut Looks, span: std::ops::Range<u64>, turn: Turn) -> Vec<u64> {
        let looks_at = |ms: &u64| looks.next(ms * 1_000_000, turn, false, || false);
        span.filter(looks_at).collect()
    }

    /// Rules: SEE-50
    #[test]
    fn looks_are_repeated_ever_less_often_and_begin_anew_when_events_were_missed() {
        let mut looks = Looks::new(0);
        assert!(times(&mut looks, 0..50, OFF).is_empty());
        assert_eq!(times(&mut looks, 50..700, ON), [50, 70, 90, 130, 210, 370, 690]);
        looks.note_missed(700_000_000, 3);
        assert_eq!(times(&mut looks, 700..850, ON), [720, 740, 780]);
        assert!(looks.next(850_000_000, ON, true, || false), "at the end");
    }

    /// Rules: SEE-50
    #[test]
    fn looks_that_take_long_are_followed_by_a_longer_rest_though_events_are_missed() {
        let (mut looks, mut now, mut looked) = (Looks::new(0), 0, Vec::new());
        while now < 3_000_000_000 {
            let from = now;
            if looks.next(now, ON, false, || false) {
                looked.push(now / 1_000_000);
                now += 30_000_000;
                looks.took(from, now);
            }
            looks.note_missed(from, now);
            now += 1_000_000;
        }
        assert_eq!(looked, [0, 480, 960, 1440, 1920, 2400, 2880]);
    }

    /// Rules: SEE-50
    #[test]
    fn who_records_again_is_looked_at_anew() {
        let mut looks = Looks::new(0);
        let at = [(1, 1), (2, 3), (3, 4), (4, 5)];
        let looked = at.map(|(now, turn)| looks.next(now, Turn(turn), false, || false));
        assert_eq!(looked, [true, true, false, true]);
    }

    /// Rules: SEE-50
    #[test]
    fn a_stopped_process_is_looked_at_once_until_it_goes_on() {
        let mut looks = Looks::new(0);
        let mut at = |now, turn| looks.next(now, turn, false, || true);
        let seen = [(HELD - 1, OFF), (HELD, OFF), (3 * HELD, OFF), (4 * HELD, ON)];
        assert_eq!(seen.map(|(now, turn)| at(now, turn)), [false, true, false, true]);
        let again = [5, 6, 7].map(|times| at(times * HELD, Turn(2)));
        assert_eq!(again, [false, true, false], "it is stopped a second time");
    }
}

//! When to look at what is open of a process.
//!
//! Its events tell what it opens and closes while it records. What was open before, only a look at its memory tells. One
//! look is not enough: a thread may have seen that nothing is recorded, lose its processor, and open or close something
//! after the look. So there are more looks, each twice as long after the beginning as the one before.
//!
//! While one looks, the rings are not read. A look that takes long may make events be missed, which calls for another look.
//! So a look is followed by a rest, which is longer the longer it took.

/// How long an event is held back, in nanoseconds: one of another process, or of another thread, may be older and come
/// later.
pub(super) const HELD: u64 = 20_000_000;

/// How many times as long as a look the rest after it is.
const REST: u64 = 16;

/// The looks at one process.
#[derive(Debug)]
pub(super) struct Looks {
    /// The number of its recording, while it records.
    recording: Option<u32>,
    /// Since when its events tell everything, but for stragglers.
    begun: u64,
    next: u64,
    /// How long to rest after a look, judged by the last one.
    rest: u64,
    missed: u64,
    /// It was looked at while it was stopped, since it last began or ceased to record.
    was_stopped: bool,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Next {
    /// It has stopped recording since the last time. It may have begun again.
    pub(super) paused: bool,
    /// Look at what is open.
    pub(super) look: bool,
}

impl Looks {
    pub(super) fn new(now: u64) -> Self {
        Self {
            recording: None,
            begun: now,
            next: now.saturating_add(HELD),
            rest: HELD,
            missed: 0,
            was_stopped: false,
        }
    }

    /// Says what is to be done now. A process that is stopped does not begin to record, and changes nothing: one look is
    /// enough for it.
    pub(super) fn next(
        &mut self,
        now: u64,
        recording: Option<u32>,
        is_last: bool,
        is_stopped: impl FnOnce() -> bool,
    ) -> Next {
        let before = std::mem::replace(&mut self.recording, recording);
        if before != recording {
            self.begun = now;
            self.next = now.saturating_add(HELD);
            self.was_stopped = false;
            return Next { paused: before.is_some(), look: recording.is_some() };
        }
        if now < self.next && !is_last {
            return Next::default();
        }
        if recording.is_some() {
            self.next = now.saturating_add(now.saturating_sub(self.begun).max(HELD));
            return Next { paused: false, look: true };
        }
        self.next = now.saturating_add(HELD);
        let look = !self.was_stopped && is_stopped();
        self.was_stopped |= look;
        Next { paused: false, look }
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

    const ONCE: Next = Next { paused: false, look: true };

    /// The times at which one looks, asked each millisecond.
    fn times(looks: &mut Looks, span: std::ops::Range<u64>, recording: Option<u32>) -> Vec<u64> {
        let looks_at = |ms: &u64| looks.next(ms * 1_000_000, recording, false, || false).look;
        span.filter(looks_at).collect()
    }

    /// Rules: SEE-50
    #[test]
    fn looks_are_repeated_ever_less_often_and_begin_anew_when_events_were_missed() {
        let mut looks = Looks::new(0);
        assert!(times(&mut looks, 0..50, None).is_empty());
        assert_eq!(times(&mut looks, 50..700, Some(1)), [50, 70, 90, 130, 210, 370, 690]);
        looks.note_missed(700_000_000, 3);
        assert_eq!(times(&mut looks, 700..850, Some(1)), [720, 740, 780]);
        assert_eq!(looks.next(850_000_000, Some(1), true, || false), ONCE, "at the end");
    }

    /// Rules: SEE-50
    #[test]
    fn looks_that_take_long_are_followed_by_a_longer_rest_though_events_are_missed() {
        let (mut looks, mut now, mut looked) = (Looks::new(0), 0, Vec::new());
        while now < 3_000_000_000 {
            let from = now;
            if looks.next(now, Some(1), false, || false).look {
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
    fn who_records_again_has_paused_and_is_looked_at_anew() {
        let mut looks = Looks::new(0);
        assert_eq!(looks.next(1, Some(1), false, || false), ONCE);
        assert_eq!(looks.next(2, Some(3), false, || false), Next { paused: true, look: true });
        assert_eq!(looks.next(3, None, false, || false), Next { paused: true, look: false });
        assert_eq!(looks.next(4, Some(5), false, || false), ONCE);
    }

    /// Rules: SEE-50
    #[test]
    fn a_stopped_process_is_looked_at_once_until_it_goes_on() {
        let mut looks = Looks::new(0);
        let mut at = |now, recording| looks.next(now, recording, false, || true).look;
        let seen = [(HELD - 1, None), (HELD, None), (3 * HELD, None), (4 * HELD, Some(1))];
        assert_eq!(seen.map(|(now, recording)| at(now, recording)), [false, true, false, true]);
        let again = [5, 6, 7].map(|times| at(times * HELD, None));
        assert_eq!(again, [false, true, false], "it is stopped a second time");
    }
}

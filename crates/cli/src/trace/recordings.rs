//! When a process ceased to record, and when it began again.
//!
//! It may have done so several times since somebody looked, if the one who looks was stopped and another reader came.

use transom_system::wanted::Turn;

use super::held::Seen;

/// The recordings of a process, as far as they are known.
#[derive(Debug)]
pub(super) struct Recordings {
    seen: Turn,
    /// When that was.
    at: u64,
}

impl Recordings {
    /// The process records or does not, at this moment.
    pub(super) fn new(turn: Turn, now: u64) -> Self {
        Self { seen: turn, at: now }
    }

    /// What has changed until now. `times` says when a recording began, and when it ended, as far as that is known.
    pub(super) fn changes(
        &mut self,
        turn: Turn,
        now: u64,
        times: impl Fn(Turn) -> Option<(u64, u64)>,
    ) -> Vec<(u64, Seen)> {
        let mut changes = Vec::new();
        for recording in self.seen.recordings_until(turn) {
            let times = times(recording);
            if recording != self.seen {
                changes.extend(times.map(|(begun, _)| (begun, Seen::Resume)));
            }
            if recording != turn {
                // One whose end is not known any more went on as long as it was seen.
                let ended = times.map(|(_, ended)| ended);
                let ended = ended.or((recording == self.seen).then_some(self.at));
                changes.extend(ended.map(|ended| (ended, Seen::Pause)));
            }
        }
        (self.seen, self.at) = (turn, now);
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The changes from one turn to another: when, and whether it records from then on. Each recording begins at 100
    /// times its number, and ends 50 later.
    fn changes(seen: u32, now: u32, oldest: u32) -> Vec<(u64, bool)> {
        let times = |Turn(number)| {
            let begun = u64::from(number) * 100;
            (number >= oldest).then_some((begun, begun + 50))
        };
        let mut recordings = Recordings::new(Turn(seen), 7);
        let changes = recordings.changes(Turn(now), 9_999, times);
        assert!(recordings.changes(Turn(now), 9_999, times).is_empty(), "they are told once");
        changes.into_iter().map(|(time, it)| (time, matches!(it, Seen::Resume))).collect()
    }

    /// Rules: SEE-50
    #[test]
    fn each_end_of_a_recording_is_told_and_each_beginning() {
        assert_eq!(changes(0, 0, 0), []);
        assert_eq!(changes(0, 1, 0), [(100, true)]);
        assert_eq!(changes(1, 2, 0), [(150, false)]);
        assert_eq!(changes(1, 3, 0), [(150, false), (300, true)]);
        let all = [(150, false), (300, true), (350, false), (500, true)];
        assert_eq!(changes(1, 5, 0), all);
        assert_eq!(changes(2, 5, 0), all[1..]);
        assert_eq!(changes(0, 2, 0), [(100, true), (150, false)]);
        assert_eq!(changes(u32::MAX, 0, 0)[..], [(429_496_729_550, false)]);
    }

    /// Rules: SEE-50
    #[test]
    fn a_recording_of_which_nothing_is_known_any_more_ends_when_it_was_seen_last() {
        assert_eq!(changes(1, 5, 5), [(7, false), (500, true)]);
        assert_eq!(changes(0, 6, 5), [(500, true), (550, false)]);
    }
}

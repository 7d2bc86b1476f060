//! What others want to see of a process: a word for each tool in the header of its segment, and what the process makes
//! of it.
//!
//! A reader asks by counting the word up, and wakes the process. Its background thread then turns the tool on, for
//! [`LASTS`]. A reader that wants more asks again before that. So nothing goes on for a reader that has ended, however
//! it ended, or that is stopped. The process measures the time by itself, because a reader may have another clock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use crate::tools::{self, Tool};

/// How long a tool stays on after somebody has asked for it, in nanoseconds.
pub const LASTS: u64 = 2_000_000_000;

/// The tools that others may ask for.
const TOOLS: [Tool; 2] = [Tool::Events, Tool::Latencies];

/// How often each tool was asked for, and which are on. In the header of a segment, where other processes write.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Wanted {
    asked: [AtomicU32; TOOLS.len()],
    /// How often each was turned on and off.
    turns: [AtomicU32; TOOLS.len()],
    /// When each was turned on and off the last times, on the steady clock.
    times: [[[AtomicU64; 2]; KEPT]; TOOLS.len()],
    /// How often somebody has asked how its queues stand, and which of these questions it has answered.
    questions: AtomicU32,
    answered: AtomicU32,
}

/// A question how the queues of a process stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question(u32);

/// Of how many times that a tool was on it is known when.
const KEPT: usize = 8;

/// How often a tool was turned on and off. It is on if the number is odd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn(pub u32);

impl Turn {
    /// Whether the tool is on.
    pub const fn is_on(self) -> bool {
        self.0 % 2 == 1
    }

    /// The turns at which it was on, from this one until another, with both. There are no more than are known, and this.
    pub fn recordings_until(self, last: Self) -> impl Iterator<Item = Self> {
        let passed = last.0.wrapping_sub(self.0);
        // Another process may have written anything.
        let known = passed.min(2 * KEPT as u32);
        let first = (passed > known).then_some(self).filter(|turn| turn.is_on());
        let rest = (0..=known).rev().map(move |back| Self(last.0.wrapping_sub(back)));
        first.into_iter().chain(rest.filter(|turn| turn.is_on()))
    }

    const fn place(self) -> usize {
        self.0 as usize / 2 % KEPT
    }
}

impl Wanted {
    /// Asks for a tool, for [`LASTS`]. The process has to be woken if the tool may be off.
    pub fn ask(&self, tool: Tool) {
        for (word, it) in self.asked.iter().zip(TOOLS) {
            if it == tool {
                // Zero says that nobody has ever asked.
                let _ =
                    word.fetch_update(Relaxed, Relaxed, |asked| Some(asked.wrapping_add(1).max(1)));
            }
        }
    }

    /// Whether the process has turned a tool on, because somebody asked. What happens while it is on is seen by the
    /// tool, except where a thread has looked before.
    pub fn turn(&self, tool: Tool) -> Turn {
        let turn = |index: usize| Turn(self.turns[index].load(Acquire));
        place_of(tool).map_or(Turn(0), turn)
    }

    /// When a tool was turned on at this turn, and when it was turned off. `None` if that is not known any more. Ask
    /// after [`Wanted::turn`]: the end is known if that is a later turn.
    pub fn times(&self, tool: Tool, turn: Turn) -> Option<(u64, u64)> {
        let index = place_of(tool)?;
        let [begun, ended] = &self.times[index][turn.place()];
        let times = (begun.load(Acquire), ended.load(Acquire));
        // They are those of a later turn, if there was one in this place.
        let passed = self.turns[index].load(Acquire).wrapping_sub(turn.0) as usize;
        (passed + 1 < 2 * KEPT).then_some(times)
    }

    /// Notes that a tool is turned on or off.
    fn note(&self, index: usize, is_on: bool, now: u64) {
        let before = Turn(self.turns[index].load(Relaxed));
        // Another process may have written anything.
        let turn = Turn(before.0.wrapping_add(if before.is_on() == is_on { 2 } else { 1 }));
        let (turn_on, at) = if is_on { (turn, 0) } else { (before, 1) };
        self.times[index][turn_on.place()][at].store(now, Release);
        self.turns[index].store(turn.0, Release);
    }

    /// Asks how the queues of the process stand now. It has to be woken, and turns nothing on.
    pub fn ask_how_it_stands(&self) -> Question {
        Question(self.questions.fetch_add(1, AcqRel).wrapping_add(1))
    }

    /// Whether the process has answered since that was asked.
    pub fn has_answered(&self, Question(question): Question) -> bool {
        // Another process may have written anything.
        self.answered.load(Acquire).wrapping_sub(question) < u32::MAX / 2
    }

    /// Has the process answer, if somebody has asked since the last time.
    pub fn answer(&self, show: impl FnOnce()) {
        let asked = self.questions.load(Acquire);
        if asked != self.answered.load(Relaxed) {
            show();
            self.answered.store(asked, Release);
        }
    }

    /// Whether anybody has ever asked for a tool.
    pub fn is_asked_for(&self, tool: Tool) -> bool {
        self.asked.iter().zip(TOOLS).any(|(word, it)| it == tool && word.load(Relaxed) != 0)
    }
}

fn place_of(tool: Tool) -> Option<usize> {
    TOOLS.into_iter().position(|it| it == tool)
}

/// The tools that are on in this process because others want them. Dropping it turns them off.
#[derive(Debug, Default)]
pub struct Leases {
    seen: [u32; TOOLS.len()],
    /// Until when each is on.
    until: [Option<u64>; TOOLS.len()],
}

impl Leases {
    /// Looks at the words. Turns on what is wanted anew, if `prepare` can, and turns off what nobody has asked for
    /// again. Calls `answer` for each that is on and was asked for since the last time. `now` is read from the steady
    /// clock if it is needed.
    pub fn look(
        &mut self,
        wanted: &Wanted,
        now: impl Fn() -> u64,
        mut prepare: impl FnMut(Tool) -> bool,
        mut answer: impl FnMut(Tool),
    ) {
        for (index, tool) in TOOLS.into_iter().enumerate() {
            let (seen, until) = (&mut self.seen[index], &mut self.until[index]);
            let asked = wanted.asked[index].load(Relaxed);
            if asked == *seen && until.is_none() {
                continue;
            }
            let now = now();
            if asked != *seen {
                *seen = asked;
                let begins = until.is_none() && prepare(tool);
                if begins || until.is_some() {
                    *until = Some(now.saturating_add(LASTS));
                    answer(tool);
                }
                if begins {
                    tools::turn_on(tool);
                    wanted.note(index, true, now);
                }
            } else if until.is_some_and(|until| until <= now) {
                *until = None;
                wanted.note(index, false, now);
                tools::turn_off(tool);
            }
        }
    }

    /// Turns off all that is on: nothing happens here any more.
    pub fn end(&mut self, wanted: &Wanted, now: u64) {
        for (index, tool) in TOOLS.into_iter().enumerate() {
            if self.until[index].take().is_some() {
                wanted.note(index, false, now);
                tools::turn_off(tool);
            }
        }
    }

    /// When to look again at the latest.
    pub fn deadline(&self) -> Option<u64> {
        self.until.iter().copied().flatten().min()
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        for (tool, until) in TOOLS.into_iter().zip(&self.until) {
            if until.is_some() {
                tools::turn_off(tool);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules: SEE-40
    #[test]
    fn a_tool_is_on_as_long_as_somebody_asks_for_it() {
        let (wanted, mut leases) = (Wanted::default(), Leases::default());
        let mut look = |now| {
            leases.look(&wanted, || now, |_| true, |_| ());
            assert_eq!(wanted.turn(Tool::Events).is_on(), tools::is_on(Tool::Events));
            (tools::is_on(Tool::Events), leases.deadline())
        };
        assert_eq!(look(0), (false, None));
        wanted.ask(Tool::Events);
        assert_eq!(look(1), (true, Some(1 + LASTS)));
        assert_eq!(look(LASTS), (true, Some(1 + LASTS)));
        wanted.ask(Tool::Events);
        assert_eq!(look(1 + LASTS), (true, Some(1 + 2 * LASTS)));
        assert_eq!(look(1 + 2 * LASTS), (false, None));
        assert_eq!(look(2 + 2 * LASTS), (false, None));
        // It is on for two devices of this process, until both end.
        wanted.ask(Tool::Events);
        let mut other = Leases::default();
        other.look(&wanted, || 0, |_| true, |_| ());
        leases.look(&wanted, || 0, |_| true, |_| ());
        drop(other);
        assert!(tools::is_on(Tool::Events));
        drop(leases);
        assert!(!tools::is_on(Tool::Events));
        let mut refused = Leases::default();
        refused.look(&wanted, || 0, |_| false, |_| ());
        assert_eq!((tools::is_on(Tool::Events), refused.deadline()), (false, None));
        who_was_away_sees_that_a_tool_was_off_meanwhile();
    }

    /// Part of the test above, because a tool is on or off for the whole process.
    fn who_was_away_sees_that_a_tool_was_off_meanwhile() {
        let (wanted, mut leases) = (Wanted::default(), Leases::default());
        let mut look = |now| {
            leases.look(&wanted, || now, |_| true, |_| ());
            wanted.turn(Tool::Events)
        };
        assert_eq!(look(5), Turn(0));
        wanted.ask(Tool::Events);
        assert_eq!(look(6), Turn(1));
        wanted.ask(Tool::Events);
        assert_eq!(look(7), Turn(1), "it goes on");
        assert_eq!(look(7 + LASTS), Turn(2));
        wanted.ask(Tool::Events);
        assert_eq!(look(20 + LASTS), Turn(3));
        leases.end(&wanted, 30 + LASTS);
        assert_eq!(wanted.turn(Tool::Events), Turn(4));
        assert!(!tools::is_on(Tool::Events));
        let times = [1, 3].map(|turn| wanted.times(Tool::Events, Turn(turn)));
        assert_eq!(times, [Some((6, 7 + LASTS)), Some((20 + LASTS, 30 + LASTS))]);
    }

    #[test]
    fn a_question_is_answered_once() {
        let wanted = Wanted::default();
        let mut shown = 0;
        wanted.answer(|| shown += 1);
        let first = wanted.ask_how_it_stands();
        assert!(!wanted.has_answered(first));
        wanted.answer(|| shown += 1);
        wanted.answer(|| shown += 1);
        assert!(wanted.has_answered(first));
        let second = wanted.ask_how_it_stands();
        assert!(wanted.has_answered(first) && !wanted.has_answered(second));
        assert_eq!(shown, 1);
    }

    /// Rules: SEE-50
    #[test]
    fn the_last_times_that_a_tool_was_on_are_known() {
        let wanted = Wanted::default();
        for turn in 1..=101_u32 {
            wanted.note(0, turn % 2 == 1, turn.into());
        }
        let known = |turn: &u32| wanted.times(TOOLS[0], Turn(*turn)).is_some();
        let all: Vec<_> = (0..50).map(|nth| 2 * nth + 1).filter(known).collect();
        assert_eq!(all, [87, 89, 91, 93, 95, 97, 99], "and that which has not ended");
        assert_eq!(wanted.times(TOOLS[0], Turn(87)), Some((87, 88)));
        let told = |first: u32| {
            Turn(first).recordings_until(Turn(101)).map(|turn| turn.0).collect::<Vec<_>>()
        };
        assert_eq!(told(97), [97, 99, 101]);
        assert_eq!(told(96), [97, 99, 101]);
        assert_eq!((told(1).len(), told(1)[0], told(1)[1]), (10, 1, 85));
        assert_eq!(told(101), [101]);
    }
}

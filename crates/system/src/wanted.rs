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
    /// How often each was turned on and off. An odd number is on.
    turns: [AtomicU32; TOOLS.len()],
    /// When each was turned off last, on the steady clock.
    ended: [AtomicU64; TOOLS.len()],
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

    /// Whether the process has turned a tool on, because somebody asked. What happens from now on is seen by the tool,
    /// except where a thread has looked before. Each time that it is turned on has a number of its own.
    pub fn turn(&self, tool: Tool) -> Option<u32> {
        let mut words = self.turns.iter().zip(TOOLS);
        let word = words.find_map(|(word, it)| (it == tool).then(|| word.load(Acquire)));
        word.filter(|turn| is_on(*turn))
    }

    /// When the tool was turned off last. Zero for never.
    pub fn ended(&self, tool: Tool) -> u64 {
        let mut times = self.ended.iter().zip(TOOLS);
        times.find_map(|(time, it)| (it == tool).then(|| time.load(Acquire))).unwrap_or(0)
    }

    /// Notes that a tool is turned on or off.
    fn note(&self, index: usize, is_on: bool, now: u64) {
        if !is_on {
            self.ended[index].store(now, Release);
        }
        let turn = self.turns[index].load(Relaxed);
        // Another process may have written anything.
        let turn = turn.wrapping_add(if self::is_on(turn) == is_on { 2 } else { 1 });
        self.turns[index].store(turn, Release);
    }

    /// Whether anybody has ever asked for a tool.
    pub fn is_asked_for(&self, tool: Tool) -> bool {
        self.asked.iter().zip(TOOLS).any(|(word, it)| it == tool && word.load(Relaxed) != 0)
    }
}

const fn is_on(turn: u32) -> bool {
    turn % 2 == 1
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
            assert_eq!(wanted.turn(Tool::Events).is_some(), tools::is_on(Tool::Events));
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
            (wanted.turn(Tool::Events), wanted.ended(Tool::Events))
        };
        assert_eq!(look(5), (None, 0));
        wanted.ask(Tool::Events);
        let (first, _) = look(6);
        wanted.ask(Tool::Events);
        assert_eq!(look(7), (first, 0), "it goes on");
        assert_eq!(look(7 + LASTS), (None, 7 + LASTS));
        wanted.ask(Tool::Events);
        let (second, ended) = look(20 + LASTS);
        assert!(first.is_some() && second.is_some() && first != second, "{first:?} {second:?}");
        assert_eq!(ended, 7 + LASTS);
        leases.end(&wanted, 30 + LASTS);
        assert_eq!((wanted.turn(Tool::Events), wanted.ended(Tool::Events)), (None, 30 + LASTS));
        assert!(!tools::is_on(Tool::Events));
    }
}

//! Counts the devices that each run of a program opens, in all its processes. A repeated run must get the same faults,
//! and slots would not give that: they differ from run to run.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// How many runs are counted at the same time. A run that was pushed out is counted from the beginning again.
const RUNS: usize = 256;

/// A program and everything that it starts, as [`Registry::begin_run`](super::Registry::begin_run) names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    place: u8,
    /// Tells it from earlier runs in its place, and from runs of other registries.
    mark: u32,
}

impl Run {
    fn of_word(self, word: u64) -> Option<u32> {
        ((word >> 32) as u32 == self.mark).then_some(word as u32)
    }

    fn to_word(self, devices: u32) -> u64 {
        u64::from(self.mark) << 32 | u64::from(devices)
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.place, self.mark)
    }
}

/// It is no run's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no name of a run; `transom run` gives them")]
pub struct NotARun;

impl FromStr for Run {
    type Err = NotARun;

    fn from_str(text: &str) -> Result<Self, NotARun> {
        let (place, mark) = text.split_once(':').ok_or(NotARun)?;
        let place = place.parse().map_err(|_| NotARun)?;
        Ok(Self { place, mark: mark.parse().map_err(|_| NotARun)? })
    }
}

/// The runs of a registry.
#[repr(C)]
pub(super) struct Runs {
    /// The place of the next one.
    next: AtomicU64,
    /// The mark above, and how many devices it has opened below.
    opened: [AtomicU64; RUNS],
}

impl Runs {
    pub(super) fn begin(&self, mark: u32) -> Run {
        let place = (self.next.fetch_add(1, Relaxed) % RUNS as u64) as u8;
        let run = Run { place, mark };
        self.opened[usize::from(place)].store(run.to_word(0), Relaxed);
        run
    }

    /// How many devices a run has opened before. A run that began in another registry is counted here from its first
    /// device on.
    pub(super) fn count_device(&self, run: Run) -> u32 {
        let one_more = |word| {
            let before = run.of_word(word).unwrap_or(0);
            Some(run.to_word(before.wrapping_add(1)))
        };
        let word = self.opened[usize::from(run.place)].fetch_update(Relaxed, Relaxed, one_more);
        word.ok().and_then(|word| run.of_word(word)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs() -> Runs {
        Runs { next: AtomicU64::new(0), opened: [const { AtomicU64::new(0) }; RUNS] }
    }

    #[test]
    fn each_run_counts_its_own_devices() {
        let runs = runs();
        let (one, other) = (runs.begin(7), runs.begin(7));
        assert_eq!([0; 3].map(|_| runs.count_device(one)), [0, 1, 2]);
        assert_eq!([0; 2].map(|_| runs.count_device(other)), [0, 1]);
        assert_eq!(runs.count_device(one), 3);
        // A run that gets its place begins at zero.
        let last = (0..RUNS).map(|_| runs.begin(8)).last().expect("some");
        assert_eq!(runs.count_device(last), 0);
        // A run from another registry does not inherit counts from here.
        let foreign = Run { mark: 9, ..one };
        assert_eq!([0; 2].map(|_| runs.count_device(foreign)), [0, 1]);
    }

    #[test]
    fn a_run_is_told_by_its_name() {
        let run = Run { place: 255, mark: u32::MAX };
        assert_eq!(run.to_string().parse(), Ok(run));
        for text in ["", "1", "1:", ":1", "256:0", "1:2:3", "-1:0"] {
            assert_eq!(text.parse::<Run>(), Err(NotARun), "{text}");
        }
    }
}

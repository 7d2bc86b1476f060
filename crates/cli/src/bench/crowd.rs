//! Bystanders: processes that only exist. Each is connected to all others, and to the two that measure.

use std::io::{BufReader, stdin, stdout};
use std::process::{Child, ChildStdout, Stdio};

use super::end::End;
use super::setup::{Role, Setup};
use super::start::start;
use crate::failure::{Failure, Result};
use crate::talk::{hear, tell};

/// The numbers of a process's queue pairs for all others, by the others' places. Near has the first place, far the
/// second.
pub(super) type Numbers = Vec<u32>;

/// All processes except the two that measure. They end when this is dropped.
#[derive(Default)]
pub(super) struct Crowd(Vec<Bystander>);

/// A process of the crowd.
struct Bystander {
    process: Child,
    answers: BufReader<ChildStdout>,
}

impl Crowd {
    pub(super) fn start(setup: Setup) -> Result<Self> {
        let mut crowd = Self::default();
        for _ in 0..setup.bystanders {
            let mut command = start(setup, Role::Bystander)?;
            let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
            let mut process =
                process.map_err(|error| Failure::new(format!("a process: {error}")))?;
            let answers = BufReader::new(process.stdout.take().expect("it is piped"));
            crowd.0.push(Bystander { process, answers });
        }
        Ok(crowd)
    }

    /// Collects the queue pairs of all, given those of near and far.
    pub(super) fn gather(&mut self, near: Numbers, far: Numbers) -> Result<Vec<Numbers>> {
        let mut all = vec![near, far];
        for bystander in &mut self.0 {
            all.push(bystander.hear()?);
        }
        Ok(all)
    }

    /// Makes each bystander connect to all others, and waits until it has.
    pub(super) fn connect(&mut self, all: &[Numbers]) -> Result {
        for (place, bystander) in (2_usize..).zip(&mut self.0) {
            tell(bystander.process.stdin.as_mut().expect("it is piped"), &(place, all))?;
        }
        self.0.iter_mut().try_for_each(Bystander::hear)
    }
}

impl Bystander {
    fn hear<T: serde::de::DeserializeOwned>(&mut self) -> Result<T> {
        hear(&mut self.answers)?.ok_or_else(|| Failure::new("one of many processes has ended"))
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        // The process ends when its input does.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// Runs a bystander.
pub(super) fn stand_by(setup: Setup) -> Result {
    let mut end = End::new(setup.shared)?;
    tell(&mut stdout(), &numbers(&mut end, setup)?)?;
    let mut input = stdin().lock();
    if let Some((place, all)) = hear::<(usize, Vec<Numbers>)>(&mut input)? {
        connect(&end, place, &all)?;
        tell(&mut stdout(), &())?;
        // Nothing more comes: the end of the input is this process's end.
        let _: Option<()> = hear(&mut input)?;
    }
    Ok(())
}

/// Makes the queue pairs for all others, one for each place.
pub(super) fn numbers(end: &mut End, setup: Setup) -> Result<Numbers> {
    let before = end.card().qps.len();
    end.add_queue_pairs(setup.bystanders + 2)?;
    Ok(end.card().qps.split_off(before))
}

/// Connects the last queue pairs of an end, which are those for all others. Its own place also has one, connected to
/// itself.
pub(super) fn connect(end: &End, place: usize, all: &[Numbers]) -> Result {
    let theirs = all.iter().map(|numbers| numbers.get(place).copied());
    let theirs: Option<Vec<u32>> = theirs.collect();
    let theirs = theirs.ok_or_else(|| Failure::new("a process has too few queue pairs"))?;
    end.connect_last(&theirs, None)
}

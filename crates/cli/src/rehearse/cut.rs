//! Cuts a run that fails down to the least that makes it fail: first whole provocations, then places.

use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

use transom_rehearse::{Place, Plan, Profile, Provocation};

use super::trial::{Outcome, Stage, Trial};
use crate::failure::Result;
use crate::progress::Progress;

/// How often the same plan is tried before it counts as one that does not fail.
const TRIES: usize = 3;
/// The most runs of one cut.
const MOST: usize = 100;
/// The longest time of one cut, for programs of which a run takes less than a tenth of it.
const LONGEST: Duration = Duration::from_secs(60);
/// So many places tell nobody more than the names of the provocations do.
const MANY: usize = 16;

/// What is left of a run that fails.
pub(super) enum Least {
    /// No provocation: what the device lacks as another adapter.
    Profile(&'static Profile),
    /// It did not fail again in so many runs.
    NotAgain(usize),
    /// It fails by these, at many places together, or not at the same ones each time. None, if nothing was provoked.
    Kinds(Vec<Provocation>),
    /// These places alone make it fail.
    Places(Vec<Place>),
}

pub(super) struct Cut<'a> {
    stage: &'a mut Stage,
    progress: &'a Progress,
    plan: Plan,
    outcome: Outcome,
    /// What was provoked in the last run that failed.
    provoked: Vec<Place>,
    runs: usize,
    end: Instant,
}

impl<'a> Cut<'a> {
    /// Begins with a run that failed by a plan.
    pub(super) fn begin(
        stage: &'a mut Stage,
        plan: &Plan,
        trial: &Trial,
        progress: &'a Progress,
    ) -> Self {
        let (outcome, provoked) = (trial.outcome.clone(), trial.provoked.clone());
        let end = Instant::now() + LONGEST.max(stage.limit() * 10);
        Self { stage, progress, plan: plan.clone(), outcome, provoked, runs: 0, end }
    }

    pub(super) fn run(mut self) -> Result<Least> {
        if self.provoked.is_empty() {
            return Ok(Least::Kinds(Vec::new()));
        }
        let exercised: BTreeSet<_> = self.provoked.iter().map(|place| place.provocation).collect();
        self.plan.kinds.retain(|kind| exercised.contains(kind) || kind.changes_the_way());
        if !self.fails(self.plan.clone())? {
            return Ok(Least::NotAgain(self.runs));
        }
        for kind in self.plan.kinds.clone() {
            let mut fewer = self.plan.clone();
            fewer.kinds.remove(&kind);
            if self.fails(fewer.clone())? {
                self.plan = fewer;
            }
        }
        let places = self.provoked.clone();
        if !self.fails(at(&self.plan, &places))? {
            return Ok(Least::Kinds(self.plan.kinds.into_iter().collect()));
        }
        let mut places = self.fewest(places)?;
        if places.len() > MANY {
            return Ok(Least::Kinds(self.plan.kinds.into_iter().collect()));
        }
        places.sort();
        Ok(Least::Places(places))
    }

    /// The fewest places that make it fail: without each of them it succeeds (Zeller's ddmin).
    fn fewest(&mut self, mut places: Vec<Place>) -> Result<Vec<Place>> {
        let mut parts = 2;
        while places.len() > 1 && self.runs < MOST && Instant::now() < self.end {
            let size = places.len().div_ceil(parts);
            let chunks: Vec<Vec<Place>> = places.chunks(size).map(<[Place]>::to_vec).collect();
            let mut smaller = None;
            for chunk in &chunks {
                let rest: Vec<_> =
                    places.iter().filter(|it| !chunk.contains(it)).copied().collect();
                if self.fails(at(&self.plan, chunk))? {
                    smaller = Some((chunk.clone(), 2));
                } else if chunks.len() > 2 && self.fails(at(&self.plan, &rest))? {
                    smaller = Some((rest, (parts - 1).max(2)));
                }
                if smaller.is_some() {
                    break;
                }
            }
            match smaller {
                Some((fewer, next)) => (places, parts) = (fewer, next),
                None if size == 1 => break,
                None => parts = (parts * 2).min(places.len()),
            }
        }
        Ok(places)
    }

    /// Whether the program fails in the same way by a plan.
    fn fails(&mut self, plan: Plan) -> Result<bool> {
        for _ in 0..TRIES {
            if self.runs >= MOST || Instant::now() > self.end {
                return Ok(false);
            }
            self.runs += 1;
            let places =
                plan.places.as_ref().map_or(String::new(), |it| format!(", {} places", it.len()));
            self.progress.doing(format!("cutting it down: run {}{places}", self.runs));
            let trial = self.stage.run(&plan)?;
            if trial.outcome.is_like(&self.outcome) {
                self.provoked = trial.provoked;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The same plan at these places only.
fn at(plan: &Plan, places: &[Place]) -> Plan {
    let kinds: BTreeSet<_> = places.iter().map(|place| place.provocation).collect();
    let places: HashSet<_> = places.iter().copied().collect();
    Plan { kinds, places: Some(places), ..plan.clone() }
}

//! Cuts a run that fails down to the least that makes it fail: first whole provocations, then places.

use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

use transom_rehearse::{Place, Plan, Profile, Provocation};

use super::outcome::Outcome;
use super::trial::{Programs, Stage, Trial};
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
/// A run that hangs is given up after twice the time of the longest that passed, and so much more. That is more where
/// something comes late by seconds.
const MORE: Duration = Duration::from_secs(1);
const MORE_IF_SLOW: Duration = Duration::from_secs(4);

/// What is left of a run that fails.
pub(super) struct Cut {
    pub(super) least: Least,
    /// Each part was found to be needed. If not, the time was over before.
    pub(super) is_complete: bool,
    /// The processes of the last run that failed.
    pub(super) programs: Programs,
}

pub(super) enum Least {
    /// No provocation: what the device lacks as another adapter.
    Profile(&'static Profile),
    /// It fails without any provocation too: so many runs of so many.
    Unprovoked { failed: usize, runs: usize },
    /// It did not fail again in so many runs.
    NotAgain(usize),
    /// It fails by these, at many places together, or not at the same ones each time.
    Kinds(Vec<Provocation>),
    /// These places alone make it fail.
    Places(Vec<Place>),
}

/// Whether the program fails in the same way by a plan.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Fails,
    Passes,
    /// The time or the runs are over, or a signal ends the command.
    NotTried,
}

pub(super) struct Cutter<'a> {
    stage: &'a mut Stage,
    progress: &'a Progress,
    plan: Plan,
    outcome: Outcome,
    /// What was provoked in the last run that failed, and its processes.
    provoked: Vec<Place>,
    programs: Programs,
    runs: usize,
    /// Of the runs in which nothing was provoked: how many failed, and how many there were.
    unprovoked: (usize, usize),
    /// What was exercised in the run that failed first.
    exercised: Vec<Provocation>,
    /// Something was not tried.
    is_over: bool,
    end: Instant,
}

impl<'a> Cutter<'a> {
    /// Begins with a run that failed by a plan.
    pub(super) fn begin(
        stage: &'a mut Stage,
        plan: &Plan,
        trial: &Trial,
        progress: &'a Progress,
    ) -> Self {
        let (outcome, provoked) = (trial.outcome.clone(), trial.provoked.clone());
        let end = Instant::now() + LONGEST.max(stage.limit() * 10);
        let (plan, programs, unprovoked) = (plan.clone(), trial.programs.clone(), (0, 0));
        let mut cutter = Self {
            stage,
            progress,
            plan,
            outcome,
            provoked,
            programs,
            runs: 0,
            unprovoked,
            exercised: Vec::new(),
            is_over: false,
            end,
        };
        cutter.count_if_unprovoked(&cutter.plan.clone(), trial);
        cutter
    }

    pub(super) fn run(mut self) -> Result<Cut> {
        self.run_unprovoked()?;
        let mut least = Least::Kinds(Vec::new());
        if self.unprovoked.0 == 0 {
            least = self.least()?;
            least = self.confirmed(least)?;
            // A program that fails now and then by itself may have passed before by chance.
            if let Least::Kinds(_) | Least::Places(_) = least {
                self.run_unprovoked()?;
            }
        }
        if let (failed @ 1.., runs) = self.unprovoked {
            least = Least::Unprovoked { failed, runs };
        }
        Ok(Cut { least, is_complete: !self.is_over, programs: self.programs })
    }

    /// Runs the program a few times without any provocation. What is provoked is innocent if it fails then.
    fn run_unprovoked(&mut self) -> Result {
        let plan = Plan { kinds: BTreeSet::new(), places: None, ..self.plan.clone() };
        for _ in 0..TRIES {
            if self.try_once(&plan, self.stage.limit())?.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn least(&mut self) -> Result<Least> {
        let exercised: BTreeSet<_> = self.provoked.iter().map(|place| place.provocation).collect();
        self.plan.kinds.retain(|kind| exercised.contains(kind) || kind.changes_the_way());
        self.exercised = self.plan.kinds.iter().copied().collect();
        let before = self.runs;
        match self.tried(&self.plan.clone())? {
            Answer::Passes => return Ok(Least::NotAgain(self.runs - before)),
            Answer::NotTried if self.plan.kinds.is_empty() => return Ok(Least::NotAgain(0)),
            Answer::Fails | Answer::NotTried => {}
        }
        for kind in self.plan.kinds.clone() {
            let mut fewer = self.plan.clone();
            fewer.kinds.remove(&kind);
            if !fewer.kinds.is_empty() && self.tried(&fewer)? == Answer::Fails {
                self.plan = fewer;
            }
        }
        let (places, kinds) = (self.provoked.clone(), self.kinds());
        if places.is_empty() || self.tried(&at(&self.plan, &places))? != Answer::Fails {
            return Ok(kinds);
        }
        let mut places = self.fewest(places)?;
        if places.len() > MANY {
            return Ok(kinds);
        }
        places.sort();
        Ok(Least::Places(places))
    }

    fn kinds(&self) -> Least {
        Least::Kinds(self.plan.kinds.iter().copied().collect())
    }

    /// The fewest places that make it fail: without each of them it succeeds (Zeller's ddmin).
    fn fewest(&mut self, mut places: Vec<Place>) -> Result<Vec<Place>> {
        let mut parts = 2;
        while places.len() > 1 && !self.is_over {
            let size = places.len().div_ceil(parts);
            let chunks: Vec<Vec<Place>> = places.chunks(size).map(<[Place]>::to_vec).collect();
            let mut smaller = None;
            for chunk in &chunks {
                let rest: Vec<_> =
                    places.iter().filter(|it| !chunk.contains(it)).copied().collect();
                if self.tried(&at(&self.plan, chunk))? == Answer::Fails {
                    smaller = Some((chunk.clone(), 2));
                } else if chunks.len() > 2 && self.tried(&at(&self.plan, &rest))? == Answer::Fails {
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

    /// What is left, if a program that hung by it does so for the whole limit too.
    fn confirmed(&mut self, least: Least) -> Result<Least> {
        let limit = self.stage.limit();
        if !matches!(self.outcome, Outcome::TimedOut(_)) || self.limit_of(&self.plan) == limit {
            return Ok(least);
        }
        let plan = match &least {
            Least::Places(places) => at(&self.plan, places),
            Least::Kinds(_) => self.plan.clone(),
            _ => return Ok(least),
        };
        let hangs = |trial: &Trial| matches!(trial.outcome, Outcome::TimedOut(_));
        match self.stage.run(&plan)? {
            Some(trial) if hangs(&trial) => return Ok(least),
            _ => self.is_over = true,
        }
        Ok(Least::Kinds(self.exercised.clone()))
    }

    /// Whether the program fails in the same way by a plan.
    fn tried(&mut self, plan: &Plan) -> Result<Answer> {
        for _ in 0..TRIES {
            let Some(trial) = self.try_once(plan, self.limit_of(plan))? else {
                return Ok(Answer::NotTried);
            };
            if trial.outcome.is_like(&self.outcome) {
                (self.provoked, self.programs) = (trial.provoked, trial.programs);
                return Ok(Answer::Fails);
            }
        }
        Ok(Answer::Passes)
    }

    /// Runs the program once, unless it is known to fail by itself, or the time or the runs are over.
    fn try_once(&mut self, plan: &Plan, limit: Duration) -> Result<Option<Trial>> {
        let is_stopped = self.stage.stopped().is_some();
        let is_over = is_stopped || self.runs >= MOST || Instant::now() > self.end;
        let is_known = self.unprovoked.0 > 0 && !plan.kinds.is_empty();
        if is_over || is_known {
            self.is_over = true;
            return Ok(None);
        }
        self.runs += 1;
        let places =
            plan.places.as_ref().map_or(String::new(), |it| format!(", {} places", it.len()));
        self.progress.doing(format!("cutting it down: run {}{places}", self.runs));
        let trial = self.stage.run_within(plan, limit)?;
        match &trial {
            Some(trial) => self.count_if_unprovoked(plan, trial),
            None => self.is_over = true,
        }
        Ok(trial)
    }

    /// Counts a run in which nothing was provoked.
    fn count_if_unprovoked(&mut self, plan: &Plan, trial: &Trial) {
        let may_differ = plan.kinds.iter().any(|kind| kind.changes_the_way());
        if trial.provoked.is_empty() && !may_differ {
            self.unprovoked.0 += usize::from(trial.outcome.is_failure());
            self.unprovoked.1 += 1;
        }
    }

    /// How long a run by this plan may take. A program that hangs takes all of it, so it is short where others were.
    fn limit_of(&self, plan: &Plan) -> Duration {
        let is_slow = |kind: &Provocation| {
            matches!(kind, Provocation::StuckWork | Provocation::LateTimewaits)
        };
        let more = if plan.kinds.iter().any(is_slow) { MORE_IF_SLOW } else { MORE };
        match self.outcome {
            Outcome::TimedOut(_) => self.stage.limit().min(self.stage.longest() * 2 + more),
            _ => self.stage.limit(),
        }
    }
}

/// The same plan at these places only.
fn at(plan: &Plan, places: &[Place]) -> Plan {
    let kinds: BTreeSet<_> = places.iter().map(|place| place.provocation).collect();
    let places: HashSet<_> = places.iter().copied().collect();
    Plan { kinds, places: Some(places), ..plan.clone() }
}

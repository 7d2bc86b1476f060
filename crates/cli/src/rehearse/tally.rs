//! How often each provocation was exercised.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use transom_rehearse::{Place, Plan, Provocation};

use super::trial::Trial;
use crate::layout::Page;

#[derive(Debug, Default)]
pub(super) struct Tally {
    runs: usize,
    /// Of each: how often, and in how many runs.
    counts: BTreeMap<Provocation, (usize, usize)>,
    /// The places that the plan names, at which something was provoked.
    reached: BTreeSet<Place>,
}

impl Tally {
    pub(super) fn add(&mut self, trial: &Trial, plan: &Plan) {
        self.runs += 1;
        if plan.places.is_some() {
            self.reached.extend(&trial.provoked);
        }
        let mut of_this = BTreeMap::<Provocation, usize>::new();
        trial.provoked.iter().for_each(|it| *of_this.entry(it.provocation).or_default() += 1);
        for (provocation, count) in of_this {
            let (all, runs) = self.counts.entry(provocation).or_default();
            (*all, *runs) = (*all + count, *runs + 1);
        }
    }

    pub(super) fn runs(&self) -> usize {
        self.runs
    }

    /// How often a provocation was exercised, and in how many runs.
    pub(super) fn of(&self, provocation: Provocation) -> (usize, usize) {
        self.counts.get(&provocation).copied().unwrap_or_default()
    }

    /// What the plan has and never was exercised.
    pub(super) fn never(&self, plan: &Plan) -> impl Iterator<Item = Provocation> {
        plan.kinds.iter().copied().filter(|it| !self.counts.contains_key(it))
    }

    /// The places that the plan names, and at which nothing was provoked.
    pub(super) fn missed(&self, plan: &Plan) -> BTreeSet<Place> {
        let places = plan.places.iter().flatten().copied();
        places.filter(|place| !self.reached.contains(place)).collect()
    }

    /// Lists what was exercised, and what the plan has and never was.
    pub(super) fn print(&self, out: &mut Page<impl Write>, plan: &Plan) -> io::Result<()> {
        writeln!(out.to, "{:<20} {:>9} {:>6}", "provoked", "times", "runs")?;
        for (provocation, (count, runs)) in &self.counts {
            writeln!(out.to, "{:<20} {count:>9} {runs:>6}", provocation.name())?;
        }
        // Of places that were given, the line below tells.
        let never: Vec<_> = self.never(plan).map(|it| it.name()).collect();
        if !never.is_empty() && plan.places.is_none() {
            out.text(format_args!("Never exercised: {}.", never.join(", ")))?;
        }
        let missed: Vec<_> = self.missed(plan).iter().map(ToString::to_string).collect();
        if !missed.is_empty() {
            out.text(format_args!(
                "Nothing was provoked at {}: the program made no such object, or did less with it.",
                missed.join(", ")
            ))?;
        }
        Ok(())
    }
}

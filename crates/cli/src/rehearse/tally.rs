//! How often each provocation was exercised.

use std::collections::BTreeMap;
use std::io::{self, Write};

use transom_rehearse::{Plan, Provocation};

use super::trial::Trial;
use crate::layout::Page;

#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Of each: how often, and in how many runs.
    counts: BTreeMap<Provocation, (usize, usize)>,
}

impl Tally {
    pub(super) fn add(&mut self, trial: &Trial) {
        let mut of_this = BTreeMap::<Provocation, usize>::new();
        trial.provoked.iter().for_each(|it| *of_this.entry(it.provocation).or_default() += 1);
        for (provocation, count) in of_this {
            let (all, runs) = self.counts.entry(provocation).or_default();
            (*all, *runs) = (*all + count, *runs + 1);
        }
    }

    /// Lists what was exercised, and what the plan has and never was.
    pub(super) fn print(&self, out: &mut Page<impl Write>, plan: &Plan) -> io::Result<()> {
        writeln!(out.to, "{:<20} {:>9} {:>6}", "provoked", "times", "runs")?;
        for (provocation, (count, runs)) in &self.counts {
            writeln!(out.to, "{:<20} {count:>9} {runs:>6}", provocation.name())?;
        }
        let never = plan.kinds.iter().filter(|it| !self.counts.contains_key(it));
        let never: Vec<_> = never.map(|it| it.name()).collect();
        if !never.is_empty() {
            out.text(format_args!("Never exercised: {}.", never.join(", ")))?;
        }
        Ok(())
    }
}

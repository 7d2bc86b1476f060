//! The report of a rehearsal for people.

use std::io::{self, Write};

use transom_rehearse::Plan;

use super::cut::Least;
use super::tally::Tally;
use super::trial::{Outcome, Trial, described};
use crate::layout::Page;

/// The most lines of a program's output that are shown.
const LINES: usize = 20;

/// The last lines that a program printed, and how many there were before them.
pub(super) fn last_lines(trial: &Trial) -> (Vec<&str>, usize) {
    let mut lines: Vec<_> = trial.output.lines().collect();
    let before = lines.len().saturating_sub(LINES);
    (lines.split_off(before), before)
}

/// What a program printed.
pub(super) fn output(out: &mut Page<impl Write>, trial: &Trial) -> io::Result<()> {
    let (lines, before) = last_lines(trial);
    if before > 0 {
        writeln!(out.to, "  ({before} lines before)")?;
    }
    lines.iter().try_for_each(|line| writeln!(out.to, "  | {line}"))
}

/// A run that failed, before it is cut down.
pub(super) fn failing(out: &mut Page<impl Write>, plan: &Plan, trial: &Trial) -> io::Result<()> {
    let outcome = &trial.outcome;
    match plan.profile {
        None => out.text(format_args!("With seed {} {outcome}.", plan.seed))?,
        Some(it) if plan.kinds.is_empty() => out.text(format_args!("As {} {outcome}.", it.name))?,
        Some(it) => {
            out.text(format_args!("As {}, with seed {}, {outcome}.", it.name, plan.seed))?;
        }
    }
    output(out, trial)?;
    let Outcome::Found(findings) = &trial.outcome else { return Ok(()) };
    findings.iter().try_for_each(|finding| writeln!(out.to, "{}", finding.text))
}

/// What makes a run fail, and the command that shows it again.
pub(super) fn least(
    out: &mut Page<impl Write>,
    least: Option<&Least>,
    again: &str,
) -> io::Result<()> {
    match least {
        None => {}
        Some(Least::Profile(profile)) => out.text(format_args!(
            "No provocation is needed. {} ({}) has less, or refuses what Transom takes; spec/adapters.md lists what, \
             and `transom explain` tells what was refused. To show it again:",
            profile.name, profile.model
        ))?,
        Some(Least::NotAgain(runs)) => out.text(format_args!(
            "It did not fail again in {runs} runs with the same seed. So it depends on the program's timing too. \
             Try again:"
        ))?,
        Some(Least::Kinds(kinds)) if kinds.is_empty() => out.text(
            "Nothing was provoked in this run. So it depends on the program's timing. Try again:",
        )?,
        Some(Least::Kinds(kinds)) => {
            out.text(
                "It fails by these provocations, at many places together, or not at the same ones each time:",
            )?;
            for kind in kinds {
                let (what, promise) = (kind.what(), kind.promise());
                out.item("  ", format_args!("{}: {what} ({promise})", kind.name()))?;
            }
        }
        Some(Least::Places(places)) => {
            out.text("This alone makes it fail:")?;
            places.iter().try_for_each(|place| out.item("  ", described(place)))?;
            out.text("All numbers begin at 0, in the order of creation. To show it again:")?;
        }
    }
    writeln!(out.to, "  {again}")
}

/// How often each provocation was exercised, and how it ended.
pub(super) fn end(
    out: &mut Page<impl Write>,
    tally: &Tally,
    plan: &Plan,
    failed: bool,
) -> io::Result<()> {
    tally.print(out, plan)?;
    let runs = tally.runs();
    let runs = if runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") };
    match failed {
        true => out.text(format_args!("transom rehearse: The last of {runs} failed.")),
        false => out.text(format_args!("transom rehearse: Nothing failed in {runs}.")),
    }
}

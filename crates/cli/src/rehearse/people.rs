//! The report of a rehearsal for people.

use std::io::{self, Write};

use transom_rehearse::Plan;

use super::cut::{Cut, Least};
use super::tally::Tally;
use super::trial::{Trial, described};
use crate::layout::Page;
use crate::sentence::counted;

/// The most lines of a program's output that are shown.
const LINES: usize = 20;

const AGAIN: &str = "All numbers begin at 0, in the order of creation. To show it again:";

/// The last lines that a program printed, and how many there were before them.
pub(super) fn last_lines(trial: &Trial) -> (Vec<&str>, usize) {
    let mut lines: Vec<_> = trial.output.lines().collect();
    let before = lines.len().saturating_sub(LINES);
    (lines.split_off(before), before)
}

fn output(out: &mut Page<impl Write>, trial: &Trial) -> io::Result<()> {
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
    run(out, trial)
}

/// What a program printed, and what the check found.
pub(super) fn run(out: &mut Page<impl Write>, trial: &Trial) -> io::Result<()> {
    output(out, trial)?;
    trial.findings.iter().try_for_each(|finding| writeln!(out.to, "{}", finding.text))
}

/// What makes a run fail, and the command that shows it again. Nothing is cut down if the places were given.
pub(super) fn least(
    out: &mut Page<impl Write>,
    trial: &Trial,
    cut: Option<&Cut>,
    again: &str,
) -> io::Result<()> {
    match cut {
        Some(cut) => what_is_left(out, cut)?,
        None => {
            out.text("This was provoked:")?;
            let mut described =
                trial.provoked.iter().map(|place| described(place, &trial.programs));
            described.try_for_each(|it| out.item("  ", it))?;
            out.text(AGAIN)?;
        }
    }
    writeln!(out.to, "  {again}")
}

fn what_is_left(out: &mut Page<impl Write>, cut: &Cut) -> io::Result<()> {
    match &cut.least {
        Least::Profile(profile) => out.text(format_args!(
            "No provocation is needed. {} ({}) has less, or refuses what Transom takes; spec/adapters.md lists what, \
             and `transom explain` tells what was refused. To show it again:",
            profile.name, profile.model
        )),
        Least::Unprovoked { failed, runs } => out.text(format_args!(
            "It fails without any provocation too, in {failed} of {}. So the cause may be chance, or what an earlier \
             run has left. Mend that first:",
            counted(*runs, "run", "runs")
        )),
        Least::NotAgain(0) => out.text("It was not run again. Try again:"),
        Least::NotAgain(runs) => out.text(format_args!(
            "It did not fail again in {} with the same seed. So it depends on the program's timing too. Try again:",
            counted(*runs, "run", "runs")
        )),
        Least::Kinds(kinds) => {
            out.text(match cut.is_complete {
                true => {
                    "It fails by these provocations, at many places together, or not at the same ones each time:"
                }
                false => {
                    "It fails by these provocations. The time for cutting down was over; these may not all be needed:"
                }
            })?;
            kinds.iter().try_for_each(|kind| {
                let (what, promise) = (kind.what(), kind.promise());
                out.item("  ", format_args!("{}: {what} ({promise})", kind.name()))
            })
        }
        Least::Places(places) => {
            out.text(match cut.is_complete {
                true => "This alone makes it fail:",
                false => {
                    "This makes it fail. The time for cutting down was over; these may not all be needed:"
                }
            })?;
            let mut described = places.iter().map(|place| described(place, &cut.programs));
            described.try_for_each(|it| out.item("  ", it))?;
            out.text(AGAIN)
        }
    }
}

/// How often each provocation was exercised, and how it ended: also by a signal to this command.
pub(super) fn end(
    out: &mut Page<impl Write>,
    tally: &Tally,
    plan: &Plan,
    failed: bool,
    signal: Option<i32>,
) -> io::Result<()> {
    tally.print(out, plan)?;
    let runs = counted(tally.runs(), "run", "runs");
    let by = signal.map_or(String::new(), |signal| format!("Ended by signal {signal}. "));
    match failed {
        true => out.text(format_args!("transom rehearse: {by}The last of {runs} failed.")),
        false => out.text(format_args!("transom rehearse: {by}Nothing failed in {runs}.")),
    }
}

//! `transom rehearse`: runs a program again and again, each time on a device that is hostile in other moments.
//!
//! | module | holds |
//! |---|---|
//! | `trial` | one run of the program by a plan, and its outcome |
//! | `cut` | from a run that fails to the least that makes it fail |
//! | `tally` | how often each provocation was exercised |

mod cut;
mod tally;
mod trial;

use std::io::Write as _;
use std::time::{Duration, Instant};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use transom_rehearse::{Place, Plan, Provocation};
use transom_system::environment::{CHECK, REHEARSE};

use crate::check::Directory;
use crate::clock::parse_duration;
use crate::failure::{Failure, Result};
use crate::layout;
use crate::run::{Program, ProgramArgs, tell_of_freed_memory};
use cut::{Cut, Least};
use tally::Tally;
use trial::{Outcome, Stage, Trial};

/// The exit status if a run has failed: that of `transom check` with a finding.
const FAILED: u8 = 66;

const HELP: &str = "\
Each run has a seed. The seed decides what is provoked at which operation of which object, whatever the
threads do. A run fails if the program fails, if it is killed, if it still runs after --limit, or if
`transom check` finds a mistake. After a call was made to fail, a program may end with any exit status.

The first run provokes nothing. It must succeed. A run that fails is cut down: it is repeated with less and
less, until only what makes it fail is left. Its output is shown, and the command that shows it again.

Provocations:
{provocations}

Exit status:
  66   a run failed
  1    the program fails without any provocation too, or opened no device
  2    the command line, or a variable, is wrong
  126  the program exists, but cannot be run
  127  there is no such program

Examples:
  transom rehearse -- make check
  transom rehearse --for 10m -- ./stress
  transom rehearse --only late-work,single-completions -- ./server-and-client.sh
  transom rehearse --seed 17 --at late-work:0.5.12 -- ./program";

fn help() -> String {
    let row = |it: &Provocation| format!("  {:<20} {}\n", it.name(), it.what());
    let rows: String = Provocation::ALL.iter().map(row).collect();
    HELP.replace("{provocations}\n", &rows)
}

/// Run a program again and again on a device that is as hostile as the specification allows
///
/// It provokes what goes wrong once in a million runs, and withdraws what no adapter has promised. A failure
/// can be repeated by its seed. docs/rehearse.md in Transom's source tells more.
#[derive(clap::Args)]
#[command(
    after_help = help(),
    override_usage = "transom rehearse [OPTIONS] [--] PROGRAM [ARGUMENTS]..."
)]
pub(crate) struct RehearseArgs {
    #[command(flatten)]
    program: ProgramArgs,
    /// Run the program with so many seeds, from 1 on
    #[arg(long, value_name = "N", default_value_t = 20, conflicts_with_all = ["seed", "time"])]
    runs: u64,
    /// Run it with seed after seed for so long, such as 10m
    #[arg(long = "for", id = "time", value_name = "TIME", value_parser = parse_duration)]
    time: Option<Duration>,
    /// Run it with this seed only
    #[arg(long, value_name = "N", conflicts_with = "time")]
    seed: Option<u64>,
    /// Provoke at this place only, as a report names it; several add up
    #[arg(long, value_name = "PLACE", requires = "seed")]
    at: Vec<Place>,
    /// A run that takes longer has failed
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    limit: Duration,
    /// Provoke only these
    #[arg(
        long,
        value_name = "NAME,NAME",
        value_delimiter = ',',
        value_parser = provocation(),
        hide_possible_values = true
    )]
    only: Vec<Provocation>,
    /// Do not provoke these
    #[arg(
        long,
        value_name = "NAME,NAME",
        value_delimiter = ',',
        value_parser = provocation(),
        hide_possible_values = true
    )]
    without: Vec<Provocation>,
}

/// Parses the name of a provocation. For a wrong name, clap names the nearest.
fn provocation() -> impl TypedValueParser<Value = Provocation> {
    let names = Provocation::ALL.iter().map(|it| it.name());
    PossibleValuesParser::new(names)
        .try_map(|name| Provocation::named(&name).ok_or("there is none"))
}

impl RehearseArgs {
    /// The plan for a seed.
    fn plan(&self, seed: u64) -> Plan {
        let wanted = |it: &Provocation| {
            (self.only.is_empty() || self.only.contains(it)) && !self.without.contains(it)
        };
        let kinds = Provocation::ALL.iter().copied().filter(wanted).collect();
        let places = (!self.at.is_empty()).then(|| self.at.iter().copied().collect());
        Plan { seed, kinds, places }
    }

    /// The seeds, in their order.
    fn seeds(&self) -> Box<dyn Iterator<Item = u64>> {
        let began = Instant::now();
        match (self.seed, self.time) {
            (Some(seed), _) => Box::new(std::iter::once(seed)),
            (None, Some(time)) => Box::new((1..).take_while(move |_| began.elapsed() < time)),
            (None, None) => Box::new(1..=self.runs),
        }
    }
}

pub(crate) fn run(args: &RehearseArgs) -> Result {
    let mut program = Program::prepare(&args.program)?;
    let [findings, plans] = [Directory::make(), Directory::make()].map(|made| {
        made.map_err(|problem| {
            Failure::new(format_args!("there is no place for a rehearsal's files: {problem}"))
        })
    });
    let (findings, plans) = (findings?, plans?);
    program.command.env(CHECK.name, findings.path()).env(REHEARSE.name, plans.path());
    if let Err(problem) = tell_of_freed_memory(&mut program.command) {
        layout::warn(format_args!(
            "memory that the program gives back is not looked at: {problem}"
        ));
    }
    let mut stage = Stage::new(program, findings, plans, args.limit)?;
    let mut tally = Tally::default();
    if args.at.is_empty() {
        check_quiet(&mut stage)?;
    }
    let (mut runs, mut failed) = (0, 0);
    for seed in args.seeds() {
        progress(&format!("run {} (seed {seed})", runs + 1));
        let plan = args.plan(seed);
        let trial = stage.run(&plan)?;
        runs += 1;
        tally.add(&trial);
        if trial.outcome.is_failure() {
            failed += 1;
            tell(args, &mut stage, &plan, &trial)?;
            break;
        }
    }
    progress("");
    let mut out = layout::stderr();
    tally.print(&mut out, &args.plan(0))?;
    let runs = if runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") };
    if failed == 0 {
        out.text(format_args!("transom rehearse: Nothing failed in {runs}."))?;
        return Ok(());
    }
    out.text(format_args!("transom rehearse: The last of {runs} failed."))?;
    Err(Failure::with_status(FAILED, ""))
}

/// The program must succeed without any provocation.
fn check_quiet(stage: &mut Stage) -> Result {
    progress("a run without provocations");
    let quiet = stage.run(&Plan::quiet())?;
    if quiet.opened == 0 {
        progress("");
        return Err(Failure::new(
            "no process opened a device, so there is nothing to rehearse. Does the program find a \
             device? `transom run -- ibv_devices` lists it",
        ));
    }
    if !quiet.outcome.is_failure() {
        return Ok(());
    }
    progress("");
    show_output(&quiet);
    Err(Failure::new(format_args!(
        "without any provocation {}; mend that first, by `transom check`",
        quiet.outcome
    )))
}

/// Tells of a run that failed, cuts it down, and tells what is left.
fn tell(args: &RehearseArgs, stage: &mut Stage, plan: &Plan, trial: &Trial) -> Result {
    progress("");
    let mut out = layout::stderr();
    out.text(format_args!("With seed {} {}.", plan.seed, trial.outcome))?;
    show_output(trial);
    let Outcome::Found(findings) = &trial.outcome else {
        return tell_least(args, stage, plan, trial);
    };
    for finding in findings {
        let _ = writeln!(out.to, "{}", finding.text);
    }
    tell_least(args, stage, plan, trial)
}

fn tell_least(args: &RehearseArgs, stage: &mut Stage, plan: &Plan, trial: &Trial) -> Result {
    let least = match &plan.places {
        Some(_) => None,
        None => Some(Cut::begin(stage, plan, trial).run(progress)?),
    };
    progress("");
    let mut out = layout::stderr();
    let command = |rest: &str| {
        let words = args.program.words().join(" ");
        format!("  transom rehearse --seed {}{rest} -- {words}", plan.seed)
    };
    match least {
        None => {}
        Some(Least::NotAgain(runs)) => out.text(format_args!(
            "It did not fail again in {runs} runs with the same seed. So it depends on the program's timing too. \
             Try again:"
        ))?,
        Some(Least::Kinds(kinds)) => {
            out.text("It fails by these provocations; single places do not show it each time:")?;
            for kind in &kinds {
                out.item("  ", format_args!("{}: {} ({})", kind.name(), kind.what(), kind.promise()))?;
            }
            let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
            let _ = writeln!(out.to, "{}", command(&format!(" --only {}", names.join(","))));
            return Ok(());
        }
        Some(Least::Places(places)) => {
            out.text("This alone makes it fail:")?;
            for place in &places {
                out.item("  ", trial::described(place))?;
            }
            out.text("All numbers begin at 0, in the order of creation. To show it again:")?;
            let rest: String = places.iter().map(|place| format!(" --at {place}")).collect();
            let _ = writeln!(out.to, "{}", command(&rest));
            return Ok(());
        }
    }
    let _ = writeln!(out.to, "{}", command(""));
    Ok(())
}

/// The most lines of a program's output that are shown.
const LINES: usize = 20;

fn show_output(trial: &Trial) {
    let lines: Vec<_> = trial.output.lines().collect();
    let from = lines.len().saturating_sub(LINES);
    let mut err = std::io::stderr();
    if from > 0 {
        let _ = writeln!(err, "  ({from} lines before)");
    }
    for line in &lines[from..] {
        let _ = writeln!(err, "  | {line}");
    }
}

/// Shows on a terminal what goes on. An empty text removes it.
fn progress(text: &str) {
    if anstream::stderr().is_terminal() {
        let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_lists_every_provocation_in_80_columns() {
        let help = help();
        for it in Provocation::ALL {
            let row = help.lines().find(|line| line.trim_start().starts_with(it.name())).unwrap();
            assert!(row.contains(it.what()) && row.chars().count() <= 100, "{row}");
        }
    }
}

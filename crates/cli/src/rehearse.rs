//! `transom rehearse`: runs a program again and again, each time on a device that is hostile in other moments.
//!
//! | module | holds |
//! |---|---|
//! | `trial` | one run of the program by a plan |
//! | `outcome` | how it has ended |
//! | `ends` | how those of its processes have ended that others wait for |
//! | `cut` | from a run that fails to the least that makes it fail |
//! | `again` | the command that shows a failure again |
//! | `tally` | how often each provocation was exercised |
//! | `people`, `json` | the reports |

mod again;
mod cut;
mod ends;
mod json;
mod outcome;
mod people;
mod tally;
mod trial;

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use transom_ibverbs::DeviceName;
use transom_rehearse::{Order, Place, Plan, Profile, Provocation};
use transom_system::environment::{CHECK, REHEARSE};

use crate::check::{Choice, Directory, SuppressionsArgs};
use crate::clock::parse_duration;
use crate::failure::{Failure, Result};
use crate::layout;
use crate::lines::{JsonArgs, Lines};
use crate::progress::Progress;
use crate::run::{Program, ProgramArgs, end_like, tell_of_freed_memory};
use crate::signals::Signals;
use crate::wanted::Wanted;
use again::again;
use cut::{Cut, Cutter, Least};
use tally::Tally;
use trial::{Programs, Stage, Trial};

/// The exit status if a run has failed: that of `transom check` with a finding.
const FAILED: u8 = 66;

/// How long a run may take.
const LIMIT: Duration = Duration::from_secs(30);

const HELP: &str = "\
Each run has a seed. The seed decides what is provoked at which operation of which object, whatever the
threads do. A run fails if the program fails, if it or a process of it that opened a device is killed by a
signal such as SIGSEGV, if it still runs after --limit, or if `transom check` finds a mistake. After something
was made to fail, a program may end with any exit status but those by which a shell tells of such a signal.

The first run provokes nothing. It must succeed. With --as the second run has only the limits of that
adapter. A run that fails is cut down: it is repeated with less and less, until only what makes it fail is
left. Its output is shown, and the command that shows it again. The program reads /dev/null as its input.

Provocations:
{provocations}

Exit status:
  66   a run failed
  1    the program fails without any provocation too, or opened no device
  2    the command line, or a variable, is wrong, or leaves nothing to provoke
  126  the program exists, but cannot be run
  127  there is no such program

Examples:
  transom rehearse -- make check
  transom rehearse --for 10m -- ./stress
  transom rehearse --as mlx5 -- ./program
  transom rehearse --only late-work,single-completions -- ./server-and-client.sh
  transom rehearse --seed 17 --at late-work:0.5.12 -- ./program";

fn help() -> String {
    let longest = Provocation::ALL.iter().map(|it| it.name().len()).max().unwrap_or(0);
    let row = |it: &Provocation| format!("  {:<longest$}  {}\n", it.name(), it.what());
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
    after_long_help = format!("{}{}", json::FIELDS, help()),
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
    #[command(flatten)]
    provocations: Wanted<Provocation>,
    /// Let the device have the limits of this adapter, and refuse what it refuses
    #[arg(long = "as", value_name = "ADAPTER", value_parser = profile())]
    profile: Option<&'static Profile>,
    /// Keep the order of memory that this authority promises, and no other
    #[arg(long, value_name = "AUTHORITY", value_parser = authority())]
    order: Option<Order>,
    #[command(flatten)]
    suppressions: SuppressionsArgs,
    #[command(flatten)]
    json: JsonArgs,
}

/// Parses the name of an authority on memory order.
fn authority() -> impl TypedValueParser<Value = Order> {
    PossibleValuesParser::new([Order::Spec, Order::Model].map(Order::name))
        .try_map(|name| Order::named(&name).ok_or("there is none"))
}

/// Parses the name of an adapter.
fn profile() -> impl TypedValueParser<Value = &'static Profile> {
    PossibleValuesParser::new(Profile::all().map(|it| it.name))
        .try_map(|name| Profile::named(&name).ok_or("there is none"))
}

impl RehearseArgs {
    /// The plan for a seed.
    fn plan(&self, seed: u64) -> Plan {
        let order = self.order.unwrap_or(Order::Verbs);
        let is_there = |kind| self.at.is_empty() || self.at.iter().any(|it| it.provocation == kind);
        let kinds = self.provocations.all().filter(|kind| order.allows(*kind) && is_there(*kind));
        let (kinds, places) = (kinds.collect(), self.at.iter().copied().collect());
        let places = Some(places).filter(|_| !self.at.is_empty());
        Plan { seed, profile: self.profile, order, kinds, places }
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
    if args.plan(0).kinds.is_empty() {
        return Err(Failure::with_status(2, "nothing is left to provoke"));
    }
    if args.runs == 0 && args.profile.is_none() {
        return Err(Failure::with_status(
            2,
            "nothing is left to provoke: --runs 0 is for --as, which has a run of its own",
        ));
    }
    // Before any thread begins.
    let signals = Signals::block(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])?;
    let mut reports = Reports::begin(args)?;
    let mut stage = prepare(args, signals)?;
    let mut tally = Tally::default();
    let failed = rehearse(args, &mut stage, &mut reports, &mut tally)?;
    let signal = stage.stopped();
    reports.end(&tally, failed, signal);
    // This process may end without dropping anything.
    let written = reports.written();
    drop(stage);
    if let Some(signal) = signal {
        end_like(ExitStatus::from_raw(signal));
    }
    // The report has said everything.
    if failed { Err(Failure::with_status(FAILED, "")) } else { written }
}

/// Runs the program by plan after plan. Whether a run has failed.
fn rehearse(
    args: &RehearseArgs,
    stage: &mut Stage,
    reports: &mut Reports,
    tally: &mut Tally,
) -> Result<bool> {
    if args.at.is_empty() {
        check_quiet(stage, reports)?;
    }
    let alone = args.profile.map(|_| Plan { profile: args.profile, ..Plan::quiet() });
    let alone = alone.filter(|_| args.at.is_empty());
    for plan in alone.into_iter().chain(args.seeds().map(|seed| args.plan(seed))) {
        if stage.stopped().is_some() {
            break;
        }
        reports.progress.doing(format!("run {} (seed {})", tally.runs() + 1, plan.seed));
        let Some(trial) = stage.run(&plan)? else { break };
        tally.add(&trial, &plan);
        reports.run(&plan, &trial);
        if trial.outcome.is_failure() {
            tell(args, stage, reports, &plan, &trial)?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// Prepares the program, and the directories of its processes' files.
fn prepare(args: &RehearseArgs, signals: Signals) -> Result<Stage> {
    let device = args.profile.and_then(|profile| profile.device.parse::<DeviceName>().ok());
    let mut program = Program::prepare_for(&args.program, device)?;
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
    let choice = Choice::suppressing(&args.suppressions)?;
    Stage::new(program, [findings, plans], choice, args.limit, signals)
}

/// The program must succeed without any provocation.
fn check_quiet(stage: &mut Stage, reports: &mut Reports) -> Result {
    reports.progress.doing("a run without provocations");
    let Some(quiet) = stage.run(&Plan::quiet())? else { return Ok(()) };
    reports.run(&Plan::quiet(), &quiet);
    if quiet.programs.names.is_empty() {
        return Err(Failure::new(
            "no process opened a device, so there is nothing to rehearse. Does the program find a \
             device? `transom run -- ibv_devices` lists it",
        ));
    }
    if !quiet.outcome.is_failure() {
        return Ok(());
    }
    let _ = reports.progress.aside(|| people::run(&mut layout::stderr(), &quiet));
    Err(Failure::new(format_args!(
        "without any provocation {}; mend that first{}. --suppressions hides findings that are known",
        quiet.outcome,
        quiet.outcome.help()
    )))
}

/// Tells of a run that failed, cuts it down, and tells what is left.
fn tell(
    args: &RehearseArgs,
    stage: &mut Stage,
    reports: &mut Reports,
    plan: &Plan,
    trial: &Trial,
) -> Result {
    reports.failing(plan, trial);
    let cut = match (&plan.places, plan.profile) {
        (Some(_), _) => None,
        (None, Some(profile)) if plan.kinds.is_empty() => {
            let (least, programs) = (Least::Profile(profile), Programs::default());
            Some(Cut { least, is_complete: true, programs })
        }
        (None, _) => Some(Cutter::begin(stage, plan, trial, &reports.progress).run()?),
    };
    let again = again(args, plan, cut.as_ref().map(|cut| &cut.least));
    reports.failed(plan, trial, cut.as_ref(), &again);
    Ok(())
}

/// The reports for the user, and their outputs.
struct Reports<'a> {
    args: &'a RehearseArgs,
    /// The output for lines of JSON, if the user wants them.
    json: Option<Lines>,
    progress: Progress,
}

impl<'a> Reports<'a> {
    fn begin(args: &'a RehearseArgs) -> Result<Self> {
        Ok(Self { args, json: args.json.begin()?, progress: Progress::timed() })
    }

    fn for_programs(&mut self, print: impl FnOnce(&mut dyn io::Write) -> io::Result<()>) {
        // What is found counts, though nobody reads all of it.
        if let Some(out) = &mut self.json {
            self.progress.aside(|| out.write_on(print));
        }
    }

    /// Whether the lines for programs could be written.
    fn written(self) -> Result {
        self.json.map_or(Ok(()), Lines::written)
    }

    fn for_people(
        &self,
        print: impl FnOnce(&mut layout::Page<anstream::Stderr>) -> io::Result<()>,
    ) {
        if self.args.json.leaves_a_report() {
            // If standard error cannot be written, there is no other place to report it.
            let _ = self.progress.aside(|| print(&mut layout::stderr()));
        }
    }

    fn run(&mut self, plan: &Plan, trial: &Trial) {
        self.for_programs(|out| json::run(out, plan, trial))
    }

    /// A run has failed, and is going to be cut down.
    fn failing(&self, plan: &Plan, trial: &Trial) {
        self.for_people(|out| people::failing(out, plan, trial));
    }

    fn failed(&mut self, plan: &Plan, trial: &Trial, cut: Option<&Cut>, again: &str) {
        self.for_people(|out| people::least(out, trial, cut, again));
        self.for_programs(|out| json::failure(out, plan, trial, cut, again));
    }

    fn end(&mut self, tally: &Tally, failed: bool, signal: Option<i32>) {
        let plan = self.args.plan(0);
        self.for_people(|out| people::end(out, tally, &plan, failed, signal));
        self.for_programs(|out| json::end(out, tally, &plan, failed, signal));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_lists_every_provocation() {
        let help = help();
        for it in Provocation::ALL {
            let row = help.lines().find(|line| line.trim_start().starts_with(it.name())).unwrap();
            // All texts begin in one column.
            assert_eq!(row.find(it.what()), Some(26), "{row}");
        }
    }
}

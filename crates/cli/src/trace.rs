//! `transom trace`: what happens in programs over time, for Perfetto or as text.
//!
//! The processes record their events in rings (`transom_system::trace`) as long as this command asks them to. It reads
//! them and draws a timeline.
//!
//! | module | holds |
//! |---|---|
//! | `find` | finds the processes |
//! | `follow` | reads their events |
//! | `looks` | when to look at what is open to peers |
//! | `anomalies` | for each thing that goes wrong, the last events as a file |
//! | `timeline`, `pair`, `shared`, `ids`, `lanes` | what the events become: slices, marks and bars on tracks |
//! | `limit` | how much is written in a second |
//! | `packets`, `perfetto` | the trace's packets, and their format |
//! | `named` | numbers in words |
//! | `output` | where the packets go |
//! | `shown`, `text`, `json` | what they show, as text for a terminal and as lines for programs |

mod anomalies;
mod find;
mod follow;
mod held;
mod ids;
mod json;
mod lanes;
mod limit;
mod looks;
mod named;
mod output;
mod packets;
mod pair;
mod perfetto;
mod recordings;
mod shared;
mod shown;
mod text;
mod timeline;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

use prost::Message;
use transom_system::environment::TRACE;
use transom_system::registry::Registry;

use crate::clock::parse_duration;
use crate::failure::{Failure, Result};
use crate::layout;
use crate::lines::JsonArgs;
use crate::run::{Program, ProgramArgs, conclude};
use crate::sentence::counted;
use crate::signals::Signals;
use anomalies::{Folder, Recorder};
use find::Whom;
use follow::Follower;
use output::{Output, People};
use text::Text;
use timeline::Timeline;

const NOTES: &str = "\
Open the file at https://ui.perfetto.dev: nothing of it leaves your machine. Or print it with --read.

Each process has tracks: for each queue pair its requests, from the post to the end, with their segments and
waits; what it carries out for its peer, joined to the request by an arrow; its receives. Others show the
regions and windows as long as they are open, the events of each rdma_cm_id, and what was refused, with the
sentence of `transom explain`.

A program that is not traced is not slowed. One that is takes a little longer for each request. If it does
more than --limit has room for, the trace has the beginning of each tenth of a second whole, and says how
much is left out.

With --anomalies nothing is written until something goes wrong: an access is refused, a request gets no
answer or finds no receive however often it is sent, a connected process is killed, or peers without
receives have a process wait for half a second of one. Then DIR gets a timeline of the last events of all
processes concerned, some megabytes at most, and beside it a JSON file in the form of a HUATUO document.
Files begin a second apart or more.

Exit status: with a program its own, as with `transom run`.

";

const EXAMPLES: &str = "\
Examples:
  transom trace -- ./server
  transom trace --output ping.pftrace -- sh -c 'ibv_rc_pingpong -g 0 & sleep 1; ibv_rc_pingpong -g 0 localhost'
  transom trace --pid 4711 --time 10s
  transom trace --all --text
  transom trace --json=events.json -- ./server
  transom trace --anomalies found -- make check
  transom trace --read transom.pftrace";

/// How often a trace looks whether it can still be written.
const OFTEN: Duration = Duration::from_millis(100);

/// Record what happens over time: requests, accesses, windows, refusals
///
/// It writes a timeline for Perfetto, or prints it.
#[derive(clap::Args)]
#[command(
    after_help = format!("{NOTES}{EXAMPLES}"),
    after_long_help = format!("{NOTES}{}{EXAMPLES}", json::FIELDS),
    mut_arg("command", |command| command.required(false)),
    override_usage = "transom trace [OPTIONS] [--] PROGRAM [ARGUMENTS]...\n       \
                      transom trace [OPTIONS] --pid PID | --all\n       \
                      transom trace --read FILE"
)]
pub(crate) struct TraceArgs {
    /// Where to write the timeline
    #[arg(long, short, value_name = "FILE", default_value = "transom.pftrace", value_hint = clap::ValueHint::FilePath)]
    output: PathBuf,
    /// Print it instead, as it happens
    #[arg(long)]
    text: bool,
    #[command(flatten)]
    json: JsonArgs,
    /// Trace a running process; may be given several times
    #[arg(long, value_name = "PID", conflicts_with_all = ["all", "read", "command"])]
    pid: Vec<u32>,
    /// Trace all processes that run, and those that come, until you end the command
    #[arg(long, conflicts_with_all = ["read", "command"])]
    all: bool,
    /// With --pid or --all: end after this time, such as 30s
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with_all = ["read", "command"])]
    time: Option<Duration>,
    /// Print a timeline that was written before, in order of time
    #[arg(long, value_name = "FILE", conflicts_with = "command", value_hint = clap::ValueHint::FilePath)]
    read: Option<PathBuf>,
    /// Write at most so much in a second, such as 500k or 2M
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = parse_bytes)]
    limit: u64,
    /// Write a timeline for each thing that goes wrong, into this directory, and nothing else
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = ["output", "text", "json", "read", "limit"],
        value_hint = clap::ValueHint::DirPath
    )]
    anomalies: Option<PathBuf>,
    /// With --anomalies: write at most so many
    #[arg(long, value_name = "N", default_value_t = 20, requires = "anomalies")]
    files: usize,
    #[command(flatten)]
    program: ProgramArgs,
}

/// A number of bytes: `500k`, `2M`, `100000`.
fn parse_bytes(text: &str) -> std::result::Result<u64, String> {
    let (number, unit) = match text.chars().last() {
        Some('k') => (&text[..text.len() - 1], 1000),
        Some('M') => (&text[..text.len() - 1], 1_000_000),
        _ => (text, 1),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    bytes.filter(|bytes| *bytes >= 10_000).ok_or_else(|| "give 10k at least, such as 1M".to_owned())
}

pub(crate) fn run(args: &TraceArgs) -> Result {
    if let Some(file) = &args.read {
        return read(args, file);
    }
    let registry = crate::devices::registry()?;
    if args.program.is_given() {
        return run_program(args, registry, Program::prepare(&args.program)?);
    }
    if args.pid.is_empty() && !args.all {
        let message = "name a program, --pid or --all; see `transom trace --help`";
        return Err(Failure::with_status(2, message));
    }
    let unknown = |pid: &&u32| !registry.processes().iter().any(|it| it.alive && it.pid == **pid);
    if let Some(pid) = args.pid.iter().find(unknown) {
        return Err(Failure::new(format_args!(
            "no process {pid} has a device open; `transom devices` lists those that have"
        )));
    }
    let recording = Recording::prepare(args)?;
    let ends = Signals::block(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])?;
    let is_over = AtomicBool::new(false);
    let whom = Whom::Running(args.pid.clone());
    std::thread::scope(|scope| {
        let following = scope.spawn(|| recording.run(args, registry, whom, &is_over));
        let until = args.time.map(|time| Instant::now() + time);
        let is_time = || until.is_some_and(|until| Instant::now() >= until);
        // It ends by itself if it cannot write.
        while !is_time() && !following.is_finished() && ends.next_within(OFTEN).is_none() {}
        is_over.store(true, Release);
        joined(following)
    })
}

/// Runs a program, and traces all its processes.
fn run_program(args: &TraceArgs, registry: &'static Registry, mut program: Program) -> Result {
    let recording = Recording::prepare(args)?;
    let number = getrandom::u64().map_err(Failure::new)?;
    let around = TRACE.watcher().map_err(Failure::new)?;
    let watcher = registry.make_watcher_within(number, around).map_err(|error| {
        Failure::new(format_args!("the program's processes cannot be found: {error}"))
    })?;
    program.command.env(TRACE.name, format!("{number:x}"));
    let (is_over, leaves_signals) = (AtomicBool::new(false), Barrier::new(2));
    let (status, recorded) = std::thread::scope(|scope| {
        let whom = Whom::Program(watcher);
        let following = scope.spawn(|| {
            leave_signals_to_others();
            leaves_signals.wait();
            recording.run(args, registry, whom, &is_over)
        });
        // That a short program has ended must not be told to the other thread, where nobody hears it.
        leaves_signals.wait();
        let status = program.wait(None, None, &mut || ());
        is_over.store(true, Release);
        (status, joined(following))
    });
    let status = status?;
    conclude(status, recorded, Ok(()), Ok)
}

/// What is made of the events.
enum Recording {
    /// A timeline of everything.
    All(Box<Output>),
    /// One of each thing that goes wrong.
    Anomalies(PathBuf, Folder),
}

impl Recording {
    /// Opens where it goes. So what cannot be written is reported before the program runs.
    fn prepare(args: &TraceArgs) -> Result<Self> {
        Ok(match &args.anomalies {
            Some(path) => Self::Anomalies(path.clone(), Folder::make(path, args.files)?),
            None => Self::All(Box::new(Output::new(&args.json, || match args.text {
                true => Ok(People::Text(Text::default())),
                false => People::file(&args.output),
            })?)),
        })
    }

    /// Records until `is_over`, and says what.
    fn run(
        self,
        args: &TraceArgs,
        registry: &'static Registry,
        whom: Whom,
        is_over: &AtomicBool,
    ) -> Result {
        match self {
            Self::All(mut output) => {
                let follower = Follower::new(registry, whom, args.limit, &mut output);
                let timeline = follower.run(is_over)?;
                tell(&output, &timeline);
            }
            Self::Anomalies(path, folder) => {
                let told = Recorder::new(registry, whom, folder).run(is_over)?;
                told.words(&path).iter().for_each(|words| say(words));
            }
        }
        Ok(())
    }
}

/// The signals of this command are for the thread that waits for the program.
fn leave_signals_to_others() {
    // SAFETY: a signal set of this call's own, filled and then given to this thread only.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Prints a written timeline.
fn read(args: &TraceArgs, file: &Path) -> Result {
    let failure = |error: &dyn std::fmt::Display| {
        Failure::new(format_args!("cannot read {}: {error}", file.display()))
    };
    let bytes = fs::read(file).map_err(|error| failure(&error))?;
    let trace = perfetto::Trace::decode(bytes.as_slice());
    let trace = trace.map_err(|_| failure(&"it is no timeline of `transom trace`"))?;
    Output::new(&args.json, || Ok(People::Text(Text::default())))?.print_whole(&trace.packet)
}

/// Says something on standard error, beside what the program says there.
fn say(words: &str) {
    // If standard error cannot be written, there is no other place to report it.
    let _ = layout::stderr().text(format_args!("transom trace: {words}"));
}

/// A number of bytes, in the units of `--limit`.
fn size(bytes: u64) -> String {
    match bytes as f64 {
        few if few < 1e6 => format!("{:.1} kB", few / 1e3),
        many => format!("{:.1} MB", many / 1e6),
    }
}

/// Says what was traced, and what was not.
fn tell(output: &Output, timeline: &Timeline) {
    if timeline.processes() == 0 && timeline.unheard == 0 {
        return say("no process opened a device, so there is nothing to see.");
    }
    let told = timeline.told;
    let seconds = told.last.saturating_sub(told.first) as f64 / 1e9;
    let requests =
        counted(usize::try_from(told.requests).unwrap_or(usize::MAX), "request", "requests");
    let refusals =
        counted(usize::try_from(told.refusals).unwrap_or(usize::MAX), "refusal", "refusals");
    let processes = counted(timeline.processes(), "process", "processes");
    let under_way = match told.under_way {
        0 => String::new(),
        1 => "; 1 request had not ended".to_owned(),
        count => format!("; {count} requests had not ended"),
    };
    let what = format!("{requests} and {refusals} of {processes} in {seconds:.3} s{under_way}");
    match output.people() {
        People::Text(_) | People::Nothing => say(&format!("{what}.")),
        People::File { path, bytes, .. } => say(&format!(
            "{what}, {} in {}. Open it at https://ui.perfetto.dev, or print it with --read.",
            size(*bytes),
            path.display()
        )),
    }
    unheard(timeline.unheard).iter().for_each(|words| say(words));
    let (left, missed) = (timeline.left_out(), timeline.missed());
    if left > 0 {
        say(&format!("{left} events are left out, for more than --limit has room for happened."));
    }
    if missed > 0 {
        say(&format!("{missed} events were written over before they could be read."));
    }
}

/// What is said of processes that ended before anything of them could be read, if there are any.
fn unheard(count: usize) -> Option<String> {
    let processes = counted(count, "process", "processes");
    (count > 0).then(|| format!("{processes} ended before events could be read."))
}

#[cfg(test)]
mod tests;

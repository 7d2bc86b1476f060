//! `cargo xtask programs`: runs other people's programs on Transom, unmodified. Each script runs some of them, prints a
//! table, and fails if one does not do what it should.
//!
//! `spec/programs.md` records the tables of a whole run ([`record`]). A run with other results than recorded fails as
//! well.

mod apart;
mod checked;
mod connections;
mod extent;
mod flood;
mod installation;
mod meeting;
mod perftest;
mod ping_pong;
mod place;
mod program;
mod pyverbs;
mod record;
mod rehearsed;
mod rehearsed_speed;
mod rxe;
mod sanitized;
mod skips;
mod spaces;
mod speed;
mod strangers;
mod table;
mod utilities;
mod watchers;
mod wire_speed;

use std::env;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use transom_conformance::programs::Running;

use extent::Extent;
use installation::Installation;
use record::Record;
use table::{Report, Style};

/// Run programs that nobody here wrote on Transom, unmodified.
#[derive(Parser)]
#[command(name = "programs", bin_name = "cargo xtask programs", arg_required_else_help = true)]
struct Arguments {
    /// What to run.
    script: Script,
    /// All options, sizes and repetitions; takes some minutes.
    #[arg(long)]
    long: bool,
    /// A part of all, which takes two minutes, with programs as they are built for the tests; measures nothing.
    #[arg(long, conflicts_with_all = ["long", "bless"])]
    quick: bool,
    /// Print one JSON object for each row instead of tables.
    #[arg(long)]
    json: bool,
    /// Record the tables in spec/programs.md; not with --long, whose rows are more.
    #[arg(long)]
    bless: bool,
    /// Only the programs of `rehearsed` whose line contains this; --bless records their rows only.
    #[arg(long, value_name = "NAME")]
    program: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Script {
    /// The Python tests of rdma-core
    Pyverbs,
    /// The tools of perftest, each service and option
    Perftest,
    /// The tools of ibverbs-utils
    Utils,
    /// What perftest measures, beside the kernel's copy between processes
    Speed,
    /// Programs in two network namespaces, over the wire between them
    Spaces,
    /// What perftest measures across a wire, beside TCP and UDP
    WireSpeed,
    /// Programs that connect by librdmacm, here and across wires
    Connections,
    /// Honest programs while a stranger sends packets that must be dropped
    Flood,
    /// All of these; with --quick all but what measures, speed and wire-speed
    All,
    /// Programs that sleep or bring libraries along, on idle, single and busy processors
    Strangers,
    /// fabtests, valkey, Ceph and a program over librpma, their ends in two network namespaces
    Apart,
    /// Programs of ours under sanitizers, debuggers, allocators and languages
    Watchers,
    /// The examples of rdma-core, built with ThreadSanitizer
    Sanitized,
    /// The programs of most scripts, and our examples, under `transom check`
    Checked,
    /// Many of these programs under `transom rehearse`, a minute each, or with --long an hour
    Rehearsed,
    /// What perftest measures under `transom check` and `transom rehearse`, beside plain runs
    RehearsedSpeed,
    /// The wire link and the kernel's rxe in a virtual machine, with each other; needs root
    Rxe,
    /// What of that is about connections
    RxeConnections,
    /// What perftest measures between Transom and rxe, beside two virtual machines with rxe
    RxeSpeed,
}

fn main() -> ExitCode {
    // A shell makes its background processes ignore this signal. The programs here must not ignore it.
    // SAFETY: no handler that could run.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
    match run(&Arguments::parse()) {
        Ok(problems) if problems.is_empty() => ExitCode::SUCCESS,
        Ok(problems) => {
            problems.iter().for_each(|problem| eprintln!("{problem}"));
            ExitCode::FAILURE
        }
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// Starts a quick run of `spaces` in a process of its own.
fn spaces_beside(json: bool) -> Running {
    let this = env::current_exe().expect("a program has a path");
    let mut command = Command::new(this);
    Running::start(command.args(["spaces", "--quick"]).args(json.then_some("--json")))
}

/// Runs the scripts. Returns all problems.
fn run(arguments: &Arguments) -> Result<Vec<String>, String> {
    if arguments.program.is_some() && arguments.script != Script::Rehearsed {
        return Err("--program is for `rehearsed`".into());
    }
    let extent = match arguments {
        Arguments { quick: true, .. } => Extent::Quick,
        Arguments { long: true, .. } => Extent::Long,
        _ => Extent::Usual,
    };
    let installation = Installation::new(extent.profile())?;
    // These wait most of the time, in network namespaces of their own.
    let beside = (extent == Extent::Quick && arguments.script == Script::All)
        .then(|| spaces_beside(arguments.json));
    let style = if arguments.json { Style::Json } else { Style::Table };
    let chosen = |script| arguments.script == script || arguments.script == Script::All;
    let measures = extent > Extent::Quick;
    let mut reports = Vec::new();
    if chosen(Script::Pyverbs) {
        reports.push(pyverbs::run(&installation, style)?);
    }
    if chosen(Script::Perftest) {
        reports.push(perftest::run(&installation, style, extent)?);
    }
    if chosen(Script::Utils) {
        reports.push(utilities::run(&installation, style, extent)?);
    }
    if chosen(Script::Speed) && measures {
        reports.push(speed::run(&installation, style)?);
    }
    let mut problems = Vec::new();
    match beside.map(|spaces| spaces.success(Duration::from_secs(600))) {
        Some(Ok(printed)) => {
            print!("{}", printed.output);
            eprint!("{}", printed.complaints);
        }
        Some(Err(problem)) => problems.push(problem),
        None => {}
    }
    if arguments.script == Script::Spaces || chosen(Script::Spaces) && extent > Extent::Quick {
        reports.extend(spaces::run(&installation, style, extent)?);
    }
    if chosen(Script::Connections) {
        reports.push(connections::run(&installation, style, extent)?);
    }
    if chosen(Script::WireSpeed) && measures {
        reports.extend(wire_speed::run(&installation, style, extent)?);
    }
    if chosen(Script::Flood) {
        reports.extend(flood::run(&installation, style, extent)?);
    }
    if arguments.script == Script::Strangers {
        reports.push(strangers::run(&installation, style)?);
    }
    if arguments.script == Script::Apart {
        reports.extend(apart::run(&installation, style)?);
    }
    if arguments.script == Script::Watchers {
        reports.push(watchers::run(&installation, style)?);
    }
    if arguments.script == Script::Sanitized {
        reports.push(sanitized::run(&installation, style)?);
    }
    if arguments.script == Script::Checked {
        reports.push(checked::run(&installation, style, extent)?);
    }
    if arguments.script == Script::Rehearsed {
        let only = arguments.program.as_deref();
        reports.extend(rehearsed::run(&installation, style, extent, only)?);
    }
    if arguments.script == Script::RehearsedSpeed {
        reports.push(rehearsed_speed::run(&installation, style)?);
    }
    if arguments.script == Script::Rxe {
        reports.extend(rxe::run(&installation, style)?);
    }
    if matches!(arguments.script, Script::Rxe | Script::RxeConnections) {
        reports.extend(rxe::run_connections(&installation, style)?);
    }
    if arguments.script == Script::RxeSpeed {
        reports.push(rxe::run_speed(&installation, style)?);
    }
    problems.extend(reports.iter().flat_map(Report::problems));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut record = Record::read(&root)?;
    if arguments.bless {
        for report in &reports {
            match arguments.program {
                Some(_) => record.put_rows(report),
                None => record.replace(report),
            }
        }
        record.write(&root)?;
    } else {
        problems.extend(
            reports.iter().flat_map(|report| record.disagreements(report, extent.is_long())),
        );
    }
    Ok(problems)
}

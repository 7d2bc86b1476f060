//! The `transom` command: shows the software RDMA device at work, runs programs on it, and explains why it refused an
//! access.

mod bench;
mod broken_pipe;
mod check;
mod clock;
mod completions;
mod demo;
mod devices;
mod doctor;
mod explain;
mod exposure;
mod failure;
mod groups;
mod layout;
mod lines;
mod manual;
mod metrics;
mod packets;
mod progress;
mod rdma;
mod registered;
mod rehearse;
mod run;
mod sentence;
mod shell;
mod signals;
mod talk;
mod top;
mod trace;
mod waits;
mod wanted;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use failure::Failure;
use std::io::{Write, stderr, stdout};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  transom demo                         Watch a memory window granted, used, and revoked
  transom run -- ibv_devinfo -v        Run any RDMA program on the software device
  transom check -- ./program           What does it do wrong? Mistakes, with the lines that make them
  transom rehearse -- ./program        Does it rely on luck? Provokes what an adapter may do
  transom exposure -- ./program        What did it open to peers, and did they use it?
  transom top                          What do all your programs do right now?
  transom trace -- ./program           What happens when? A timeline of all its requests
  transom explain                      Why was an access refused? The answers, newest first

Exit status:
  0  it worked
  1  it failed; the message says what happened, to what, and what to do
  2  the command line was wrong
`transom run` exits as its program does. So does `transom check`, with 66 if something was found, and
`transom exposure`, with 66 if more was open for nothing than --max-unused allows.";

/// RDMA without the hardware: a device made of software, with memory windows
#[derive(Parser)]
#[command(name = "transom", version, after_help = EXAMPLES, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Watch a memory window granted, used and revoked between two processes
    #[command(after_help = demo::HELP)]
    Demo,
    Devices(devices::DevicesArgs),
    Top(top::TopArgs),
    Trace(trace::TraceArgs),
    Metrics(metrics::MetricsArgs),
    Run(run::RunArgs),
    Explain(explain::ExplainArgs),
    Doctor(doctor::DoctorArgs),
    Check(check::CheckArgs),
    Rehearse(rehearse::RehearseArgs),
    Exposure(exposure::ExposureArgs),
    Bench(bench::BenchArgs),
    Completions(completions::CompletionsArgs),
    #[command(hide = true)]
    Manual(manual::ManualArgs),
    /// The second process of the demo.
    #[command(name = demo::GUEST, hide = true)]
    DemoGuest,
    /// One of two processes of the benchmark.
    #[command(name = bench::PROCESS, hide = true)]
    BenchProcess(bench::ProcessArgs),
}

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    if rdma::is_name(words.next().as_deref()) {
        return rdma::run(&words.collect::<Vec<_>>()).unwrap_or_else(Failure::report);
    }
    let command = parsed().command;
    if let Err(error) = transom_system::log::start() {
        return Failure::with_status(2, error).report();
    }
    let done = match command {
        Command::Demo => demo::run(),
        Command::Devices(args) => devices::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Metrics(args) => metrics::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Rehearse(args) => rehearse::run(&args),
        Command::Exposure(args) => exposure::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Completions(args) => completions::run(&args, Arguments::command()),
        Command::Manual(args) => manual::run(&args, Arguments::command()),
        Command::DemoGuest => demo::guest(),
        Command::BenchProcess(args) => bench::process(&args),
    };
    done.map_or_else(Failure::report, |()| ExitCode::SUCCESS)
}

/// Parses the command line. Ends the process if it is wrong, or asks for help.
fn parsed() -> Arguments {
    let parsed = Arguments::command().try_get_matches();
    // The texts are made to fit only for someone who reads them: that takes longer than the rest of a start.
    let matches = parsed.or_else(|_| fitted().try_get_matches());
    let parsed = matches.and_then(|matches| Arguments::from_arg_matches(&matches));
    parsed.unwrap_or_else(|error| exit(error))
}

/// Ends the process with what clap has to say. It fits help into lines, and leaves errors as long as they are.
fn exit(mut error: clap::Error) -> ! {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            | ErrorKind::DisplayVersion
    ) {
        error.exit();
    }
    let value = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    let (given, suggested) = (value(ContextKind::InvalidValue), value(ContextKind::SuggestedValue));
    if !wanted::is_near(&given, &suggested) {
        error.remove(ContextKind::SuggestedValue);
    }
    let text = error.render().ansi().to_string();
    // If standard error cannot be written, there is no other place to report it.
    let _ = writeln!(
        anstream::stderr(),
        "{}",
        layout::fitted(text.trim_end(), layout::columns(stderr()))
    );
    std::process::exit(error.exit_code())
}

/// The command with its help in lines of the terminal.
fn fitted() -> clap::Command {
    let columns = layout::columns(stdout());
    fit(groups::in_groups(Arguments::command(), columns), columns)
}

/// The same command, with its help and its subcommands' help in lines of this many columns.
fn fit(command: clap::Command, columns: usize) -> clap::Command {
    let lines = |text: &StyledStr| layout::help(&text.to_string(), columns);
    let short = command.get_after_help().map(lines);
    let long = command.get_after_long_help().map(lines);
    let command = short.into_iter().fold(command, clap::Command::after_help);
    let command = long.into_iter().fold(command, clap::Command::after_long_help);
    command.term_width(columns).mut_subcommands(|sub| fit(sub, columns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }
}

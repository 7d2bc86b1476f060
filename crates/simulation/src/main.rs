//! Runs seeds, or one seed again.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use transom_simulation::model::Counts;
use transom_simulation::{Plan, run, shrink};

/// Two devices on a simulated network, checked against a model of what must happen.
#[derive(Parser)]
#[command(name = "simulate", bin_name = "cargo xtask simulate")]
struct Arguments {
    /// How many seeds to run.
    #[arg(long, default_value_t = 1000, conflicts_with = "seed")]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0, conflicts_with = "seed")]
    from: u64,
    /// Go on after a failure.
    #[arg(long, conflicts_with = "seed")]
    keep_going: bool,
    /// Run this seed alone.
    #[arg(long)]
    seed: Option<u64>,
    /// Do only these of the seed's steps.
    #[arg(long, value_delimiter = ',', requires = "seed")]
    steps: Option<Vec<usize>>,
    /// Print every packet, completion and step of the seed.
    #[arg(long, requires = "seed")]
    trace: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.seed {
        Some(seed) => replay(seed, &arguments),
        None => run_all(&arguments),
    }
}

fn replay(seed: u64, arguments: &Arguments) -> ExitCode {
    let plan = Plan::of(seed);
    let plan = match &arguments.steps {
        Some(steps) => plan.only(steps),
        None => plan,
    };
    if arguments.trace {
        println!("{:?} {:?}", plan.clocks, plan.faults);
        println!("{:#?}", plan.connections);
    }
    let outcome = run(&plan, arguments.trace);
    match outcome.wrong {
        Some(wrong) => {
            println!("seed {seed}: {wrong}");
            ExitCode::FAILURE
        }
        None => {
            println!("seed {seed}: all is well; {:?}", outcome.counts);
            ExitCode::SUCCESS
        }
    }
}

fn run_all(arguments: &Arguments) -> ExitCode {
    // What goes wrong is told below, with the seed.
    std::panic::set_hook(Box::new(|_| {}));
    let (start, mut counts, mut failures) = (Instant::now(), Counts::default(), 0_u64);
    for seed in arguments.from..arguments.from + arguments.seeds {
        let plan = Plan::of(seed);
        let outcome = run(&plan, false);
        counts.add(&outcome.counts);
        let Some(wrong) = outcome.wrong else { continue };
        failures += 1;
        println!("seed {seed}: {wrong}");
        if !arguments.keep_going {
            let shrunk = shrink(&plan);
            let steps: Vec<_> = shrunk.steps.iter().map(|step| step.number.to_string()).collect();
            println!("again, with all that happens:  cargo xtask simulate --seed {seed} --trace");
            println!(
                "the fewest steps that fail:    cargo xtask simulate --seed {seed} --steps {} --trace",
                steps.join(",")
            );
            return ExitCode::FAILURE;
        }
    }
    let (seeds, seconds) = (arguments.seeds, start.elapsed().as_secs_f64());
    println!("{seeds} seeds in {seconds:.1} s, {failures} failed");
    println!("{counts:#?}");
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

//! `transom bench`: measures the device beside the fastest alternatives on this machine, in one run.

mod crowd;
mod end;
mod extent;
mod idle;
mod listening;
mod load;
mod machine;
mod perftest;
mod plot;
mod process;
mod processors;
mod report;
mod rows;
mod serve;
mod setup;
mod start;
mod statistics;
mod tasks;
mod teams;
mod ucx;
mod wire;

use std::fmt::Display;
use std::io::{Write, stdout};
use std::path::PathBuf;

use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::layout;
use crate::progress::Progress;
use extent::Extent;
use load::Load;
use machine::Machine;
use report::{Outcome, Rounds};
use rows::{Contender, PICTURES, rows};
use statistics::Spread;
use teams::Teams;

pub(crate) use serve::{ProcessArgs, run as process};
pub(crate) use start::PROCESS;

pub(crate) const HELP: &str = "\
Each workload runs between two processes. `shared` and `private` are this device, with shared and with
private memory. Beside them are others that do the same: the kernel's copy, memcpy, sockets, and UCX and
perftest if you have installed them (Debian's ucx-utils, perftest). All take turns, round after round.
The two processes run on different processors, if there are two. A figure is the median of its rounds.
Half of the rounds lie between the numbers in parentheses. A ratio is the median of the rounds' ratios.
If other programs keep more than 10 % of the processors busy, targets are not judged.

Workloads over the wire cross a veth pair between two network namespaces, at MTU 1500 or 9000. They need
Debian's iproute2, and a system that lets you make namespaces. Beside them are floors, with nothing of
this device: `bare datagrams` are sent and received and not looked at; with `copied and checked` both
ends also copy the data once and compute the check of each packet; and to `UDP, told all` the kernel
tells of each datagram what RoCEv2 has to know.

Examples:
  transom bench                    Takes minutes, on a machine that does nothing else
  transom bench wire               Only the workloads over the wire
  transom bench --quick --json     For programs: one JSON object a line
  transom bench --plot pictures    Also draw latency and bandwidth over message size, as SVG";

/// The workload that does nothing.
const IDLE: &str = "idle";

/// Measure the device against the fastest that this machine allows
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct BenchArgs {
    /// Measure only the workloads whose name contains this
    #[arg(value_name = "WORKLOAD", conflicts_with = "plot")]
    workload: Option<String>,
    /// Print one JSON object a line for each workload, instead of the table
    #[arg(long)]
    json: bool,
    /// Measure fewer and shorter rounds, with fewer objects, and 1 s of idling instead of 10 s
    #[arg(long)]
    quick: bool,
    /// Also measure over message sizes, and draw pictures into this folder
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
}

/// Measures and prints.
pub(crate) fn run(args: &BenchArgs) -> Result {
    let extent = Extent::new(args.quick);
    let mut teams = Teams::default();
    print(&Machine::this(Load::now().others_since()), args.json)?;
    let is_wanted = |name: &str| args.workload.as_ref().is_none_or(|part| name.contains(part));
    let wanted: Vec<_> = rows(extent).into_iter().filter(|row| is_wanted(row.name)).collect();
    if wanted.is_empty() && !is_wanted(IDLE) {
        let part = args.workload.as_deref().unwrap_or_default();
        let names: Vec<_> = rows(extent).iter().map(|row| row.name).chain([IDLE]).collect();
        let names = names.join("\n  ");
        return Err(Failure::new(format!(
            "no workload has \"{part}\" in its name. There are:\n  {names}"
        )));
    }
    let points = PICTURES.iter().map(|it| it.sizes.len()).sum();
    let points = if args.plot.is_some() { points } else { 0 };
    let steps = wanted.len() + usize::from(is_wanted(IDLE)) + points;
    let progress = Progress::of(steps as u64);
    for row in wanted {
        progress.doing(row.name);
        let load = Load::now();
        let measured = measure(&mut teams, &row.contenders, extent)?;
        let outcome = Outcome::new(&row, &measured, load.others_since());
        progress.aside(|| print(&outcome, args.json))?;
        progress.step();
    }
    if is_wanted(IDLE) {
        progress.doing(IDLE);
        for outcome in idle::measure(&mut teams, extent)? {
            progress.aside(|| print(&outcome, args.json))?;
        }
        progress.step();
    }
    match &args.plot {
        Some(folder) => draw(&mut teams, folder, extent, &progress),
        None => Ok(()),
    }
}

fn print(what: &(impl Serialize + Display), json: bool) -> Result {
    match json {
        true => {
            writeln!(stdout(), "{}", serde_json::to_string(what).expect("numbers and strings"))?
        }
        false => layout::stdout().text(what)?,
    }
    Ok(())
}

/// Measures all contenders in turn, round after round.
fn measure(teams: &mut Teams, contenders: &[Contender], extent: Extent) -> Result<Vec<Rounds>> {
    let counts = contenders.iter().map(|it| teams.calibrate(it.who, extent.budget));
    let counts = counts.collect::<Result<Vec<_>>>()?;
    let mut measured: Vec<Rounds> = counts
        .iter()
        .map(|count| count.as_ref().map(|_| Vec::new()).map_err(Clone::clone))
        .collect();
    for _ in 0..extent.rounds {
        teams.renew();
        for ((contender, count), rounds) in contenders.iter().zip(&counts).zip(&mut measured) {
            if let (Ok(count), Ok(values)) = (count, &mut *rounds) {
                teams.warm_up(contender.who, *count)?;
                match teams.sample(contender.who, *count)? {
                    Ok(value) => values.push(value),
                    Err(why) => *rounds = Err(why),
                }
            }
        }
    }
    Ok(measured)
}

/// Measures over the sizes of messages, and draws each picture.
fn draw(teams: &mut Teams, folder: &PathBuf, extent: Extent, progress: &Progress) -> Result {
    let failed = |error| Failure::new(format!("{}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(failed)?;
    // The points of a line confirm each other, so few rounds are enough.
    let extent = Extent { rounds: 3, ..extent };
    for picture in &PICTURES {
        let mut lines: Vec<plot::Line> = Vec::new();
        for &size in picture.sizes {
            progress.doing(format!("{}, {size} bytes", picture.title));
            let row = (picture.contenders)(size);
            for (contender, rounds) in
                row.contenders.iter().zip(measure(teams, &row.contenders, extent)?)
            {
                let Ok(values) = rounds else { continue };
                let value = row.unit.of(Spread::of(&values).median);
                match lines.iter_mut().find(|line| line.name == contender.name) {
                    Some(line) => line.points.push((size, value)),
                    None => {
                        lines.push(plot::Line { name: contender.name, points: vec![(size, value)] })
                    }
                }
            }
            progress.step();
        }
        let unit = if picture.is_bandwidth { "MB/s" } else { "ns" };
        let file = folder.join(format!("{}.svg", picture.name));
        std::fs::write(file, plot::svg(picture.title, unit, &lines)).map_err(failed)?;
    }
    Ok(())
}

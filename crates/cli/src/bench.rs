//! `transom bench`: the device against the fastest that this machine allows, measured in one run.

mod end;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use transom_abi::{IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, ibv_sge};

use crate::failure::Failure;
use end::{Card, End, Memory};

/// The hidden subcommand of the second process.
pub(crate) const PEER: &str = "bench-peer";

pub(crate) const HELP: &str = "\
Two processes are measured, with private memory, from posting to the polled completion. Each figure
stands beside its floor: what the kernel's process_vm_writev or process_vm_readv takes for the same
bytes between the same processes, measured in turn with it. Ratios are medians over the rounds; a
busy machine makes them worse.";

/// What to measure.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct BenchArgs {
    /// Print one JSON object per figure instead of the table.
    #[arg(long)]
    json: bool,
    /// A tenth of the rounds, and 1 s of idling instead of 10 s.
    #[arg(long)]
    quick: bool,
}

/// One line of the result.
#[derive(serde::Serialize)]
struct Figure {
    name: String,
    /// In `unit`.
    value: f64,
    unit: &'static str,
    /// What it is compared with, in the same unit.
    floor: Option<f64>,
    /// How the floor is called.
    against: &'static str,
    /// `value / floor`.
    ratio: Option<f64>,
    target: &'static str,
    met: Option<bool>,
}

/// Measures and prints.
pub(crate) fn run(args: BenchArgs) -> ExitCode {
    match measure(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn measure(args: &BenchArgs) -> Result<(), Failure> {
    let rounds = if args.quick { 5 } else { 51 };
    let end = End::new()?;
    let mut peer = Peer::start(&end)?;
    let print = |figure: Figure| print(&figure, args.json);
    if !args.json {
        println!("{:44} {:>12} {:>12} {:>7}  target", "", "Transom", "floor", "ratio");
    }
    for (name, opcode, write, length, count) in [
        ("WRITE of 8 bytes", IBV_WR_RDMA_WRITE, true, 8, 4000),
        ("READ of 8 bytes", IBV_WR_RDMA_READ, false, 8, 4000),
        ("WRITE of 1 MiB", IBV_WR_RDMA_WRITE, true, 1 << 20, 40),
        ("READ of 1 MiB", IBV_WR_RDMA_READ, false, 1 << 20, 40),
    ] {
        print(one_sided(&end, &peer.card, name, opcode, write, length, count, rounds)?);
    }
    windows(&end, rounds, args.quick, &print)?;
    print(idle(&peer, if args.quick { 1 } else { 10 })?);
    peer.end()
}

#[expect(clippy::too_many_arguments, reason = "the columns of the table above")]
fn one_sided(
    end: &End,
    peer: &Card,
    name: &str,
    opcode: u32,
    write: bool,
    length: usize,
    count: usize,
    rounds: usize,
) -> Result<Figure, Failure> {
    let near = end.memory.address();
    // SAFETY: the region is live.
    let lkey = unsafe { (*end.region).lkey };
    let mut sge = ibv_sge { addr: near, length: length as u32, lkey };
    let mut wr = end::one_sided(opcode, &mut sge, peer);
    let mut ours = || end.carry_out(&mut wr);
    let mut floor = || match end::kernel_copy(write, peer, near, length) {
        true => Ok(()),
        false => Err(Failure::new(
            "the kernel does not let processes copy each other's memory; \
                                   there is no floor to compare with",
        )),
    };
    let (ours, floor, ratio) = pairwise(rounds, count, &mut ours, &mut floor)?;
    let small = length == 8;
    Ok(Figure {
        name: name.into(),
        value: ours,
        unit: "ns",
        floor: Some(floor),
        against: if write { "process_vm_writev" } else { "process_vm_readv" },
        ratio: Some(ratio),
        target: match (small, write) {
            (true, true) => "at most 1.3 x",
            (true, false) => "",
            // The time ratio that 0.9 of the bandwidth allows.
            (false, _) => "at most 1.11 x (0.9 of the bandwidth)",
        },
        met: match (small, write) {
            (true, true) => Some(ratio <= 1.3),
            (true, false) => None,
            (false, _) => Some(ratio <= 1.0 / 0.9),
        },
    })
}

/// Binds and invalidations, beside registrations of the same ranges.
fn windows(end: &End, rounds: usize, quick: bool, print: &impl Fn(Figure)) -> Result<(), Failure> {
    let (small, large) = (Memory::new(4 << 10)?, Memory::new(1 << 30)?);
    let (small_region, large_region) =
        (end::register(end.pd, &small)?, end::register(end.pd, &large)?);
    let mw = end.window()?;
    let pair = |region, length| {
        let mut ours = || end::bind_and_invalidate(end, mw, region, length);
        median_time(rounds, 2000, &mut ours)
    };
    let base = pair(small_region, 4 << 10)?;
    print(bind_figure("type 2 bind + LOCAL_INV, 4 KiB", base, None));
    print(bind_figure("the same, 1 GiB", pair(large_region, 1 << 30)?, Some(base)));
    let table =
        |end: &End| end.adapter.device().process().segment().memory_used().unwrap_or(0) as f64;
    let before = table(end);
    let mut live = Vec::new();
    for count in [1_000, if quick { 100_000 } else { 1_000_000 }] {
        while live.len() < count {
            live.push(end.window()?);
        }
        let name = format!("the same, 4 KiB, {count} windows live");
        print(bind_figure(&name, pair(small_region, 4 << 10)?, Some(base)));
    }
    let each = (table(end) - before) / live.len() as f64;
    print(Figure {
        name: format!("memory of an idle window in the table ({} live)", live.len()),
        value: each,
        unit: "bytes",
        floor: None,
        against: "",
        ratio: None,
        target: "at most 64 bytes, and a quarter of a megabyte in all",
        met: Some(each * live.len() as f64 <= 64.0 * live.len() as f64 + 262_144.0),
    });
    live.into_iter().for_each(|mw| end.free_window(mw));
    for (name, memory) in
        [("register + deregister, 4 KiB", &small), ("register + deregister, 1 GiB", &large)]
    {
        let mut ours = || end::deregister(end::register(end.pd, memory)?);
        let value = median_time(rounds, 50, &mut ours)?;
        print(Figure {
            name: name.into(),
            value,
            unit: "ns",
            floor: Some(base),
            against: "bind + LOCAL_INV",
            ratio: Some(value / base),
            target: "(why windows exist)",
            met: None,
        });
    }
    end.free_window(mw);
    end::deregister(small_region)?;
    end::deregister(large_region)
}

fn bind_figure(name: &str, value: f64, base: Option<f64>) -> Figure {
    let ratio = base.map(|base| value / base);
    let same = ratio.is_none_or(|ratio| ratio <= 1.1);
    Figure {
        name: name.into(),
        value,
        unit: "ns",
        floor: base,
        against: "4 KiB, no other window",
        ratio,
        target: if base.is_some() { "under 500 ns, within 10 %" } else { "under 500 ns" },
        met: Some(value < 500.0 && same),
    }
}

/// Context switches of both processes while nothing is asked of them.
fn idle(peer: &Peer, seconds: u64) -> Result<Figure, Failure> {
    let count =
        || -> Result<u64, Failure> { Ok(switches(std::process::id())? + switches(peer.card.pid)?) };
    // What the last measurement left to do is done when the counts stand still for a moment.
    let mut before = count()?;
    loop {
        std::thread::sleep(Duration::from_millis(50));
        let now = count()?;
        // This thread's own sleep is one.
        if now <= before + 1 {
            break;
        }
        before = now;
    }
    let before = count()?;
    std::thread::sleep(Duration::from_secs(seconds));
    let switched = (count()? - before).saturating_sub(1);
    Ok(Figure {
        name: format!("context switches of two idle processes in {seconds} s"),
        value: switched as f64,
        unit: "",
        floor: None,
        against: "",
        ratio: None,
        target: "0",
        met: Some(switched == 0),
    })
}

/// Voluntary and other context switches of all threads of a process.
fn switches(pid: u32) -> Result<u64, Failure> {
    let path = format!("/proc/{pid}/task");
    let tasks = std::fs::read_dir(&path).map_err(|e| Failure::new(format!("{path}: {e}")))?;
    let mut total = 0;
    for task in tasks.flatten() {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let counts = status.lines().filter_map(|line| line.split_once("_ctxt_switches:"));
        total += counts.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum::<u64>();
    }
    Ok(total)
}

/// Median nanoseconds of `ours` and `floor`, run in turn, and the median of their ratios.
fn pairwise(
    rounds: usize,
    count: usize,
    ours: &mut dyn FnMut() -> Result<(), Failure>,
    floor: &mut dyn FnMut() -> Result<(), Failure>,
) -> Result<(f64, f64, f64), Failure> {
    time(count, ours)?;
    time(count, floor)?;
    let (mut a, mut b, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (x, y) = (time(count, ours)?, time(count, floor)?);
        a.push(x);
        b.push(y);
        ratios.push(x / y);
    }
    Ok((median(a), median(b), median(ratios)))
}

fn median_time(
    rounds: usize,
    count: usize,
    ours: &mut dyn FnMut() -> Result<(), Failure>,
) -> Result<f64, Failure> {
    time(count, ours)?;
    let times = (0..rounds).map(|_| time(count, ours)).collect::<Result<Vec<_>, _>>()?;
    Ok(median(times))
}

/// Nanoseconds each of `count` runs.
fn time(count: usize, run: &mut dyn FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    let start = Instant::now();
    for _ in 0..count {
        run()?;
    }
    Ok(start.elapsed().as_nanos() as f64 / count as f64)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn print(figure: &Figure, json: bool) {
    if json {
        println!("{}", serde_json::to_string(figure).expect("numbers and strings"));
        return;
    }
    let number = |value: f64| match (figure.unit, value) {
        ("ns", value) if value >= 100_000.0 => format!("{:.1} us", value / 1000.0),
        ("ns", value) => format!("{value:.0} ns"),
        (unit, value) => format!("{value:.0} {unit}").trim_end().to_owned(),
    };
    let met = match figure.met {
        Some(true) => "met",
        Some(false) => "MISSED",
        None => "",
    };
    println!(
        "{:44} {:>12} {:>12} {:>7}  {met:6} {}",
        figure.name,
        number(figure.value),
        figure.floor.map(number).unwrap_or_default(),
        figure.ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
        figure.target,
    );
}

/// The second process.
struct Peer {
    child: Child,
    card: Card,
}

impl Peer {
    fn start(end: &End) -> Result<Self, Failure> {
        let failed =
            |error: std::io::Error| Failure::new(format!("starting the second process: {error}"));
        let exe = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(exe)
            .arg(PEER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        lines.read_line(&mut line).map_err(failed)?;
        let card: Card = serde_json::from_str(&line)
            .map_err(|_| Failure::new("the second process could not open the device"))?;
        send(child.stdin.as_mut().expect("piped"), &end.card()).map_err(failed)?;
        line.clear();
        lines.read_line(&mut line).map_err(failed)?;
        end.connect(&card)?;
        Ok(Self { child, card })
    }

    fn end(&mut self) -> Result<(), Failure> {
        drop(self.child.stdin.take());
        let status = self.child.wait();
        match status {
            Ok(status) if status.success() => Ok(()),
            other => Err(Failure::new(format!("the second process ended badly: {other:?}"))),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It ends when its input does.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn send(to: &mut impl Write, card: &Card) -> std::io::Result<()> {
    writeln!(to, "{}", serde_json::to_string(card)?)?;
    to.flush()
}

/// The second process: lends its memory until its input ends.
pub(crate) fn peer() -> Result<(), Failure> {
    let failed =
        |error: std::io::Error| Failure::new(format!("talking to the first process: {error}"));
    let end = End::new()?;
    send(&mut std::io::stdout(), &end.card()).map_err(failed)?;
    let mut input = std::io::stdin().lock();
    let mut line = String::new();
    input.read_line(&mut line).map_err(failed)?;
    let card: Card = serde_json::from_str(&line).map_err(|error| failed(error.into()))?;
    end.connect(&card)?;
    println!("connected");
    line.clear();
    input.read_line(&mut line).map_err(failed)?;
    Ok(())
}

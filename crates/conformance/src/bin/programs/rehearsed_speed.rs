//! `programs rehearsed-speed`: perftest under `transom check` and under `transom rehearse`, beside plain runs. A rehearsal
//! has all moments and mercies here but those of placement, and no failures, after which perftest would end.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use transom_conformance::processes::Scratch;
use transom_rehearse::{Plan, Provocation, Sort};
use transom_system::environment::{CHECK, REHEARSE};
use transom_system::rehearsal::PLAN;

use crate::installation::Installation;
use crate::perftest::{Measure, measure_in};
use crate::place::Place;
use crate::table::{Form, Report, Row, Style, Verdict};

static FORM: Form = Form {
    script: "rehearsed-speed",
    title: "perftest over RC under `transom check` and `transom rehearse`, as a share of a plain run's speed",
    subject: &[("tool", 34), ("memory", 8)],
    figures: &[
        ("run", 14),
        ("check", 14),
        ("share", 6),
        ("target", 18),
        ("rehearse", 14),
        ("share", 6),
        ("target", 18),
    ],
};

const LIMIT: Duration = Duration::from_secs(120);

/// The tools. A rehearsal's target is about the rate of messages, so about bandwidth.
const TOOLS: [&str; 5] = [
    "ib_write_bw -s 8 -n 1000000",
    "ib_write_bw -s 65536 -n 100000",
    "ib_send_bw -s 8 -n 1000000",
    "ib_send_bw -s 65536 -n 100000",
    "ib_send_lat -s 8 -n 100000",
];

/// How often each is measured. The result is the median. A rehearsal has another seed each time.
const RUNS: u64 = 5;

/// At least this share of a plain run's rate under `transom rehearse`.
const REHEARSED: f64 = 1.0 / 3.0;
/// At least this share of its bandwidth for long messages under `transom check`, and of its speed of a short one.
const CHECKED: [f64; 2] = [1.0 / 2.0, 1.0 / 3.0];

/// How a tool runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Run,
    Check,
    Rehearse,
}

/// Whether the program's memory is shared, as under `transom run`, or private.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    Shared,
    Private,
}

/// Measures. It reports a missed target, but that is not a failure, because other programs may be the cause.
pub(crate) fn run(installation: &Installation, style: Style) -> Result<Report, String> {
    let mut report = Report::begin(&FORM, style);
    let all = TOOLS.iter().flat_map(|tool| [Memory::Shared, Memory::Private].map(|it| (tool, it)));
    for (tool, memory) in all {
        let measured = medians(installation, tool, memory);
        report.add(Row {
            subject: vec![(*tool).into(), format!("{memory:?}").to_lowercase()],
            figures: measured.as_ref().map(|medians| figures(tool, *medians)).unwrap_or_default(),
            verdict: Verdict::of(measured.err()),
        });
    }
    Ok(report)
}

/// The medians of a tool: a plain run's, that of a check, and that of rehearsals. They take turns, so that all have the
/// same machine.
fn medians(installation: &Installation, tool: &str, memory: Memory) -> Result<[f64; 3], String> {
    let mut values = [const { Vec::new() }; 3];
    for seed in 1..=RUNS {
        for (way, values) in [Way::Run, Way::Check, Way::Rehearse].into_iter().zip(&mut values) {
            values.push(once(installation, tool, memory, way, seed)?);
        }
    }
    Ok(values.map(|mut values| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    }))
}

fn once(
    installation: &Installation,
    tool: &str,
    memory: Memory,
    way: Way,
    seed: u64,
) -> Result<f64, String> {
    let measure = if tool.contains("_bw") { Measure::Bandwidth } else { Measure::Latency };
    let (name, arguments) = tool.split_once(' ').expect("a tool and its arguments");
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let scratch = Scratch::new("rehearsed-speed");
    let (findings, plans) = (scratch.path().join("findings"), scratch.path().join("plans"));
    let malloc = (memory == Memory::Shared).then(|| installation.malloc_library());
    let freed = (way != Way::Run).then(|| installation.freed_library());
    let preloaded: Vec<_> = malloc.into_iter().chain(freed).map(PathBuf::into_os_string).collect();
    let preloaded = PathBuf::from(preloaded.join(OsStr::new(":")));
    let mut environment: Vec<(&str, &Path)> = vec![("LD_PRELOAD", &preloaded)];
    if way != Way::Run {
        environment.push((CHECK.name, &findings));
    }
    if way == Way::Rehearse {
        environment.push((REHEARSE.name, &plans));
    }
    let prepared = [&findings, &plans].into_iter().try_for_each(fs::create_dir);
    let prepared = prepared.and_then(|()| fs::write(plans.join(PLAN), plan(seed).to_string()));
    prepared.map_err(|error| format!("{}: {error}", scratch.path().display()))?;
    let figure =
        measure_in(&environment, installation, Place::Here, name, measure, &arguments, LIMIT)?;
    Ok(figure.value)
}

fn plan(seed: u64) -> Plan {
    let is_asked_for =
        |it: &Provocation| it.sort() != Sort::Failure && !Provocation::PLACEMENT.contains(it);
    let kinds = Provocation::ALL.iter().copied().filter(is_asked_for).collect();
    Plan { seed, kinds, ..Plan::quiet() }
}

/// The cells of a row.
fn figures(tool: &str, medians: [f64; 3]) -> Vec<String> {
    let [run, check, rehearse] = medians;
    let is_rate = tool.contains("_bw");
    let share = |it: f64| if is_rate { it / run } else { run / it };
    let unit = if is_rate { "MiB/s" } else { "us" };
    let is_long = tool.contains("-s 65536");
    let of_check = match is_rate {
        true if is_long => judged(share(check) >= CHECKED[0], "half"),
        true => String::new(),
        false => judged(share(check) >= CHECKED[1], "a third"),
    };
    let of_rehearsal = match is_rate {
        true => judged(share(rehearse) >= REHEARSED, "a third"),
        false => String::new(),
    };
    let said = |it: f64| format!("{it:.2} {unit}");
    let shared = |it: f64| format!("{:.2}", share(it));
    let [by_check, by_rehearsal] = [check, rehearse].map(|it| [said(it), shared(it)]);
    let cells =
        [vec![said(run)], by_check.into(), vec![of_check], by_rehearsal.into(), vec![of_rehearsal]];
    cells.concat()
}

fn judged(is_met: bool, target: &str) -> String {
    format!("{}: {target}", if is_met { "met" } else { "MISSED" })
}

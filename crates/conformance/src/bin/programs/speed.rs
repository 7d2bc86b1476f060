//! `programs speed`: perftest's measurements, beside the kernel's own copy between two processes, which `transom bench`
//! has measured just before.

use std::time::Duration;

use serde_json::Value;
use transom_conformance::programs::Running;

use crate::installation::Installation;
use crate::perftest::{Measure, measure_once};
use crate::place::Place;
use crate::table::{Form, Report, Row, Style, Verdict};

static FORM: Form = Form {
    script: "speed",
    title: "the tools of perftest over RC, compared with the kernel's copy between the same two processes",
    subject: &[("tool", 25)],
    figures: &[("measured", 12), ("floor", 12), ("ratio", 6), ("target", 40)],
};

const LIMIT: Duration = Duration::from_secs(120);

const MIB: f64 = 1048576.0;

/// The number of runs of each tool. The result is their median.
const RUNS: usize = 5;

/// The target of [`WRITE`] in microseconds, on a machine whose kernel takes [`ITS_FLOOR`] to copy.
const TARGET: f64 = 1.0;
const ITS_FLOOR: f64 = 0.6;
const WRITE: &str = "ib_write_lat -s 8";

/// Measures. It reports a missed target, but that is not a failure, because other programs may be the cause.
pub(crate) fn run(installation: &Installation, style: Style) -> Result<Report, String> {
    let floors = floors(installation)?;
    let mut report = Report::begin(&FORM, style);
    for (tool, floor) in [
        (WRITE, "WRITE of 8 bytes, to its completion"),
        ("ib_read_lat -s 8", "READ of 8 bytes, to its completion"),
        ("ib_send_lat -s 8", "WRITE of 8 bytes, to its completion"),
        ("ib_write_bw -s 1048576", "WRITE of 1 MiB"),
    ] {
        let floor = floors.iter().find(|(name, _)| name == floor).map(|(_, micros)| *micros);
        let floor = floor.ok_or("transom bench has no such figure any more")?;
        let measured = median_of(installation, tool);
        report.add(Row {
            subject: vec![tool.into()],
            figures: measured
                .as_ref()
                .map(|value| figures(tool, *value, floor))
                .unwrap_or_default(),
            verdict: Verdict::of(measured.err()),
        });
    }
    Ok(report)
}

/// The kernel's microseconds for the same bytes, by the names of `transom bench`.
fn floors(installation: &Installation) -> Result<Vec<(String, f64)>, String> {
    let mut bench = installation.transom()?;
    let printed = Running::start(bench.args(["bench", "--json", "--quick"])).success(LIMIT)?;
    let floor = |line: &str| {
        let row: Value = serde_json::from_str(line).ok()?;
        let figures = row["figures"].as_array()?;
        let copy = figures.iter().find(|figure| figure["name"] == "kernel's copy")?;
        let median = copy["median"].as_f64()?;
        // All rows in MB/s that are needed here are for 1 MiB.
        let micros = if row["unit"] == "ns" { median / 1000.0 } else { MIB / median };
        Some((row["name"].as_str()?.to_owned(), micros))
    };
    Ok(printed.output.lines().filter_map(floor).collect())
}

fn median_of(installation: &Installation, tool: &str) -> Result<f64, String> {
    let measure = if tool.contains("_bw") { Measure::Bandwidth } else { Measure::Latency };
    let (name, arguments) = tool.split_once(' ').expect("a tool and its arguments");
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let once = |_| measure_once(installation, Place::Here, name, measure, &arguments, LIMIT);
    let mut values: Vec<f64> =
        (0..RUNS).map(once).map(|figure| Ok(figure?.value)).collect::<Result<_, String>>()?;
    values.sort_by(f64::total_cmp);
    Ok(values[RUNS / 2])
}

/// The cells of a row. `floor` is in microseconds.
fn figures(tool: &str, value: f64, floor: f64) -> Vec<String> {
    if tool.contains("_bw") {
        // The floor is for 1 MiB. As in the other rows, a ratio above 1 means slower.
        let floor = 1e6 / floor;
        let rate = |mib: f64| format!("{mib:.0} MiB/s");
        return vec![rate(value), rate(floor), format!("{:.2}", floor / value), String::new()];
    }
    let target = match (tool, value <= TARGET * (floor / ITS_FLOOR).max(1.0)) {
        (WRITE, met) => format!(
            "{}: {TARGET:.1} us where the floor is {ITS_FLOOR}",
            if met { "met" } else { "MISSED" }
        ),
        _ => String::new(),
    };
    let micros = |micros: f64| format!("{micros:.2} us");
    vec![micros(value), micros(floor), format!("{:.2}", value / floor), target]
}

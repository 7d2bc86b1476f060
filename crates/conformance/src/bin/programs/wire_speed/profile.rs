//! The use of CPU time while packets cross, measured with `perf`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use transom_conformance::programs::{Running, installed};
use transom_conformance::spaces::Side;

use crate::installation::{DEVICE, Installation};
use crate::meeting::meet;
use crate::place::{Place, Wire};

const LIMIT: Duration = Duration::from_secs(60);
const LIBRARY: &str = "libibverbs.so.1";

/// The reason why `perf` may not look here, if so. Containers often forbid it.
pub(super) fn forbidden() -> Result<Option<String>, String> {
    let mut perf = Command::new(installed("perf", "linux-perf")?);
    perf.args(["stat", "-e", "cpu-clock", "true"]);
    let (status, printed) = Running::start(&mut perf).end(LIMIT)?;
    let why = printed.complaints.lines().find(|line| !line.trim().is_empty());
    Ok((!status.success()).then(|| why.unwrap_or("perf fails").trim().to_owned()))
}

/// The file with `perf`'s record of an end.
fn file(installation: &Installation, side: Side) -> PathBuf {
    installation.folder().join(format!("perf-{side:?}.data"))
}

/// Runs `ib_write_bw` with `perf` on both ends.
pub(super) fn record(installation: &Installation, wire: &Wire) -> Result<(), String> {
    let place = Place::Across(wire);
    let command = |side| -> Result<Command, String> {
        let tool = place.command(installation, side, "ib_write_bw", "perftest")?;
        let mut perf = Command::new(installed("perf", "linux-perf")?);
        perf.env("LD_LIBRARY_PATH", installation.folder());
        perf.args(["record", "--quiet", "-e", "cpu-clock", "-F", "1999", "-o"]);
        perf.arg(file(installation, side));
        perf.arg("--").arg(tool.get_program());
        perf.args(["-d", DEVICE, "-F", "-s", "1048576", "-n", "3000"]);
        perf.args(place.gid("-x", side));
        wire.pair.space(side).enter(&mut perf);
        Ok(perf)
    };
    let (server, client) = (command(Side::Far)?, command(Side::Near)?);
    meet(server, vec![client], &place.address(), LIMIT).map(drop)
}

/// The ICRC's share of both ends' time for packets, in our library and in the kernel. It leaves out the time of the
/// program itself.
pub(super) fn icrc_shares(installation: &Installation) -> Result<[f64; 2], String> {
    let share = |side| icrc_share(&file(installation, side));
    Ok([share(Side::Near)?, share(Side::Far)?])
}

fn icrc_share(file: &Path) -> Result<f64, String> {
    let mut perf = Command::new(installed("perf", "linux-perf")?);
    perf.args(["report", "--stdio", "--no-children", "--sort", "dso,symbol", "-i"]).arg(file);
    let printed = Running::start(&mut perf).success(LIMIT)?.output;
    let (mut icrc, mut path) = (0.0, 0.0);
    for Line { percent, object, symbol } in printed.lines().filter_map(Line::parse) {
        if object == LIBRARY || object.starts_with("[kernel") {
            path += percent;
        }
        if object == LIBRARY && symbol.contains("crc") {
            icrc += percent;
        }
    }
    if icrc == 0.0 || path == 0.0 {
        return Err(format!("no ICRC in the profile\n{printed}"));
    }
    Ok(icrc / path)
}

/// A line of `perf report`.
struct Line<'a> {
    percent: f64,
    object: &'a str,
    symbol: &'a str,
}

impl<'a> Line<'a> {
    /// Reads `  17.39%  libc.so.6  [.] memmove`.
    fn parse(line: &'a str) -> Option<Self> {
        let (percent, rest) = line.trim().split_once('%')?;
        let (object, rest) = rest.trim().split_once(' ')?;
        let (_, symbol) = rest.trim().split_once("] ")?;
        Some(Self { percent: percent.parse().ok()?, object, symbol })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_perf_are_read() {
        let line = Line::parse("    17.39%  libibverbs.so.1       [.] crc32fast::update").unwrap();
        assert_eq!((line.percent, line.object), (17.39, LIBRARY));
        assert_eq!(line.symbol, "crc32fast::update");
        assert!(Line::parse("# Samples: 23  of event 'cpu-clock:pppH'").is_none());
    }
}

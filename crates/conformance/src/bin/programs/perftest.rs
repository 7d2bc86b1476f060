//! `programs perftest`: every tool of Debian's perftest over every service it knows, with the options that change its
//! requests to the device.

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use transom_conformance::spaces::Side;

use crate::extent::Extent;
use crate::installation::{DEVICE, Installation};
use crate::meeting::meet;
use crate::place::Place;
use crate::table::{Form, Report, Row, Style, Verdict};

static FORM: Form = Form {
    script: "perftest",
    title: "the tools of perftest, server and client as two processes",
    subject: &[("tool", 13), ("service", 7), ("options", 28)],
    figures: &[("measured", 30)],
};

/// The operation that a tool repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Write,
    Read,
    Send,
    Atomic,
}

/// The figure that a tool measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    Bandwidth,
    Latency,
}

/// The tools, and the services that each can use.
const TOOLS: [(&str, Verb, Measure, &[&str]); 8] = [
    ("ib_write_bw", Verb::Write, Measure::Bandwidth, &["RC", "UC", "XRC"]),
    ("ib_write_lat", Verb::Write, Measure::Latency, &["RC", "UC", "XRC"]),
    ("ib_read_bw", Verb::Read, Measure::Bandwidth, &["RC", "XRC"]),
    ("ib_read_lat", Verb::Read, Measure::Latency, &["RC", "XRC"]),
    ("ib_send_bw", Verb::Send, Measure::Bandwidth, &["RC", "UC", "UD", "XRC"]),
    ("ib_send_lat", Verb::Send, Measure::Latency, &["RC", "UC", "UD", "XRC"]),
    ("ib_atomic_bw", Verb::Atomic, Measure::Bandwidth, &["RC", "XRC"]),
    ("ib_atomic_lat", Verb::Atomic, Measure::Latency, &["RC", "XRC"]),
];

/// Runs the matrix to this extent.
pub(crate) fn run(
    installation: &Installation,
    style: Style,
    extent: Extent,
) -> Result<Report, String> {
    let mut report = Report::begin(&FORM, style);
    for run in matrix(extent) {
        let measured = run.measure(installation, Place::Here);
        report.add(Row {
            subject: vec![run.tool.into(), run.service.into(), run.options],
            figures: vec![measured.as_ref().map(Figure::describe).unwrap_or_default()],
            verdict: Verdict::of(measured.err()),
        });
    }
    Ok(report)
}

/// A run of a tool.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) tool: &'static str,
    pub(crate) service: &'static str,
    pub(crate) options: String,
    measure: Measure,
    iterations: Vec<&'static str>,
    limit: Duration,
}

impl Run {
    /// Carries it out.
    pub(crate) fn measure(
        &self,
        installation: &Installation,
        place: Place,
    ) -> Result<Figure, String> {
        let mut arguments = vec!["-c", self.service];
        arguments.extend(self.options.split_whitespace().chain(self.iterations.iter().copied()));
        measure_once(installation, place, self.tool, self.measure, &arguments, self.limit)
    }
}

/// Every tool over each service, with all or some of the options that change its requests to the device.
pub(crate) fn matrix(extent: Extent) -> Vec<Run> {
    let limit = Duration::from_secs(if extent.is_long() { 300 } else { 60 });
    let mut runs = Vec::new();
    for (tool, verb, measure, services) in TOOLS {
        for service in services {
            for options in options(verb, measure, service, extent) {
                let iterations = iterations(measure, &options, extent.is_long());
                runs.push(Run { tool, service, options, measure, iterations, limit });
            }
        }
    }
    runs
}

/// The tools that send to a multicast group, with this one.
pub(crate) fn to_group(group: IpAddr) -> Vec<Run> {
    let group = match group {
        IpAddr::V4(group) => group.to_ipv6_mapped(),
        IpAddr::V6(group) => group,
    };
    let bytes = group.octets().map(|byte| byte.to_string()).join(":");
    let mut runs = matrix(Extent::Usual);
    runs.retain_mut(|run| {
        let takes = run.service == "UD" && run.options.is_empty();
        run.options = format!("-g -M {bytes}");
        takes
    });
    runs
}

/// The option for a tool's number of iterations: a multiple of the length of any list that it posts. On a machine with
/// more work than processors, each exchange of the latency tools takes milliseconds.
fn iterations(measure: Measure, options: &str, long: bool) -> Vec<&'static str> {
    match (options.split_whitespace().next(), long) {
        // These count seconds instead.
        (Some("-D"), _) => vec![],
        // 23 sizes.
        (Some("-a"), false) => vec!["-n", "16"],
        (_, false) if measure == Measure::Latency => vec!["-n", "32"],
        (_, false) => vec!["-n", "128"],
        // Also a multiple of 100: perftest asks for a completion every 100 messages. With events and several queue
        // pairs it counts a last, shorter group as 100, and never ends.
        (_, true) => vec!["-n", "1600"],
    }
}

/// The options to run a tool with.
fn options(verb: Verb, measure: Measure, service: &str, extent: Extent) -> Vec<String> {
    let bandwidth = measure == Measure::Bandwidth;
    let mut short = vec![""];
    let mut rest = vec!["-m 256", "-S 1", "-u 10"];
    if verb != Verb::Atomic {
        short.push("-a");
        rest.push("-s 1");
        // The tool itself refuses on-demand paging for UC.
        if service != "UC" {
            rest.push("--odp");
        }
        if service != "UD" {
            rest.extend(["-s 1000003", "-s 4194304"]);
        }
    }
    if verb != Verb::Write {
        short.push("-e");
    }
    if matches!(verb, Verb::Write | Verb::Send) {
        short.push("-I 64 -s 64");
    }
    if bandwidth {
        short.extend(["-b", "-q 16", "-l 16"]);
        rest.extend(["-b -q 16", "-Q 1", "-t 1", "-t 1000", "-N", "-D 1"]);
        rest.extend(["--mr_per_qp -q 4", "--use_old_post_send"]);
    }
    if verb == Verb::Send {
        match service {
            // The tool itself refuses its default group with an IPv4 address.
            "UD" => short.extend(["--use-srq", "-g --ipv6"]),
            "RC" => short.push("--use-srq"),
            _ => {}
        }
        rest.push("-e -s 4096");
        // A datagram without a receive is lost, and the tool would wait for it.
        if service != "UD" {
            rest.push("-r 16");
        }
        if bandwidth {
            rest.extend(["--recv_post_list=16", "-b -e", "-b -e -q 16"]);
        }
    }
    if verb == Verb::Read {
        rest.push("-o 1");
    }
    match extent {
        // A tool takes ten seconds for all sizes, so only one tool does it.
        Extent::Quick => short.retain(|options| match (verb, measure, service, *options) {
            (_, _, "UD", "-g --ipv6") | (Verb::Send, Measure::Bandwidth, "RC", "-a") => true,
            (_, _, _, "-a") => false,
            (_, _, service, options) => service == "RC" || options.is_empty(),
        }),
        Extent::Usual => {}
        Extent::Long => short.extend(rest),
    }
    if verb != Verb::Atomic {
        return short.into_iter().map(str::to_owned).collect();
    }
    let kinds = ["-A FETCH_AND_ADD", "-A CMP_AND_SWAP"];
    let both = |options: &str| kinds.map(|kind| format!("{kind} {options}").trim_end().to_owned());
    short.into_iter().flat_map(both).collect()
}

/// A tool's figures in a line of its table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figure {
    measure: Measure,
    bytes: u64,
    /// MiB/s on average, or typical microseconds.
    pub(crate) value: f64,
}

impl Figure {
    pub(crate) fn describe(&self) -> String {
        match self.measure {
            Measure::Bandwidth => format!("{:.1} MiB/s at {} bytes", self.value, self.bytes),
            Measure::Latency => format!("{:.2} us at {} bytes", self.value, self.bytes),
        }
    }
}

/// Runs a tool once. Returns the highest bandwidth of all sizes, or the latency of the smallest size.
pub(crate) fn measure_once(
    installation: &Installation,
    place: Place,
    tool: &str,
    measure: Measure,
    arguments: &[&str],
    limit: Duration,
) -> Result<Figure, String> {
    measure_in(&[], installation, place, tool, measure, arguments, limit)
}

/// The same with an environment of its own for both ends.
pub(crate) fn measure_in(
    environment: &[(&str, &Path)],
    installation: &Installation,
    place: Place,
    tool: &str,
    measure: Measure,
    arguments: &[&str],
    limit: Duration,
) -> Result<Figure, String> {
    let command = |side| -> Result<Command, String> {
        let mut command = place.command(installation, side, tool, "perftest")?;
        command.args(["-d", DEVICE, "-F"]).args(place.gid("-x", side)).args(arguments);
        command.envs(environment.iter().copied());
        Ok(command)
    };
    let (server, client) = (command(Side::Far)?, command(Side::Near)?);
    let printed = meet(server, vec![client], &place.address(), limit)?;
    best_figure(measure, &printed[0].output)
}

/// The highest bandwidth in what a client prints, or the latency of the smallest size.
pub(crate) fn best_figure(measure: Measure, client: &str) -> Result<Figure, String> {
    let figures = client.lines().filter_map(|line| figure(measure, line));
    let best = match measure {
        Measure::Bandwidth => figures.max_by(|a, b| a.value.total_cmp(&b.value)),
        Measure::Latency => figures.min_by_key(|figure| figure.bytes),
    };
    best.ok_or_else(|| format!("no result in\n{client}"))
}

/// Reads a line of a tool's table: numbers, the first of them the size.
fn figure(measure: Measure, line: &str) -> Option<Figure> {
    let numbers: Option<Vec<f64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
    let numbers = numbers?;
    let value = match measure {
        // Bytes, iterations, peak, average, million messages per second.
        Measure::Bandwidth if numbers.len() == 5 => numbers[3],
        // Bytes, iterations, shortest, longest, typical, average and more.
        Measure::Latency if numbers.len() == 9 => numbers[4],
        _ => return None,
    };
    Some(Figure { measure, bytes: numbers[0] as u64, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_tools_tables_are_read() {
        let bandwidth = figure(Measure::Bandwidth, " 64  1000   133.24  128.52 \t  2.105638");
        assert_eq!(bandwidth.map(|f| (f.bytes, f.value)), Some((64, 128.52)));
        let latency = " 8  1000  0.70   12.39   0.76   \t 0.78  \t0.11   \t\t0.98    \t\t12.39  ";
        let latency = figure(Measure::Latency, latency);
        assert_eq!(latency.map(|f| (f.bytes, f.value)), Some((8, 0.76)));
        assert_eq!(figure(Measure::Bandwidth, "#bytes #iterations BW peak BW average rate"), None);
        assert_eq!(figure(Measure::Latency, ""), None);
    }

    #[test]
    fn each_extent_is_part_of_the_next() {
        for (_, verb, measure, services) in TOOLS {
            for service in services {
                let [quick, usual, long] = [Extent::Quick, Extent::Usual, Extent::Long]
                    .map(|extent| options(verb, measure, service, extent));
                assert!(usual.iter().all(|options| long.contains(options)));
                assert!(quick.iter().all(|options| usual.contains(options)));
                assert!(!quick.is_empty());
                let mut unique = long.clone();
                unique.sort();
                unique.dedup();
                assert_eq!(unique.len(), long.len(), "{long:?}");
            }
        }
    }
}

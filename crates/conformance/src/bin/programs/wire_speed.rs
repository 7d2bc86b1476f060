//! `programs wire-speed`: perftest's measurements across a veth pair, beside the kernel's own protocols on the same
//! pair in the same run.

mod kernel;
mod profile;

use transom_conformance::spaces::Family;

use std::time::Duration;

use crate::extent::Extent;
use crate::installation::Installation;
use crate::perftest::{Measure, measure_once};
use crate::place::{Place, Wire, across_pairs};
use crate::table::{Form, Report, Row, Style, Verdict};
use kernel::{Echo, echo, iperf3};

static FORM: Form = Form {
    script: "wire-speed",
    title: "the tools of perftest over RC across a veth pair, compared with the kernel's own protocols: \
            medians, with the least and the most in parentheses",
    subject: &[("wire", 12), ("tool", 26)],
    figures: &[("measured", 32), ("beside it", 46), ("ratio", 6), ("target", 22)],
};

const LIMIT: Duration = Duration::from_secs(120);
/// The UDP payload of a WRITE of 8 bytes, in bytes: BTH, RETH, the 8 bytes and the ICRC.
const WRITE: usize = 12 + 16 + 8 + 4;
/// The UDP payload of its acknowledgement: BTH, AETH and the ICRC.
const ACKNOWLEDGEMENT: usize = 12 + 4 + 4;
/// The latency of such a WRITE is compared with this.
const SLEEPING: Echo = Echo { name: "UDP echo, sleeping", spins: false, sizes: [WRITE, 0] };
const SPINNING: Echo = Echo { name: "UDP echo, spinning", spins: true, sizes: [WRITE, 0] };
/// Each WRITE is acknowledged before its origin sends the next. No implementation can avoid this.
const ACKNOWLEDGED: Echo =
    Echo { name: "the same, of two datagrams", spins: true, sizes: [WRITE, ACKNOWLEDGEMENT] };
/// The target: at least this share of TCP's bandwidth.
const BANDWIDTH: f64 = 0.7;
/// The target: at most this multiple of UDP's latency.
const LATENCY: f64 = 1.3;
/// The target: at most this share of the packet path's time for the ICRC.
const ICRC: f64 = 0.1;

/// Measures. It reports a missed target, but that is not a failure, because other programs may be the cause.
pub(crate) fn run(
    installation: &Installation,
    style: Style,
    extent: Extent,
) -> Result<Option<Report>, String> {
    let families = if extent.is_long() { &Family::ALL[..] } else { &[Family::V4] };
    across_pairs(&FORM, style, &[1500, 9000], |pair, report| {
        for family in families {
            let wire = Wire::new(installation, pair, *family)?;
            let speed =
                Speed { installation, wire: &wire, runs: if extent.is_long() { 9 } else { 3 } };
            let mut add = |tool: &str, came: Result<[String; 4], String>| {
                report.add(Row {
                    subject: vec![format!("{family}, {}", pair.mtu()), tool.to_owned()],
                    figures: came.as_ref().map_or_else(|_| vec![String::new(); 4], |c| c.to_vec()),
                    verdict: Verdict::of(came.err()),
                });
            };
            add("ib_write_bw -s 65536", speed.bandwidth("65536", "20000"));
            add("ib_write_bw -s 1048576", speed.bandwidth("1048576", "1000"));
            for (tool, echo) in [
                ("ib_write_lat -s 8, asleep", SLEEPING),
                ("ib_write_lat -s 8, awake", SPINNING),
                ("ib_write_lat -s 8, awake", ACKNOWLEDGED),
            ] {
                add(tool, speed.latency(echo));
            }
            add("ICRC", speed.icrc());
        }
        Ok(())
    })
}

/// Measurements on one wire.
struct Speed<'a> {
    installation: &'a Installation,
    wire: &'a Wire<'a>,
    /// The number of repetitions of each.
    runs: usize,
}

impl Speed<'_> {
    /// WRITEs of this size, beside one TCP connection.
    fn bandwidth(&self, size: &str, count: &str) -> Result<[String; 4], String> {
        let options = ["-s", size, "-n", count];
        let (ours, tcp) = self.in_turn(
            || self.perftest("ib_write_bw", Measure::Bandwidth, &options),
            || iperf3(self.wire),
        )?;
        let ratio = ours.median() / tcp.median();
        Ok([
            ours.describe(0, "MiB/s"),
            format!("iperf3 {}", tcp.describe(0, "MiB/s")),
            format!("{ratio:.2}"),
            target(ratio >= BANDWIDTH, &format!("at least {BANDWIDTH}")),
        ])
    }

    /// A WRITE of 8 bytes, beside a UDP echo. The echo of two datagrams is not a target, but its distance from the bare
    /// echo cannot be avoided.
    fn latency(&self, beside: Echo) -> Result<[String; 4], String> {
        let options = ["-s", "8", "-n", "2000"];
        let (ours, udp) = self.in_turn(
            || self.perftest("ib_write_lat", Measure::Latency, &options),
            || echo(self.installation, self.wire, beside),
        )?;
        let ratio = ours.median() / udp.median();
        let alone = beside.sizes[1] == 0;
        Ok([
            ours.describe(2, "us"),
            format!("{}, {}", beside.name, udp.describe(2, "us")),
            format!("{ratio:.2}"),
            match alone {
                true => target(ratio <= LATENCY, &format!("at most {LATENCY}")),
                false => String::new(),
            },
        ])
    }

    /// The ICRC's share of the CPU time of both ends while they WRITE.
    fn icrc(&self) -> Result<[String; 4], String> {
        let not_measured =
            |why: String| ["not measured".to_owned(), why, String::new(), String::new()];
        if let Some(why) = profile::forbidden()? {
            return Ok(not_measured(why));
        }
        profile::record(self.installation, self.wire)?;
        // If `perf` fails here, that says nothing about our library.
        let [near, far] = match profile::icrc_shares(self.installation) {
            Ok(shares) => shares,
            Err(why) => {
                let first = why.lines().next().unwrap_or_default();
                return Ok(not_measured(format!("perf report: {first}")));
            }
        };
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        Ok([
            format!("sender {}, receiver {}", percent(near), percent(far)),
            "the CPU time of the packet path".to_owned(),
            format!("{:.2}", near.max(far)),
            target(near.max(far) <= ICRC, &format!("at most {ICRC}")),
        ])
    }

    fn perftest(&self, tool: &str, measure: Measure, options: &[&str]) -> Result<f64, String> {
        let place = Place::Across(self.wire);
        let mtu = self.wire.pair.path_mtu().to_string();
        let arguments = [&["-m", &mtu], options].concat();
        Ok(measure_once(self.installation, place, tool, measure, &arguments, LIMIT)?.value)
    }

    /// Measures two things in turn, so that other load affects both.
    fn in_turn(
        &self,
        ours: impl Fn() -> Result<f64, String>,
        other: impl Fn() -> Result<f64, String>,
    ) -> Result<(Values, Values), String> {
        let (mut our_values, mut other_values) = (Vec::new(), Vec::new());
        for _ in 0..self.runs {
            other_values.push(other()?);
            our_values.push(ours()?);
        }
        Ok((Values::new(our_values), Values::new(other_values)))
    }
}

/// The results of repeated measurements.
pub(crate) struct Values(Vec<f64>);

impl Values {
    pub(crate) fn new(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    pub(crate) fn median(&self) -> f64 {
        self.0[self.0.len() / 2]
    }

    pub(crate) fn describe(&self, digits: usize, unit: &str) -> String {
        let (least, most) = (self.0[0], self.0[self.0.len() - 1]);
        let median = self.median();
        format!("{median:.digits$} {unit} ({least:.digits$} to {most:.digits$})")
    }
}

/// Whether a target is met, and what it is.
pub(crate) fn target(is_met: bool, what: &str) -> String {
    format!("{}: {what}", if is_met { "met" } else { "MISSED" })
}

//! `programs rxe-speed`: what perftest measures between Transom and rxe, each asking the other, beside two rxe.
//!
//! Virtual machines without the processor's help are slow, so only ratios mean something. All three pairs take turns.

use std::time::Duration;

use transom_conformance::programs::{Running, installed};

use super::guest::{Guest, Side};
use super::ping_pong::gid_index;
use crate::installation::{DEVICE, Installation};
use crate::meeting::end_well;
use crate::perftest::{Measure, best_figure};
use crate::table::{Form, Report, Row, Style, Verdict};
use crate::wire_speed::{Values, target};

static FORM: Form = Form {
    script: "rxe-speed",
    title: "the tools of perftest over RC between Transom and the rxe of Debian 12's kernel in a virtual \
            machine, beside two virtual machines with rxe: medians, with the least and the most in parentheses",
    subject: &[("tool", 22), ("asks", 9), ("asked", 9)],
    figures: &[("measured", 36), ("rxe with rxe", 36), ("ratio", 6), ("target", 22)],
};

/// How long one of them may take, without hardware virtualisation.
const LIMIT: Duration = Duration::from_secs(120);
/// A little more than `LIMIT`, so that it ends by itself and prints its output.
const KILLED: Duration = Duration::from_secs(130);
/// The port that the serving end listens on.
const PORT: u16 = 18_517;
/// Runs of each pair.
const RUNS: usize = 3;
/// The target: at least this multiple of the bandwidth of two rxe.
const BANDWIDTH: f64 = 2.0;
/// The target: at most this multiple of their latency.
const LATENCY: f64 = 0.5;

/// Each tool with its options.
const TOOLS: [(&str, Measure, &str); 4] = [
    ("ib_write_lat", Measure::Latency, "-s 8 -n 1000"),
    ("ib_send_lat", Measure::Latency, "-s 8 -n 1000"),
    ("ib_write_bw", Measure::Bandwidth, "-s 65536 -n 500"),
    ("ib_write_bw", Measure::Bandwidth, "-s 1048576 -n 40"),
];

/// Who asks whom.
const PAIRS: [[Side; 2]; 3] =
    [[Side::SecondGuest, Side::Guest], [Side::Host, Side::Guest], [Side::Guest, Side::Host]];

/// Measures. It reports a missed target, but that is not a failure, because other programs may be the cause.
pub(crate) fn run(installation: &Installation, style: Style) -> Result<Report, String> {
    let guest = Guest::boot_two(1500)?;
    let mut report = Report::begin(&FORM, style);
    for (tool, measure, options) in TOOLS {
        let mut values = PAIRS.map(|_| Vec::new());
        for _ in 0..RUNS {
            for ([client, server], values) in PAIRS.into_iter().zip(&mut values) {
                let ends = Ends { installation, guest: &guest, client, server };
                values.push(ends.measure(tool, measure, options)?);
            }
        }
        let [beside, ours @ ..] = values.map(Values::new);
        for ([client, server], ours) in PAIRS.into_iter().skip(1).zip(ours) {
            let ratio = ours.median() / beside.median();
            let (is_met, wanted, digits, unit) = match measure {
                Measure::Bandwidth => {
                    (ratio >= BANDWIDTH, format!("at least {BANDWIDTH}"), 1, "MiB/s")
                }
                Measure::Latency => (ratio <= LATENCY, format!("at most {LATENCY}"), 0, "us"),
            };
            report.add(Row {
                subject: vec![
                    format!("{tool} {}", options.split(" -n").next().unwrap_or_default()),
                    client.to_string(),
                    server.to_string(),
                ],
                figures: vec![
                    ours.describe(digits, unit),
                    beside.describe(digits, unit),
                    format!("{ratio:.2}"),
                    target(is_met, &wanted),
                ],
                verdict: Verdict::Ok,
            });
        }
    }
    Ok(report)
}

/// Two ends, of which one asks the other.
struct Ends<'a> {
    installation: &'a Installation,
    guest: &'a Guest,
    client: Side,
    server: Side,
}

impl Ends<'_> {
    /// MiB/s on average, or typical microseconds.
    fn measure(&self, tool: &str, measure: Measure, options: &str) -> Result<f64, String> {
        let line = |side: Side, to: &str| -> Result<String, String> {
            let (program, device) = match side {
                Side::Host => {
                    let (folder, path) =
                        (self.installation.folder().display(), installed(tool, "perftest")?);
                    (format!("env LD_LIBRARY_PATH={folder} {}", path.display()), DEVICE)
                }
                Side::Guest | Side::SecondGuest => (tool.to_owned(), "rxe0"),
            };
            let gid = gid_index(self.installation, self.guest, side.address(false), side)?;
            Ok(format!("{program} -F -d {device} -x {gid} -m 1024 -p {PORT} {options} {to}"))
        };
        let address = self.server.address(false).to_string();
        let (serve, ask) = (line(self.server, "")?, line(self.client, &address)?);
        let serving = Running::start(&mut self.guest.command(self.server, &serve, LIMIT));
        self.guest.wait_until_listening(self.server, PORT)?;
        let asking = Running::start(&mut self.guest.command(self.client, &ask, LIMIT));
        let printed = end_well(vec![asking, serving], KILLED)?;
        Ok(best_figure(measure, &printed[0].output)?.value)
    }
}

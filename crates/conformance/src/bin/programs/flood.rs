//! `programs flood`: honest programs across a wire, while a stranger sends the device packets that it must drop, as
//! fast as it can.

mod stranger;

use std::time::{Duration, Instant};

use transom_conformance::programs::Running;
use transom_conformance::spaces::{Family, Side};

use crate::extent::Extent;
use crate::installation::Installation;
use crate::perftest::{Measure, measure_once};
use crate::place::{Place, Wire, across_pairs};
use crate::table::{Form, Report, Row, Style, Verdict};
use stranger::{Aim, Stranger};

static FORM: Form = Form {
    script: "flood",
    title: "honest programs while a stranger sends packets that must be dropped: one run of \
            each, with --long the median of five",
    subject: &[("wire", 12), ("honest program", 22)],
    figures: &[
        ("undisturbed", 12),
        ("flood of another port", 21),
        ("flood of the device", 19),
        ("packets", 18),
    ],
};

const LIMIT: Duration = Duration::from_secs(120);
/// The port that the servers of `exchange` listen on.
const PORT: u16 = 18800;

/// Measures.
pub(crate) fn run(
    installation: &Installation,
    style: Style,
    extent: Extent,
) -> Result<Option<Report>, String> {
    let mtus = if extent.is_long() { &[1500, 9000][..] } else { &[1500] };
    let runs = if extent.is_long() { 5 } else { 1 };
    // The last of them checks every byte, so it shows most.
    let (families, programs, rounds) = match extent {
        Extent::Quick => (&[Family::V4][..], &HONEST[2..], 20),
        _ => (&Family::ALL[..], &HONEST[..], 300),
    };
    across_pairs(&FORM, style, mtus, |pair, report| {
        let stranger = Stranger::new(pair)?;
        for family in families {
            let wire = Wire::new(installation, pair, *family)?;
            let flood = Flood { installation, wire: &wire, stranger: &stranger, runs, rounds };
            for (program, unit, honest) in programs {
                let came = flood.compare(unit, *honest);
                report.add(Row {
                    subject: vec![format!("{family}, {}", pair.mtu()), (*program).to_owned()],
                    figures: came.as_ref().map_or_else(|_| vec![String::new(); 4], |c| c.to_vec()),
                    verdict: Verdict::of(came.err()),
                });
            }
        }
        Ok(())
    })
}

/// Runs an honest program while packets are aimed at the far end's device. Returns its figure, and how many packets
/// were sent each second.
type Honest = fn(&Flood, Option<Aim>) -> Result<(f64, f64), String>;

const HONEST: [(&str, &str, Honest); 3] = [
    ("ib_write_bw -s 65536", "MiB/s", |flood, aim| {
        flood.perftest("ib_write_bw", Measure::Bandwidth, &["-s", "65536", "-n", "20000"], aim)
    }),
    ("ib_write_lat -s 8", "us", |flood, aim| {
        flood.perftest("ib_write_lat", Measure::Latency, &["-s", "8", "-n", "2000"], aim)
    }),
    ("exchange", "rounds/s", |flood, aim| flood.exchange(aim)),
];

struct Flood<'a> {
    installation: &'a Installation,
    wire: &'a Wire<'a>,
    stranger: &'a Stranger,
    /// How often each is measured.
    runs: usize,
    /// The rounds of `exchange` for each.
    rounds: u32,
}

impl Flood<'_> {
    /// Runs the honest program undisturbed, then while packets go to an unused port, and then while they go to the
    /// device. The second shows how much the stranger's use of the processors costs.
    fn compare(&self, unit: &str, honest: Honest) -> Result<[String; 4], String> {
        let mut values = [const { Vec::new() }; 3];
        let mut rates = Vec::new();
        for _ in 0..self.runs {
            for (values, aim) in
                values.iter_mut().zip([None, Some(Aim::Elsewhere), Some(Aim::Device)])
            {
                let (value, rate) = honest(self, aim)?;
                values.push(value);
                rates.push(rate);
            }
        }
        let [alone, elsewhere, device] = values.map(median);
        let share = |value: f64| format!("{value:.0} {unit} ({:.2})", value / alone);
        let most = rates.into_iter().fold(0.0, f64::max);
        Ok([
            format!("{alone:.0} {unit}"),
            share(elsewhere),
            share(device),
            format!("up to {most:.0}/s"),
        ])
    }

    fn perftest(
        &self,
        tool: &str,
        measure: Measure,
        options: &[&str],
        aim: Option<Aim>,
    ) -> Result<(f64, f64), String> {
        // The tool prints the number of its queue pair only at its end.
        let forger = aim.map(|aim| self.stranger.start(self, aim, 0x01_0011)).transpose()?;
        let place = Place::Across(self.wire);
        let mtu = self.wire.pair.path_mtu().to_string();
        let options = [&["-m", &mtu], options].concat();
        let figure = measure_once(self.installation, place, tool, measure, &options, LIMIT)?;
        Ok((figure.value, forger.map_or(Ok(0.0), stranger::Forger::end)?))
    }

    /// Our own program, which checks every byte. The stranger knows its queue pair.
    fn exchange(&self, aim: Option<Aim>) -> Result<(f64, f64), String> {
        let command = |side| {
            let mut command = self.installation.own("exchange")?;
            let gid = self.wire.gid(side).to_string();
            // Two seconds of retries: the flood takes processors and room for packets from the honest program.
            command.args(["-p", &PORT.to_string(), "-g", &gid, "-t", "16"]);
            self.wire.pair.space(side).enter(&mut command);
            Ok::<_, String>(command)
        };
        let mut server = Running::start(&mut command(Side::Far)?);
        server.wait_until_it_listens(PORT)?;
        let address = self.wire.pair.address(Side::Far, self.wire.family).to_string();
        let start = Instant::now();
        let mut client = command(Side::Near)?;
        client.args(["--rounds", &self.rounds.to_string(), &address]);
        let client = Running::start(&mut client);
        let named = server.line(LIMIT)?;
        let number = named.strip_prefix("queue pair 0x").unwrap_or_default();
        let qp = u32::from_str_radix(number, 16).map_err(|_| format!("no queue pair: {named}"))?;
        let forger = aim.map(|aim| self.stranger.start(self, aim, qp)).transpose()?;
        client.success(LIMIT)?;
        let took = start.elapsed().as_secs_f64();
        server.success(LIMIT)?;
        let rate = forger.map_or(Ok(0.0), stranger::Forger::end)?;
        Ok((f64::from(self.rounds) / took, rate))
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

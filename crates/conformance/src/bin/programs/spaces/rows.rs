//! The programs that run over one wire.

use super::exchange::Exchange;
use crate::extent::Extent;
use crate::installation::Installation;
use crate::perftest;
use crate::ping_pong::{PACKAGE, PingPong};
use crate::place::{Place, Wire};
use crate::pyverbs;
use crate::table::{Report, Row, Verdict};

/// The faults of a bad network.
const FAULTS: &str = "loss=1%,reorder=5%,seed=7";

/// The rounds of each pair in a quick look.
const QUICK_ROUNDS: u32 = 10;

/// The rows of one wire.
pub(super) struct Rows<'a> {
    pub(super) installation: &'a Installation,
    pub(super) wire: &'a Wire<'a>,
    /// The name of the wire in the rows.
    pub(super) name: String,
    pub(super) extent: Extent,
    /// The number of messages of each size in ping-pongs.
    pub(super) messages: u64,
    pub(super) report: &'a mut Report,
}

impl Rows<'_> {
    /// Adds all of them.
    pub(super) fn add(mut self) {
        if self.extent == Extent::Quick {
            return self.add_some();
        }
        let Self { installation, wire, extent, .. } = self;
        let long = extent.is_long();
        let rounds = if long { 1000 } else { 100 };
        let mtu = format!("-m {}", wire.pair.path_mtu());
        for tool in ["ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_srq_pingpong"] {
            self.ping_pong(tool, &mtu);
            self.ping_pong(tool, &format!("-e {mtu}"));
        }
        self.ping_pong("ibv_ud_pingpong", "");
        self.ping_pong("ibv_ud_pingpong", "-e");
        // perftest's default group does not leave the host.
        let crosses = |run: &perftest::Run| !run.options.contains("-g");
        let matrix = perftest::matrix(Extent::Usual);
        self.perftest(&matrix, |run| crosses(run) && (long || is_plain(run)));
        self.perftest(&perftest::to_group(wire.family.group()), |_| true);
        let undisturbed = Exchange { installation, wire, rounds };
        self.row("exchange", "", undisturbed.pairs(1));
        self.row("exchange", "4 + 4 processes", undisturbed.pairs(4));
        let options = "4 + 4 processes, one killed, one stopped";
        self.row("exchange", options, undisturbed.four_with_two_lost());
        let passed = pyverbs::run_at(self.installation, self.wire);
        self.row("rdma-core's tests", "--gid", passed);
        // The same on a bad network, for services that resend lost packets. UC and UD do not.
        let disturbed = self.wire.disturbed(FAULTS);
        self.name = format!("{}, {FAULTS}", self.name);
        // Each run of these loses hundreds of packets.
        let mut rows = Rows { wire: &disturbed, messages: 50, extent: Extent::Usual, ..self };
        for tool in ["ibv_rc_pingpong", "ibv_srq_pingpong"] {
            rows.ping_pong(tool, &mtu);
            rows.ping_pong(tool, &format!("-e {mtu}"));
        }
        rows.perftest(&matrix, |run| bears_loss(run) && (long || is_plain(run)));
        let exchange = Exchange { installation, wire: &disturbed, rounds };
        rows.row("exchange", "", exchange.pairs(1));
        rows.row("exchange", "4 + 4 processes", exchange.pairs(4));
        let passed = pyverbs::run_at(installation, &disturbed);
        rows.row("rdma-core's tests", "--gid, of those that bear loss", passed);
    }

    /// Adds the rows of a quick look: each kind of program, and a network that loses packets. It leaves out the process
    /// that is stopped. The peer of that process waits only as long as its retries last, and unoptimized programs may
    /// take longer to continue.
    fn add_some(mut self) {
        let Self { installation, wire, .. } = self;
        let mtu = format!("-m {}", wire.pair.path_mtu());
        self.ping_pong("ibv_rc_pingpong", &format!("-e {mtu}"));
        self.ping_pong("ibv_ud_pingpong", "");
        let matrix = perftest::matrix(Extent::Quick);
        self.perftest(&matrix, |run| run.service == "RC" && is_plain(run));
        self.perftest(&perftest::to_group(wire.family.group()), |_| true);
        let exchange = Exchange { installation, wire, rounds: QUICK_ROUNDS };
        self.row("exchange", "4 + 4 processes", exchange.pairs(4));
        let passed = pyverbs::run_at(installation, wire);
        self.row("rdma-core's tests", "--gid", passed);
        let disturbed = wire.disturbed(FAULTS);
        self.name = format!("{}, {FAULTS}", self.name);
        let exchange = Exchange { installation, wire: &disturbed, rounds: QUICK_ROUNDS };
        let mut rows = Rows { wire: &disturbed, ..self };
        rows.row("exchange", "4 + 4 processes", exchange.pairs(4));
        rows.perftest(&matrix, |run| run.tool == "ib_write_bw" && bears_loss(run) && is_plain(run));
    }

    fn row(&mut self, program: &str, options: &str, came: Result<String, String>) {
        self.report.add(Row {
            subject: vec![self.name.clone(), program.to_owned(), options.to_owned()],
            figures: vec![came.as_ref().cloned().unwrap_or_default()],
            verdict: Verdict::of(came.err()),
        });
    }

    fn ping_pong(&mut self, tool: &str, options: &str) {
        let place = Place::Across(self.wire);
        let command = |side, all: &str| {
            let mut command = place.command(self.installation, side, tool, PACKAGE)?;
            command.args(all.split_whitespace()).args(place.gid("-g", side));
            Ok(command)
        };
        let (datagram, long) = (self.wire.pair.path_mtu().into(), self.extent.is_long());
        let run = PingPong { tool, options, datagram, messages: self.messages, long };
        let came = run.run(&place.address(), command);
        self.row(tool, options, came.map(|()| String::new()));
    }

    /// Adds rows for these runs of perftest.
    fn perftest(&mut self, runs: &[perftest::Run], chosen: impl Fn(&perftest::Run) -> bool) {
        for run in runs.iter().filter(|run| chosen(run)) {
            let measured = run.measure(self.installation, Place::Across(self.wire));
            let options = format!("-c {} {}", run.service, run.options);
            self.row(run.tool, options.trim_end(), measured.map(|figure| figure.describe()));
        }
    }
}

/// Whether lost packets of a run are resent.
fn bears_loss(run: &perftest::Run) -> bool {
    // With events this tool takes any completion for the one it waits for. If an acknowledgement is lost, it takes the
    // answer for it.
    let takes_any = (run.tool, run.options.as_str()) == ("ib_send_lat", "-e");
    ["RC", "XRC"].contains(&run.service) && !takes_any
}

/// Whether a tool runs with its defaults.
fn is_plain(run: &perftest::Run) -> bool {
    ["", "-A FETCH_AND_ADD"].contains(&run.options.as_str())
}

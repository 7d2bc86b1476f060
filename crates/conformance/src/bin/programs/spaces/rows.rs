//! What runs over one wire.

use super::exchange::Exchange;
use crate::installation::Installation;
use crate::perftest;
use crate::ping_pong::{PACKAGE, PingPong};
use crate::place::{Place, Wire};
use crate::pyverbs;
use crate::table::{Report, Row};

/// What a bad network does to each packet.
const FAULTS: &str = "loss=1%,reorder=5%,seed=7";

/// The rows of one wire.
pub(super) struct Rows<'a> {
    pub(super) installation: &'a Installation,
    pub(super) wire: &'a Wire<'a>,
    /// What the rows call the wire.
    pub(super) name: String,
    pub(super) long: bool,
    pub(super) report: &'a mut Report,
}

impl Rows<'_> {
    /// Adds all of them.
    pub(super) fn add(mut self) {
        let mtu = self.wire.pair.path_mtu();
        for tool in ["ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_srq_pingpong"] {
            self.ping_pong(tool, &format!("-m {mtu}"));
            self.ping_pong(tool, &format!("-e -m {mtu}"));
        }
        self.ping_pong("ibv_ud_pingpong", "");
        self.ping_pong("ibv_ud_pingpong", "-e");
        self.perftest();
        self.exchanges();
        if self.long {
            let passed = pyverbs::run_at(self.installation, self.wire);
            self.row("rdma-core's tests", "--gid", passed);
        }
    }

    fn row(&mut self, program: &str, options: &str, came: Result<String, String>) {
        self.report.add(Row {
            subject: vec![self.name.clone(), program.to_owned(), options.to_owned()],
            figures: vec![came.as_ref().cloned().unwrap_or_default()],
            problem: came.err(),
        });
    }

    fn ping_pong(&mut self, tool: &str, options: &str) {
        let place = Place::Across(self.wire);
        let command = |side, all: &str| {
            let mut command = place.command(self.installation, side, tool, PACKAGE)?;
            command.args(all.split_whitespace()).args(place.gid("-g", side));
            Ok(command)
        };
        let run =
            PingPong { tool, options, datagram: self.wire.pair.path_mtu().into(), long: self.long };
        let came = run.run(&place.address(), command);
        self.row(tool, options, came.map(|()| String::new()));
    }

    /// The matrix of perftest, or one run of each tool and service.
    fn perftest(&mut self) {
        let plain = |run: &perftest::Run| ["", "-A FETCH_AND_ADD"].contains(&run.options.as_str());
        // UC has no flow control: what finds the receiver's socket full is lost, and this tool waits
        // for it without end.
        let waits = |run: &perftest::Run| (run.tool, run.service) == ("ib_send_bw", "UC");
        let long = self.long;
        let runs = perftest::matrix(long);
        for run in runs.iter().filter(|run| !waits(run) && (long || plain(run))) {
            let measured = run.measure(self.installation, Place::Across(self.wire));
            let options = format!("-c {} {}", run.service, run.options);
            self.row(run.tool, options.trim_end(), measured.map(|figure| figure.describe()));
        }
    }

    /// Processes that check every byte, alone and together, undisturbed and disturbed.
    fn exchanges(&mut self) {
        let rounds = if self.long { 1000 } else { 100 };
        let undisturbed =
            Exchange { installation: self.installation, wire: self.wire, rounds, faults: None };
        let disturbed = Exchange { faults: Some(FAULTS), ..undisturbed };
        self.row("exchange", "", undisturbed.pairs(1));
        self.row("exchange", "4 + 4 processes", undisturbed.pairs(4));
        let options = "4 + 4 processes, one killed, one stopped";
        self.row("exchange", options, undisturbed.four_with_two_lost());
        self.row("exchange", FAULTS, disturbed.pairs(1));
        let options = format!("4 + 4 processes, {FAULTS}");
        self.row("exchange", &options, disturbed.pairs(4));
    }
}

//! `programs apart`: other RDMA programs that people run, each with its ends in two network namespaces. They come from
//! Debian's packages, are built from Debian's sources, or use Debian's libraries.

mod ceph;
mod fabtests;
mod remote_memory;
pub(crate) mod sources;
mod valkey;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use transom_conformance::spaces::{Family, Side};

use crate::installation::Installation;
use crate::place::{Wire, across_pairs};
use crate::table::{Form, Report, Row, Style, Verdict};
use sources::Sources;

static FORM: Form = Form {
    script: "apart",
    title: "programs with their ends in two network namespaces: Debian's packages, programs \
            built from its sources, and programs over its libraries",
    subject: &[("program", 30), ("options", 44)],
    figures: &[("remark", 60)],
};

/// How long a program may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Programs that people ask for and that no package has, with the reason.
const NOT_TO_BE_HAD: [(&str, &str); 6] = [
    ("eRPC", NOWHERE),
    ("rdma-example (Trivedi)", NOWHERE),
    ("the-geek-in-the-corner", NOWHERE),
    ("RDMA-Tutorial (jcxue)", NOWHERE),
    ("the examples of rpma", "Debian's package has the library without them"),
    ("PyTorch's TensorPipe", "PyPI has it with CUDA alone, five gigabytes"),
];

const NOWHERE: &str = "neither Debian nor PyPI has it";

/// Runs all of them.
pub(crate) fn run(installation: &Installation, style: Style) -> Result<Option<Report>, String> {
    let sources = Sources::new(installation.lasting("sources"));
    across_pairs(&FORM, style, &[1500], |pair, report| {
        let wire = Wire::new(installation, pair, Family::V4)?;
        let across = Across { installation, wire: &wire };
        fabtests::add(&across, &sources, report);
        valkey::add(&across, &sources, report);
        remote_memory::add(&across, report);
        ceph::add(&across, report);
        for (program, why) in NOT_TO_BE_HAD {
            report.add(row(program, "", Verdict::LeftOut, why));
        }
        Ok(())
    })
}

fn row(program: &str, options: &str, verdict: Verdict, remark: &str) -> Row {
    Row {
        subject: vec![program.to_owned(), options.to_owned()],
        figures: vec![remark.to_owned()],
        verdict,
    }
}

/// The two ends of a program, with our libraries.
struct Across<'a> {
    installation: &'a Installation,
    wire: &'a Wire<'a>,
}

impl Across<'_> {
    /// The address of one end.
    fn address(&self, side: Side) -> String {
        self.wire.pair.address(side, Family::V4).to_string()
    }

    /// A program at one end, which finds our libraries.
    fn command(&self, side: Side, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.installation.folder());
        command.current_dir(self.installation.folder());
        self.wire.pair.space(side).enter(&mut command);
        command
    }
}

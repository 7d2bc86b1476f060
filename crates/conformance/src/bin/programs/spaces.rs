//! `programs spaces`: two network namespaces joined by a veth pair, and programs at both ends of it.

mod exchange;
mod rows;

use transom_conformance::spaces::{Family, Pair, may_make_spaces};

use crate::installation::Installation;
use crate::place::Wire;
use crate::table::{Form, Report, Row, Style};
use rows::Rows;

static FORM: Form = Form {
    script: "spaces",
    title: "programs in two network namespaces, over the wire between them",
    subject: &[("wire", 15), ("program", 17), ("options", 50)],
    figures: &[("came of it", 40)],
};

/// Bytes that an Ethernet frame carries: usual and jumbo.
const MTUS: [u32; 2] = [1500, 9000];

/// Runs everything over each wire. Nothing, with a word why, where no namespaces can be made.
pub(crate) fn run(
    installation: &Installation,
    style: Style,
    long: bool,
) -> Result<Option<Report>, String> {
    if let Err(why) = may_make_spaces() {
        eprintln!("spaces: skipped: {why}");
        return Ok(None);
    }
    let mut report = Report::begin(&FORM, style);
    for mtu in MTUS {
        let pair = Pair::new(mtu)?;
        for family in Family::ALL {
            let name = format!("{family}, MTU {mtu}");
            match Wire::new(installation, &pair, family) {
                Ok(wire) => {
                    Rows { installation, wire: &wire, name, long, report: &mut report }.add();
                }
                Err(problem) => report.add(Row {
                    subject: vec![name, "ibv_devinfo".into(), "-v".into()],
                    figures: vec![String::new()],
                    problem: Some(problem),
                }),
            }
        }
    }
    Ok(Some(report))
}

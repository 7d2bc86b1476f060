//! `programs spaces`: two network namespaces joined by a veth pair, with programs at both ends.

mod exchange;
mod rows;

use transom_conformance::spaces::Family;

use crate::extent::Extent;
use crate::installation::Installation;
use crate::place::{Wire, across_pairs};
use crate::table::{Form, Report, Style};
use rows::Rows;

static FORM: Form = Form {
    script: "spaces",
    title: "programs in two network namespaces, over the wire between them",
    subject: &[("wire", 38), ("program", 17), ("options", 50)],
    figures: &[("came of it", 40)],
};

/// MTUs of Ethernet in bytes: usual and jumbo.
const MTUS: [u32; 2] = [1500, 9000];

/// Runs everything over each wire.
pub(crate) fn run(
    installation: &Installation,
    style: Style,
    extent: Extent,
) -> Result<Option<Report>, String> {
    across_pairs(&FORM, style, &MTUS, |pair, report| {
        // Each MTU once, for a quick look.
        let families = match (extent, pair.mtu()) {
            (Extent::Quick, 1500) => &[Family::V4][..],
            (Extent::Quick, _) => &[Family::V6],
            _ => &Family::ALL,
        };
        for family in families {
            let wire = Wire::new(installation, pair, *family)?;
            let name = format!("{family}, MTU {}", pair.mtu());
            let messages = if extent.is_long() { 1000 } else { 200 };
            Rows { installation, wire: &wire, name, extent, messages, report }.add();
        }
        Ok(())
    })
}

//! `programs rxe`: our device over its wire link against the kernel's rxe in a virtual machine, and the Rust API on rxe
//! alone.

mod connections;
mod examples;
mod guest;
mod interop;
mod ping_pong;
mod speed;

use std::net::IpAddr;

use crate::installation::Installation;
use crate::table::{Form, Report, Row, Style, Verdict};
pub(crate) use connections::run as run_connections;
use guest::{Guest, Side};
pub(crate) use speed::run as run_speed;

static WIRE: Form = Form {
    script: "rxe",
    title: "Transom with the rxe of Debian 12's kernel in a virtual machine. A row is ok if it \
            ends as the rules say or, if rxe is the target, as section I.1 of rules.md lists \
            for it (window bounds: RXE-01)",
    subject: &[("operation", 42), ("requester", 9)],
    figures: &[
        ("IPv4, MTU 1024", 14),
        ("IPv6, MTU 1024", 14),
        ("IPv4, MTU 4096", 14),
        ("IPv6, MTU 4096", 14),
        ("IPv4, 1 % lost, 5 % reordered", 29),
    ],
};

static API: Form = Form {
    script: "rxe-api",
    title: "the tests and examples of the Rust API on the kernel's rxe, by the system's libibverbs",
    subject: &[("file", 16), ("test", 64)],
    figures: &[("remark", 0)],
};

/// The setting of one column in the table.
#[derive(Clone, Copy, Debug)]
struct Setting {
    /// The MTU of the segment.
    mtu: u32,
    ipv6: bool,
    lossy: bool,
}

const SETTINGS: [Setting; 5] = [
    Setting { mtu: 1500, ipv6: false, lossy: false },
    Setting { mtu: 1500, ipv6: true, lossy: false },
    Setting { mtu: 4500, ipv6: false, lossy: false },
    Setting { mtu: 4500, ipv6: true, lossy: false },
    Setting { mtu: 1500, ipv6: false, lossy: true },
];

impl Setting {
    /// The address of a side.
    fn address(&self, side: Side) -> IpAddr {
        side.address(self.ipv6)
    }
}

/// The result of an operation in one setting. `None` if the operation is not for this setting.
#[derive(Debug)]
struct Outcome {
    operation: String,
    requester: Side,
    problem: Option<String>,
}

/// Runs all operations.
pub(crate) fn run(installation: &Installation, style: Style) -> Result<Vec<Report>, String> {
    let mut columns = Vec::new();
    let mut guest: Option<Guest> = None;
    let mut api = None;
    for setting in SETTINGS {
        if guest.as_ref().is_none_or(|guest| guest.mtu() != setting.mtu) {
            // Stop the old guest first: only one can run at a time.
            drop(guest.take());
            guest = Some(Guest::boot(setting.mtu)?);
        }
        let guest = guest.as_ref().expect("booted just now");
        guest.lose(setting.lossy)?;
        let mut outcomes = Vec::new();
        for requester in [Side::Host, Side::Guest] {
            eprintln!("{requester} asks, {setting:?}");
            outcomes.extend(interop::run(installation, guest, setting, requester)?);
            if !setting.lossy {
                outcomes.extend(ping_pong::run(installation, guest, setting, requester)?);
            }
        }
        guest.lose(false)?;
        columns.push(outcomes);
        if api.is_none() {
            let mut report = Report::begin(&API, style);
            examples::run(installation, guest, &mut report)?;
            api = Some(report);
        }
    }
    let mut report = Report::begin(&WIRE, style);
    // The first setting has every operation.
    for Outcome { operation, requester, .. } in &columns[0] {
        report.add(row(operation, *requester, &columns, &SETTINGS));
    }
    Ok([Some(report), api].into_iter().flatten().collect())
}

/// The row of an operation, from its results in all settings.
fn row(operation: &str, requester: Side, columns: &[Vec<Outcome>], settings: &[Setting]) -> Row {
    let mut problems = Vec::new();
    let figures = columns.iter().zip(settings).map(|(outcomes, setting)| {
        let of = |o: &&Outcome| o.operation == operation && o.requester == requester;
        match outcomes.iter().find(of) {
            None => "",
            Some(Outcome { problem: None, .. }) => "ok",
            Some(Outcome { problem: Some(problem), .. }) => {
                problems.push(format!("{setting:?}: {problem}"));
                "FAILED"
            }
        }
    });
    let figures = figures.map(str::to_owned).collect();
    let problem = (!problems.is_empty()).then(|| problems.join("\n"));
    Row {
        subject: vec![operation.to_owned(), requester.to_string()],
        figures,
        verdict: Verdict::of(problem),
    }
}

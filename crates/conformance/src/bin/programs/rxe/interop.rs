//! Our program `interop` at both ends.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use transom_conformance::programs::Running;

use super::guest::{Guest, Side};
use super::{Outcome, Setting};
use crate::installation::Installation;

/// The limit for all operations with their retries, without hardware virtualisation.
const LIMIT: Duration = Duration::from_secs(400);
/// The port that the serving end listens on.
const PORT: u16 = 18_515;

/// Runs all operations, requested by one side.
pub(super) fn run(
    installation: &Installation,
    guest: &Guest,
    setting: Setting,
    requester: Side,
) -> Result<Vec<Outcome>, String> {
    let program = PathBuf::from(installation.own("interop")?.get_program());
    guest.give(&program, "interop")?;
    let line = |side: Side, role: &str| match side {
        Side::Host => format!("{} {role}", program.display()),
        Side::Guest | Side::SecondGuest => format!("/share/interop --system {role}"),
    };
    let server = requester.other();
    let (here, there) = (setting.address(requester), setting.address(server));
    let serve = line(server, &format!("serve {there}"));
    let lossy = if setting.lossy { "--lossy" } else { "" };
    let drive = line(requester, &format!("drive {lossy} {here} {there}"));
    let serving = Running::start(&mut guest.command(server, &serve, LIMIT));
    guest.wait_until_listening(server, PORT)?;
    let driving = Running::start(&mut guest.command(requester, &drive, LIMIT));
    let printed = driving.success(LIMIT)?;
    serving.success(LIMIT)?;
    printed.output.lines().map(|line| outcome(line, requester)).collect()
}

fn outcome(line: &str, requester: Side) -> Result<Outcome, String> {
    let strange = || format!("interop prints {line}");
    let value: Value = serde_json::from_str(line).map_err(|_| strange())?;
    let operation = value["operation"].as_str().ok_or_else(strange)?.to_owned();
    let problem = value["problem"].as_str().map(str::to_owned);
    Ok(Outcome { operation, requester, problem })
}

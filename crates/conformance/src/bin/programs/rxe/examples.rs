//! The tests and examples of the crate `transom`, in the guest.

use std::time::Duration;

use transom_conformance::programs::{Printed, Running};

use super::guest::{Guest, Side};
use crate::installation::Installation;
use crate::table::{Report, Row, Verdict};

/// The limit for one test, without hardware virtualisation.
const LIMIT: Duration = Duration::from_secs(60);

/// An example that needs something rxe lacks fails with this text (rule RXE-26).
const EXPECTED: [(&str, &str); 1] = [("await", "NotRevoked")];

/// The example in the README uses only our device, so it shows nothing about rxe.
const OURS_ALONE: &str = "revoke";

/// Runs them one by one.
pub(super) fn run(
    installation: &Installation,
    guest: &Guest,
    report: &mut Report,
) -> Result<(), String> {
    for (program, path) in installation.targets("transom", "test")? {
        guest.give(&path, &program)?;
        let listed = Running::start(std::process::Command::new(&path).arg("--list"));
        for line in listed.success(LIMIT)?.output.lines() {
            let Some(path) = line.strip_suffix(": test") else { continue };
            let (file, test) = path.split_once("::").unwrap_or((&program, path));
            let address = Side::Guest.address(false);
            let line = format!(
                "env TRANSOM_TEST_PROVIDER=libibverbs.so.1 TRANSOM_TEST_ADDRESS={address} \
                 /share/{program} --exact {path} --nocapture"
            );
            let ended = in_guest(guest, &line);
            let remark = ended.as_ref().map_or_else(|_| String::new(), |p| remarks(&p.output));
            report.add(Row {
                subject: vec![file.to_owned(), test.to_owned()],
                figures: vec![remark],
                verdict: Verdict::of(ended.err()),
            });
        }
    }
    let examples = installation.targets("transom", "example")?;
    for (name, path) in examples.into_iter().filter(|(name, _)| name != OURS_ALONE) {
        guest.give(&path, &name)?;
        let ended = in_guest(guest, &format!("/share/{name} system"));
        let expected = EXPECTED.iter().find(|(example, _)| *example == name);
        let (remark, problem) = match (ended, expected) {
            (Ok(_), None) => (String::new(), None),
            (Err(problem), Some((_, end))) if problem.contains(end) => {
                (format!("ends with {end}"), None)
            }
            (Err(problem), _) => (String::new(), Some(problem)),
            (Ok(_), Some((_, end))) => (String::new(), Some(format!("it does not end with {end}"))),
        };
        let subject = vec!["example".to_owned(), name];
        report.add(Row { subject, figures: vec![remark], verdict: Verdict::of(problem) });
    }
    Ok(())
}

fn in_guest(guest: &Guest, line: &str) -> Result<Printed, String> {
    Running::start(&mut guest.command(Side::Guest, line, LIMIT)).success(2 * LIMIT)
}

/// The remarks of a test about skips and deviations.
fn remarks(output: &str) -> String {
    let said = |line: &&str| line.starts_with("skipped: ") || line.starts_with("departs: ");
    let mut remarks: Vec<&str> = output.lines().filter(said).collect();
    remarks.sort_unstable();
    remarks.dedup();
    remarks.join("; ")
}

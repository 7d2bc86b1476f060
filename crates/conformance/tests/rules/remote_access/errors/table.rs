//! `spec/errors.md`.

use std::fmt::Write;

use super::attempt::Outcome;
use super::case::{Case, WORD};

const HEAD: &str = "\
# Errors, as both ends see them

This table says how a work request with one mistake ends, and what becomes of the queue pairs. It is the same on
every link: within a process, between processes of a host by both ways of copying, and over the wire. A test
(`crates/conformance/tests/rules/remote_access/errors.rs`) makes each mistake on each link, and writes this page:

    TRANSOM_BLESS=1 cargo test -p transom-conformance --test rules remote_access::errors

How to read it:

* The origin posts the request. When it has completed, the origin posts a SEND without data. Both are signaled.
* The target has two receives posted, unless their absence is the mistake. If fewer than two complete, the others
  are still posted.
* A status is a name of `enum ibv_wc_status`. The reason is in parentheses: `vendor_err` has its number, and
  `transom explain` its text. A NAK has no room for a reason: if the target refused over the wire, `vendor_err` is 0
  at the origin.
* A dash means nothing: no completion, no event, or no queue pair any more.
* A message of one packet is at most as long as the path MTU.
";

type Row<'a> = (&'a Case, &'a Outcome);

/// The table of all of them; operations that end alike share a line.
pub(crate) fn render(rows: &[Row<'_>]) -> String {
    let mut text = HEAD.to_owned();
    for of_service in rows.chunk_by(|one, next| one.0.service == next.0.service) {
        let heading = of_service[0].0.service_name();
        let columns =
            "| what is wrong | with | origin | target's receives | events at the target | states |";
        write!(text, "\n## {heading}\n\n{columns}\n|---|---|---|---|---|---|\n").expect("a string");
        for of_fault in of_service.chunk_by(|one, next| one.0.fault == next.0.fault) {
            let mut told: Vec<&Outcome> = Vec::new();
            for (case, outcome) in of_fault {
                if told.contains(outcome) {
                    continue;
                }
                told.push(outcome);
                let (fault, operations) = (case.fault.name(), alike(of_fault, outcome));
                writeln!(text, "| {fault} | {operations} | {} |", outcome.cells())
                    .expect("a string");
            }
        }
    }
    text
}

/// The operations that end so.
fn alike(of_fault: &[Row<'_>], outcome: &Outcome) -> String {
    let mut names = Vec::new();
    for of_op in of_fault.chunk_by(|one, next| one.0.op == next.0.op) {
        let so: Vec<_> = of_op.iter().filter(|row| row.1 == outcome).map(|row| row.0).collect();
        let Some(first) = so.first() else { continue };
        let name = first.op.name();
        let several = so.iter().filter(|case| case.length > WORD).count();
        let all_several = of_op.iter().filter(|row| row.0.length > WORD).count();
        names.push(match (so.len() == of_op.len(), several) {
            (true, _) => name.to_owned(),
            (false, 0) => format!("{name} of one packet"),
            (false, several) if several == so.len() && several == all_several => {
                format!("{name} of several packets")
            }
            _ => so
                .iter()
                .map(|case| format!("{name} of {} bytes", case.length))
                .collect::<Vec<_>>()
                .join(", "),
        });
    }
    names.join(", ")
}

//! `spec/errors.md`.

use std::fmt::Write;

use super::attempt::Outcome;
use super::case::{Case, WORD};

const HEAD: &str = "\
# Errors, as both ends see them

What becomes of a work request with one thing wrong, and of the queue pairs. It is the same on every
link: within a process, between processes of a host by either way of copying, and over the wire. Nobody
writes this by hand; `crates/conformance/tests/rules/remote_access/errors.rs` brings each error about on each
link:

    TRANSOM_BLESS=1 cargo test -p transom-conformance --test rules remote_access::errors

The origin posts the request and, when it has completed, a SEND without data, both signaled; the target
has two receives posted, if that is not what is wrong. A status is that of `enum ibv_wc_status`; behind it
stands the reason that `vendor_err` gives and `transom explain` spells out. A NAK has no room for a
reason: over the wire `vendor_err` is 0 at the origin of what the target refused. A dash stands for
nothing: no completion, no event, no queue pair any more. Where not both receives complete the others
are still posted. A message of one packet is one of no more bytes than the path MTU.
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

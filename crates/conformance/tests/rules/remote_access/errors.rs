//! What both ends see of every error, the same on every link: `spec/errors.md` is the table of it.
//!
//! With `TRANSOM_BLESS=1` in the environment this writes the table, if the links agree.

use std::path::Path;
use std::{env, fs};

use transom_conformance::harness::Link;

mod attempt;
mod case;
mod table;

use attempt::{Ends, Outcome};
use case::{Case, cases};

const LINKS: [Link; 4] = [Link::Loopback, Link::Local, Link::Rings, Link::Wire];

/// Each error on each link: who completes with what status and for what reason, which events are
/// raised, and in which states the queue pairs end. No completion in error is without a sentence.
/// Rules: EX-01, RA-41, RA-42, RA-43, RA-45, RA-46, RA-47, RA-48, RA-50, RA-51, RA-52, RA-53, AE-01,
/// AE-02, AE-08, RN-03, RN-07, UD-03, UD-04, UD-05, UC-03, PS-06, WC-01, WC-02, WC-04, WC-05, WC-06,
/// WC-08, WC-09, WC-10, WC-11, WC-12, WC-13
#[test]
fn an_error_means_the_same_on_every_link() {
    let cases = cases();
    let outcomes = LINKS.map(|link| {
        let ends = Ends::new(link);
        cases.iter().map(|case| ends.outcome(case)).collect::<Vec<_>>()
    });
    let mut differences = Vec::new();
    for (link, others) in LINKS.iter().zip(&outcomes) {
        for ((case, one), other) in cases.iter().zip(&outcomes[0]).zip(others) {
            if one.on(*link) != *other {
                differences.push(format!("{case}\n  loopback: {one}\n  {link:?}: {other}"));
            }
        }
    }
    assert!(differences.is_empty(), "{}:\n{}", differences.len(), differences.join("\n"));
    let rows: Vec<(&Case, &Outcome)> = cases.iter().zip(&outcomes[0]).collect();
    compare(&table::render(&rows));
}

/// Compares the table with the one that is written down, or writes it.
fn compare(table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/errors.md");
    if env::var_os("TRANSOM_BLESS").is_some_and(|value| value == "1") {
        fs::write(&path, table).expect("a file of this project");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        table == written,
        "spec/errors.md is not what happens. To write it anew: \
         TRANSOM_BLESS=1 cargo test -p transom-conformance --test rules remote_access::errors\n{table}"
    );
}

//! A person who reads along is told once where to ask.

use std::process::Command;
use std::time::Duration;

use transom_conformance::c_programs::compile;
use transom_conformance::processes::Scratch;
use transom_conformance::programs::{Running, library};

const LIMIT: Duration = Duration::from_secs(60);

/// In a CI, once for each process; where nobody reads along, and where a collector has the reasons, not at all. What a
/// terminal is told cannot be tried without one.
/// Rules: EX-05
#[test]
fn a_hint_comes_once_and_only_where_it_is_read() {
    let scratch = Scratch::new("hint");
    let program = compile(&scratch, "refused.c", "refused", &["-libverbs"]);
    let said = |variables: &[(&str, &str)]| {
        let mut command = Command::new(&program);
        command.env("LD_LIBRARY_PATH", library(env!("CARGO_TARGET_TMPDIR")));
        command.env("CI", "").envs(variables.iter().copied());
        let printed = Running::start(&mut command).success(LIMIT).expect("it runs");
        assert_eq!(printed.output, "ok - refused\n");
        printed.complaints
    };
    let hint = said(&[("CI", "true")]);
    assert!(
        hint.starts_with("transom: something was refused or failed; `transom explain --pid "),
        "{hint}"
    );
    assert_eq!(hint.lines().count(), 1, "{hint}");
    for nobody in [&[][..], &[("CI", "false")]] {
        assert_eq!(said(nobody), "");
    }
    let collected = said(&[("CI", "true"), ("TRANSOM_LOG", "debug")]);
    assert!(
        collected.contains("call refused") && !collected.contains("transom explain"),
        "{collected}"
    );
}

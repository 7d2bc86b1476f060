//! The example of docs/exposure.md: a late READ of a buffer that serves another request by then.

use std::process::Command;
use std::time::Duration;

use transom_conformance::c_programs::compile;
use transom_conformance::exposed::accounts_in;
use transom_conformance::processes::Scratch;
use transom_conformance::programs::{Running, library};
use transom_exposure::opening::Object;
use transom_exposure::report::Account;
use transom_exposure::sums::Change;

/// How long it may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs one of its two forms: what it prints, and the account of the client, which alone opens something.
fn run(form: &str) -> (String, Account) {
    let scratch = Scratch::new(&format!("late-read-{form}"));
    let program = compile(&scratch, "late_read.c", "late_read", &["-libverbs"]);
    let directory = scratch.path().join("accounts");
    std::fs::create_dir(&directory).unwrap();
    let mut command = Command::new(program);
    command.arg(form).env("LD_LIBRARY_PATH", library(env!("CARGO_TARGET_TMPDIR")));
    command.env("TRANSOM_EXPOSURE", &directory);
    let printed = Running::start(&mut command).success(LIMIT).expect("it succeeds");
    let accounts = accounts_in(&directory);
    assert_eq!(accounts.len(), 2, "{accounts:?}");
    let client = accounts.into_iter().find(|account| !account.openings.is_empty());
    (printed.output, client.expect("the client opens something"))
}

/// Rules: EXP-03, EXP-08
#[test]
fn a_region_for_all_requests_lets_a_late_read_in_and_is_named() {
    let (printed, client) = run("regions");
    assert_eq!(printed, "request 1 was served with the data of request 2\n");
    let [region] = &client.openings[..] else { panic!("{client:?}") };
    assert_eq!((region.opening.object, region.opening.length), (Object::Region, 4096));
    assert_eq!(region.opening.deeds.map(|it| it.count), [1, 0, 0]);
    assert_eq!((region.sums.touched, client.process.refused), (64, 0));
    let [(change, closes), ..] = region.sums.changes(true)[..] else { panic!("{region:?}") };
    assert_eq!(change, Change::Window);
    assert_eq!(closes, region.sums.open, "one READ needs no time");
}

/// Rules: EXP-01, EXP-03
#[test]
fn a_window_for_each_request_keeps_a_late_read_out() {
    let (printed, client) = run("windows");
    assert_eq!(printed, "request 1 was not served: remote access error\n");
    let [window] = &client.openings[..] else { panic!("{client:?}") };
    assert_eq!((window.opening.object, window.opening.length), (Object::Window2, 64));
    assert_eq!(window.opening.deeds.map(|it| it.count), [0; 3]);
    assert_eq!(client.process.refused, 1);
}

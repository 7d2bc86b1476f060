//! A program's first thread may end before the others. Then the PID finds none of the process's memory and files.

use std::process::Command;

use transom_conformance::c_programs::{self, compile};
use transom_conformance::processes::Scratch;
use transom_conformance::programs::command;

/// The program says what it shows.
fn first_threads(end: &str, copy: Option<&str>) {
    let scratch = Scratch::new(&format!("first-thread-{end}"));
    let program = compile(&scratch, "first_thread.c", "first_thread", &["-libverbs", "-lpthread"]);
    let mut run = Command::new(&command()[0]);
    run.args(["run", "--"]).arg(&program).arg(end).env_remove("TRANSOM_COPY");
    copy.map(|copy| run.env("TRANSOM_COPY", copy));
    c_programs::run(&mut run, 1);
}

#[test]
fn a_device_is_opened_after_the_first_thread_has_ended() {
    first_threads("first", None);
    first_threads("first", Some("rings"));
}

#[test]
fn peers_meet_after_their_first_threads_have_ended() {
    first_threads("opened", None);
    first_threads("opened", Some("rings"));
}

#[test]
fn a_connection_outlives_the_first_threads_of_its_programs() {
    first_threads("connected", None);
    first_threads("connected", Some("rings"));
}

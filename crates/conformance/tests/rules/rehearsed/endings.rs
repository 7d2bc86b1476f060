//! `transom rehearse` on programs that end the work of a queue pair (`endings.c`).

use std::sync::LazyLock;

use transom_conformance::c_programs::compile;
use transom_conformance::processes::Scratch;
use transom_rehearse::Provocation;

use super::command::{is_shown_by, rehearse};

static PROGRAM: LazyLock<(Scratch, String)> = LazyLock::new(|| {
    let scratch = Scratch::new("rehearsed-endings");
    let binary = compile(&scratch, "rehearsed/endings.c", "endings", &["-libverbs"]);
    let binary = binary.to_str().expect("a path in UTF-8").to_owned();
    (scratch, binary)
});

/// Rules: REH-70, REH-42, ST-19
#[test]
fn all_that_is_flushed_is_expected_at_once() {
    is_shown_by(&PROGRAM.1, "drains-once", Provocation::SlowFlush, "20");
}

/// Rules: REH-70, REH-42
#[test]
fn what_is_flushed_late_is_taken_for_work_of_another_connection() {
    is_shown_by(&PROGRAM.1, "reuses-numbers", Provocation::SlowFlush, "20");
}

/// Rules: REH-70, REH-42, ST-22
#[test]
fn the_last_receive_of_a_shared_queue_is_expected_at_once() {
    is_shown_by(&PROGRAM.1, "expects-last", Provocation::SlowFlush, "40");
}

/// The program knows that the completions are there, and looks for them as IBA and `verbs.h` tell it to.
///
/// Rules: REH-11, REH-12, ST-22
#[test]
fn nothing_is_hidden_from_who_has_heard_of_the_last_receive() {
    is_drained("drains-shared", "hidden-completions");
    is_drained("drains-shared", "single-completions");
}

/// Rules: REH-11, ST-16
#[test]
fn nothing_is_hidden_from_who_has_heard_that_a_send_queue_is_drained() {
    is_drained("drains-sent", "hidden-completions");
}

fn is_drained(name: &str, only: &str) {
    let options = ["--only", only, "--runs", "40"];
    let (status, printed) = rehearse(&options, &[&PROGRAM.1, name, "right"]);
    assert_eq!(status, Some(0), "{printed:?}");
}

/// Rules: REH-70, ORD-29
#[test]
fn nothing_is_flushed_after_the_end_of_a_queue_pair() {
    let only = ["--only", "slow-flush", "--runs", "12"];
    let (status, printed) = rehearse(&only, &[&PROGRAM.1, "destroys-early", "right"]);
    assert_eq!(status, Some(0), "{printed:?}");
}

/// Rules: REH-85, REH-24
#[test]
fn completions_outlive_their_queue_pair_whose_number_rests() {
    let places = ["--at", "kept-completions:0.0.0", "--at", "numbers-again:0.0.0"];
    let options = [&["--seed", "1"][..], &places].concat();
    let (status, printed) = rehearse(&options, &[&PROGRAM.1, "finds-the-rest", "right"]);
    assert_eq!(status, Some(0), "{printed:?}");
    // Without it they are dropped (rule ORD-29).
    let (status, printed) = rehearse(
        &["--seed", "1", "--at", "numbers-again:0.0.0"],
        &[&PROGRAM.1, "finds-the-rest", "right"],
    );
    assert_eq!(status, Some(66), "{printed:?}");
}

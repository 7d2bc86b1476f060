//! `transom rehearse` on programs that use the buffers of posted receives (`receives.c`).

use std::sync::LazyLock;

use transom_conformance::c_programs::compile;
use transom_conformance::processes::Scratch;
use transom_rehearse::Provocation;

use super::command::{is_shown_by, rehearse};

static PROGRAM: LazyLock<(Scratch, String)> = LazyLock::new(|| {
    let scratch = Scratch::new("receives");
    let binary = compile(&scratch, "rehearsed/receives.c", "receives", &["-libverbs"]);
    let binary = binary.to_str().expect("a path in UTF-8").to_owned();
    (scratch, binary)
});

fn is_shown(name: &str) {
    is_shown_by(&PROGRAM.1, name, Provocation::ScribbledReceives, "20");
}

/// The right form does not fail, although something is provoked.
fn is_right(name: &str) {
    let only = ["--only", "scribbled-receives", "--runs", "12"];
    let (status, printed) = rehearse(&only, &[&PROGRAM.1, name, "right"]);
    assert_eq!(status, Some(0), "{name}: {printed:?}");
    assert!(!printed.complaints.contains("Never"), "{printed:?}");
}

/// Rules: REH-63, REH-42
#[test]
fn a_receive_is_posted_again_before_its_message_is_read() {
    is_shown("posts-early");
}

/// Rule: REH-63
#[test]
fn a_shared_receive_is_posted_again_before_its_message_is_read() {
    is_shown("shares-early");
}

/// Rule: REH-63
#[test]
fn the_buffer_of_a_flushed_receive_is_taken_for_what_it_was() {
    is_shown("flushed");
}

/// Rule: REH-63
#[test]
fn what_a_message_leaves_of_its_receive_is_as_it_was() {
    is_right("leaves-the-rest");
}

/// Rule: REH-63
#[test]
fn the_buffer_of_an_ended_receive_is_the_programs() {
    is_right("flushed-again");
    is_right("uses-again");
}

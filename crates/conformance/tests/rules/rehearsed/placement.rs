//! `transom rehearse` on programs that rely on when and in what order bytes land (`placement.c`).

use std::sync::LazyLock;

use transom_conformance::c_programs::compile;
use transom_conformance::processes::Scratch;
use transom_rehearse::Provocation;

use super::command::{is_shown_by, rehearse};

static PROGRAM: LazyLock<(Scratch, String)> = LazyLock::new(|| {
    let scratch = Scratch::new("placement");
    let libraries = ["-libverbs", "-lpthread"];
    let binary = compile(&scratch, "rehearsed/placement.c", "placement", &libraries);
    let binary = binary.to_str().expect("a path in UTF-8").to_owned();
    (scratch, binary)
});

fn is_shown(name: &str, provocation: Provocation) {
    is_shown_by(&PROGRAM.1, name, provocation, "20");
}

/// The right form does not fail, although something is provoked.
fn is_right(name: &str, provocations: &str, runs: &str) {
    let only = ["--only", provocations, "--runs", runs];
    let (status, printed) = rehearse(&only, &[&PROGRAM.1, name, "right"]);
    assert_eq!(status, Some(0), "{name}: {printed:?}");
    assert!(!printed.complaints.contains("Never"), "{printed:?}");
}

/// Rules: REH-60, REH-42, ORD-24
#[test]
fn the_last_byte_of_a_write_is_taken_for_its_end() {
    is_shown("last-byte-written", Provocation::ScrambledBytes);
}

/// Rules: REH-60, ORD-24
#[test]
fn the_last_byte_of_a_read_is_taken_for_its_end() {
    is_shown("last-byte-read", Provocation::ScrambledBytes);
}

/// The right form has a flag written behind the message, which is seen after all of it.
///
/// Rules: REH-60, ORD-07
#[test]
fn a_flag_behind_a_write_comes_after_all_of_it() {
    is_shown("flag-behind", Provocation::ScrambledBytes);
}

/// Rules: REH-61, REH-42
#[test]
fn a_flag_is_cleared_before_the_write_that_sets_it_completes() {
    is_shown("clears-early", Provocation::RepeatedBytes);
}

/// Rules: REH-62, REH-42, ORD-24
#[test]
fn the_last_byte_of_a_received_message_is_taken_for_its_end() {
    is_shown("last-byte-received", Provocation::ScrambledMessages);
}

/// Rules: REH-60, REH-61, REH-62
#[test]
fn pieces_make_up_the_message_and_touch_nothing_else() {
    is_right("stays-within", "scrambled-bytes,repeated-bytes,scrambled-messages", "8");
}

/// Rules: REH-60, REH-61, INV-23
#[test]
fn no_piece_lands_after_its_region_has_ended() {
    is_shown("uses-again", Provocation::ScrambledBytes);
    is_right("uses-again", "scrambled-bytes,repeated-bytes", "30");
}

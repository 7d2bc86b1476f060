//! `transom rehearse` on programs whose messages are lost (`losses.c`).

use std::sync::LazyLock;

use transom_conformance::c_programs::compile;
use transom_conformance::processes::Scratch;
use transom_rehearse::Provocation;

use super::command::is_shown_by;

static PROGRAM: LazyLock<(Scratch, String)> = LazyLock::new(|| {
    let scratch = Scratch::new("losses");
    let binary = compile(&scratch, "rehearsed/losses.c", "losses", &["-libverbs"]);
    let binary = binary.to_str().expect("a path in UTF-8").to_owned();
    (scratch, binary)
});

fn is_shown(name: &str) {
    is_shown_by(&PROGRAM.1, name, Provocation::LostMessages, "12");
}

/// Rules: REH-65, REH-42, UC-01
#[test]
fn a_write_of_uc_is_expected_to_arrive() {
    is_shown("written-once");
}

/// Rules: REH-65, UC-01
#[test]
fn a_message_of_uc_is_expected_to_arrive() {
    is_shown("message-once");
}

/// Rules: REH-65, UD-04
#[test]
fn a_datagram_is_expected_to_arrive() {
    is_shown("datagram-once");
}

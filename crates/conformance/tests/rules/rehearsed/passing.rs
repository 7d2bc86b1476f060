//! `transom rehearse` on programs that rely on what is done first where nothing promises it (`passing.c`).

use std::sync::LazyLock;

use transom_conformance::c_programs::compile;
use transom_conformance::processes::Scratch;
use transom_rehearse::Provocation;

use super::command::{is_shown_by, rehearse};

static PROGRAM: LazyLock<(Scratch, String)> = LazyLock::new(|| {
    let scratch = Scratch::new("passing");
    let libraries = ["-libverbs", "-lpthread"];
    let binary = compile(&scratch, "rehearsed/passing.c", "passing", &libraries);
    let binary = binary.to_str().expect("a path in UTF-8").to_owned();
    (scratch, binary)
});

fn is_shown(name: &str, provocation: Provocation) {
    is_shown_by(&PROGRAM.1, name, provocation, "30");
}

/// Rules: REH-92, REH-42, ORD-10
#[test]
fn a_write_without_a_fence_comes_before_a_read() {
    is_shown("replaces", Provocation::PassedReads);
}

/// Rules: REH-92, REH-42, ORD-10
#[test]
fn a_write_without_a_fence_comes_before_an_atomic() {
    is_shown("takes-tickets", Provocation::PassedReads);
}

/// Rules: REH-92
#[test]
fn the_model_orders_what_comes_behind_an_atomic() {
    let only = ["--only", "passed-reads", "--order", "model", "--runs", "30"];
    for (name, status) in [("takes-tickets", Some(0)), ("replaces", Some(66))] {
        let (ended, printed) = rehearse(&only, &[&PROGRAM.1, name, "wrong"]);
        assert_eq!(ended, status, "{printed:?}");
    }
}

/// Rules: REH-92, ORD-10
#[test]
fn a_request_is_passed_by_nothing_that_has_an_order_and_everything_is_done_once() {
    for authority in ["spec", "model"] {
        let only = "passed-reads,unseen-writes,split-atomics";
        let options = ["--order", authority, "--only", only, "--runs", "30"];
        let (status, printed) = rehearse(&options, &[&PROGRAM.1, "in-order", "right"]);
        assert_eq!(status, Some(0), "{printed:?}");
        assert!(!printed.complaints.contains("Never"), "{printed:?}");
    }
}

/// Rules: REH-93, REH-42
#[test]
fn a_buffer_is_changed_before_its_message_is_sent() {
    is_shown("sends-again", Provocation::TornSources);
}

/// Rules: REH-94, REH-42, AT-09
#[test]
fn a_processor_adds_beside_an_adapter() {
    is_shown("adds", Provocation::SplitAtomics);
}

//! `transom rehearse` on programs that wait for events (`events.c`).

use std::sync::LazyLock;

use transom_conformance::c_programs::compile;
use transom_conformance::processes::Scratch;
use transom_rehearse::Provocation;

use super::command::is_shown_by;

static PROGRAM: LazyLock<(Scratch, String)> = LazyLock::new(|| {
    let scratch = Scratch::new("rehearsed-events");
    let binary = compile(&scratch, "rehearsed/events.c", "events", &["-libverbs"]);
    let binary = binary.to_str().expect("a path in UTF-8").to_owned();
    (scratch, binary)
});

/// Rules: REH-14, REH-42
#[test]
fn an_event_is_expected_to_bring_a_completion() {
    is_shown_by(&PROGRAM.1, "takes-for-new", Provocation::LateEvents, "20");
}

/// Rules: REH-14, REH-42
#[test]
fn events_of_two_queues_are_expected_one_by_one() {
    is_shown_by(&PROGRAM.1, "one-of-two-queues", Provocation::LateEvents, "60");
}

/// Rules: REH-15, REH-42
#[test]
fn events_are_expected_to_come_one_by_one() {
    is_shown_by(&PROGRAM.1, "one-a-wake-up", Provocation::LateAsyncEvents, "40");
}

/// Rules: REH-40, REH-80
#[test]
fn a_port_that_comes_back_at_once_is_taken_for_down() {
    is_shown_by(&PROGRAM.1, "waits-for-the-port", Provocation::PortOutages, "60");
}

/// Rules: REH-40, REH-81
#[test]
fn a_device_is_expected_to_stay() {
    is_shown_by(&PROGRAM.1, "polls-for-ever", Provocation::RemovedDevices, "40");
}

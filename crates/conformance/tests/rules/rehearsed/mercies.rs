//! `transom rehearse` on programs that rely on mercies (`mercies.c`).

use std::sync::LazyLock;

use transom_conformance::c_programs::compile;
use transom_conformance::explained::on_one_line;
use transom_conformance::processes::Scratch;
use transom_rehearse::Provocation;

use super::command::{is_shown_by, rehearse};

static PROGRAM: LazyLock<(Scratch, String)> = LazyLock::new(|| {
    let scratch = Scratch::new("rehearsed-mercies");
    let binary = compile(&scratch, "rehearsed/mercies.c", "mercies", &["-libverbs", "-lpthread"]);
    let binary = binary.to_str().expect("a path in UTF-8").to_owned();
    (scratch, binary)
});

fn is_shown(name: &str, provocation: Provocation) {
    is_shown_by(&PROGRAM.1, name, provocation, "2");
}

/// Rules: MR-16, REH-26
#[test]
fn a_peer_is_told_the_l_key() {
    is_shown("tells-its-own-key", Provocation::DifferentKeys);
}

/// Rules: MR-16, REH-26
#[test]
fn own_memory_is_named_by_the_r_key() {
    is_shown("names-it-by-the-peers-key", Provocation::DifferentKeys);
}

/// Rule: REH-27
#[test]
fn the_key_of_a_bind_is_read_from_the_window() {
    is_shown("reads-the-windows-key", Provocation::KeptWindowKeys);
}

/// Rule: REH-28
#[test]
fn the_largest_mtu_is_taken_for_granted() {
    is_shown("takes-the-largest-mtu", Provocation::SmallMtu);
}

/// Rule: REH-28
#[test]
fn long_datagrams_are_taken_for_granted() {
    is_shown("sends-long-datagrams", Provocation::SmallMtu);
}

/// Rule: REH-29
#[test]
fn queue_pairs_are_expected_to_be_numbered_one_by_one() {
    is_shown("counts-queue-pairs", Provocation::ScatteredNumbers);
}

/// Rule: REH-82
#[test]
fn a_region_of_nothing_is_expected() {
    is_shown("registers-nothing", Provocation::RefusedEmptyRegions);
}

/// Rules: RR-10, REH-87
#[test]
fn rights_are_expected_to_change_without_a_gap() {
    is_shown("changes-rights-in-use", Provocation::ShutRegions);
}

/// What a program neither meets nor hears of is not counted.
///
/// Rules: REH-26, REH-28, REH-44
#[test]
fn a_program_that_only_opens_the_device_has_exercised_no_mercy() {
    let options = ["--only", "different-keys,small-mtu", "--runs", "2"];
    let (status, printed) = rehearse(&options, &[&PROGRAM.1, "only-opens", "right"]);
    assert_eq!(status, Some(0), "{printed:?}");
    let said = on_one_line(&printed.complaints);
    assert!(said.contains("Never exercised: different-keys, small-mtu."), "{printed:?}");
}

//! What `transom check` finds in memory that the device has.

use std::sync::LazyLock;

use transom_check::Kind;
use transom_conformance::checked::Checked;

static PROGRAM: LazyLock<Checked> =
    LazyLock::new(|| Checked::new("memory", env!("CARGO_TARGET_TMPDIR"), &["-libverbs"]));

/// Rule: CHK-63
#[test]
fn a_region_ends_while_its_memory_is_in_flight() {
    PROGRAM.shows(Kind::EndedInFlight, &["posted", "ended"]);
}

/// Rule: CHK-65
#[test]
fn a_region_ends_while_messages_may_come_into_it() {
    PROGRAM.shows(Kind::EndedUnpolled, &["posted", "ended"]);
}

/// Rule: CHK-60
#[test]
fn a_source_changes_before_its_completion_is_polled() {
    PROGRAM.shows(Kind::SourceChanged, &["changed"]);
}

/// Rule: CHK-66
#[test]
fn a_source_changes_that_a_peer_may_have_written_to() {
    PROGRAM.shows(Kind::SourceRaced, &["changed"]);
}

/// Rule: CHK-61
#[test]
fn a_target_of_a_read_changes_before_its_completion_is_polled() {
    PROGRAM.shows(Kind::TargetChanged, &["posted", "polled"]);
}

/// Rule: CHK-67
#[test]
fn a_buffer_of_a_receive_changes_behind_its_message() {
    PROGRAM.shows(Kind::TargetRaced, &["posted", "polled"]);
}

/// Rule: CHK-64
#[test]
fn two_queue_pairs_write_to_the_same_bytes() {
    PROGRAM.shows_all("writes-unordered", Kind::WritesUnordered, "posted");
}

static PEERS: LazyLock<Checked> =
    LazyLock::new(|| Checked::new("peers", env!("CARGO_TARGET_TMPDIR"), &["-libverbs"]));

/// Rule: CHK-64
#[test]
fn two_peers_write_to_the_same_bytes() {
    const NAME: &str = "written-by-two";
    let found = PEERS.shows_all(NAME, Kind::WritesUnordered, "opened");
    let [found] = &found[..] else { panic!("it is told once: {found:#?}") };
    assert!(found.says.starts_with("Two peers wrote"), "{found:#?}");
}

/// Rule: CHK-64
#[test]
fn two_peers_write_in_turns_that_the_owner_or_an_atomic_gives() {
    for name in ["written-in-turns", "written-to-a-ring"] {
        let kinds: Vec<_> = PEERS.run(&[name, "wrong"]).iter().map(|it| it.kind).collect();
        assert_eq!(kinds, [Kind::WritesUnordered], "{name}");
        assert_eq!(PEERS.run(&[name, "right"]), [], "{name}");
    }
}

/// They log what they do in its memory. If they had to ask it, they would wait for ever.
/// Rule: CHK-64
#[test]
fn peers_of_a_checked_process_write_while_it_is_stopped() {
    const NAME: &str = "written-while-stopped";
    let kinds: Vec<_> = PEERS.run(&[NAME, "wrong"]).iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [Kind::WritesUnordered]);
    assert_eq!(PEERS.run(&[NAME, "right"]), []);
}

/// Then the peers need not tell of their WRITEs.
/// Rule: CHK-64
#[test]
fn nobody_looks_at_the_writes_of_peers_if_nobody_wants_to_know() {
    assert_eq!(PEERS.run_without(Kind::WritesUnordered, &["written-by-two", "wrong"]), []);
}

/// Rule: CHK-62
#[test]
fn two_targets_share_bytes() {
    PROGRAM.shows(Kind::TargetsOverlap, &["posted"]);
}

/// Rules: CHK-60, CHK-66
#[test]
fn what_the_device_writes_to_a_source_is_no_change_by_the_program() {
    for by_message in ["wrong", "right"] {
        assert_eq!(PROGRAM.run(&["rewritten", by_message]), []);
    }
}

/// Rules: CHK-60, CHK-67
#[test]
fn tagged_buffers_are_receives_and_list_operations_are_none() {
    assert_eq!(PROGRAM.run(&["tagged", "right"]), []);
    let kinds: Vec<_> = PROGRAM.run(&["tagged", "wrong"]).iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [Kind::TargetRaced]);
}

/// Rules: CHK-63, CHK-65
#[test]
fn a_registration_that_is_changed_has_its_requests_still() {
    PROGRAM.shows_all("reregistered", Kind::EndedInFlight, "posted");
    let kept = PROGRAM.run(&["kept", "right"]);
    assert!(kept.iter().all(|it| it.kind == Kind::RanDry), "{kept:#?}");
}

static GONE: LazyLock<Checked> = LazyLock::new(|| {
    Checked::new("gone", env!("CARGO_TARGET_TMPDIR"), &["-libverbs"]).preloading()
});

/// Rule: CHK-40
#[test]
fn memory_is_used_that_was_unmapped() {
    GONE.shows(Kind::MemoryGone, &["unmapped", "posted"]);
}

/// Rule: CHK-45
#[test]
fn memory_is_freed_before_its_region_ends() {
    GONE.shows(Kind::GivenBack, &["freed"]);
}

/// Rule: CHK-40
#[test]
fn memory_is_used_that_was_emptied_or_freed() {
    for (case, was) in [
        ("emptied", "emptied by madvise"),
        ("freed-large", "freed and unmapped"),
        ("freed-pages", "given back"),
        ("freed-in-flight", "freed while 1 request that names it is under way"),
        ("written-by-peer", "unmapped"),
        ("received", "freed and unmapped"),
    ] {
        let found = GONE.run(&[case, "wrong"]);
        let gone = found.iter().find(|it| it.kind == Kind::MemoryGone && it.says.contains(was));
        assert!(gone.is_some(), "{case}: {found:#?}");
        assert_eq!(GONE.run(&[case, "right"]), [], "{case}");
    }
}

/// Rule: CHK-40
#[test]
fn pages_that_are_there_are_not_gone() {
    let kinds: Vec<_> = GONE.run(&["harmless", "wrong"]).iter().map(|it| it.kind).collect();
    assert!(kinds.iter().all(|kind| *kind == Kind::GivenBack), "{kinds:?}");
    assert_eq!(GONE.run(&["harmless", "right"]), []);
}

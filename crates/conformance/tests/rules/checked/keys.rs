//! What `transom check` finds where peers use keys.

use std::sync::LazyLock;

use transom_check::Kind;
use transom_conformance::checked::Checked;

static PROGRAM: LazyLock<Checked> =
    LazyLock::new(|| Checked::new("keys", env!("CARGO_TARGET_TMPDIR"), &["-libverbs"]));

/// Rule: CHK-41
#[test]
fn a_key_is_used_before_its_bind_was_polled() {
    PROGRAM.shows(Kind::KeyBeforeBind, &["bound"]);
}

/// Rule: CHK-41
#[test]
fn a_key_may_be_told_behind_its_bind() {
    let wrong = PROGRAM.run(&["told-behind", "wrong"]);
    assert!(wrong.iter().any(|it| it.kind == Kind::KeyBeforeBind), "{wrong:#?}");
    assert_eq!(PROGRAM.run(&["told-behind", "right"]), []);
}

/// Rule: CHK-47
#[test]
fn a_key_of_a_type_2_window_is_used_before_its_bind_was_polled() {
    let found = PROGRAM.shows(Kind::KeyEarly, &["bound"]);
    assert!(found.says.contains("of a type 2 window"), "{found:#?}");
}

/// Rule: CHK-47
#[test]
fn a_key_of_a_type_2_window_may_be_told_behind_its_bind() {
    let wrong = PROGRAM.run(&["told-behind-type-2", "wrong"]);
    assert!(wrong.iter().any(|it| it.kind == Kind::KeyEarly), "{wrong:#?}");
    assert_eq!(PROGRAM.run(&["told-behind-type-2", "right"]), []);
}

/// Rule: CHK-27
#[test]
fn an_address_is_added_in_place_of_a_number() {
    PROGRAM.shows(Kind::AddressAdded, &["posted"]);
}

/// Rule: CHK-41
#[test]
fn a_key_is_used_whose_bind_had_to_wait() {
    let wrong = PROGRAM.run(&["bound-late", "wrong"]);
    assert!(wrong.iter().any(|it| it.kind == Kind::KeyBeforeBind), "{wrong:#?}");
    let right = PROGRAM.run(&["bound-late", "right"]);
    assert!(right.iter().all(|it| it.kind == Kind::RanDry), "{right:#?}");
}

/// Rule: CHK-42
#[test]
fn the_key_of_a_bind_that_failed_is_used() {
    PROGRAM.shows(Kind::FailedBindUsed, &["bound"]);
}

/// Rule: CHK-43
#[test]
fn memory_is_open_when_the_process_ends() {
    PROGRAM.shows(Kind::OpenAtEnd, &["opened"]);
}

/// Rules: CHK-44, CHK-96
#[test]
fn rights_are_granted_and_not_used() {
    PROGRAM.shows(Kind::RightsUnused, &["granted"]);
}

/// Rule: CHK-26
#[test]
fn a_peer_does_not_allow_a_request() {
    let found = PROGRAM.shows(Kind::RequestRefused, &["posted"]);
    assert!(found.says.starts_with("A WRITE of queue pair 0x"), "{found:#?}");
}

//! What `transom check` finds where programs use rdma_cm.

use std::sync::LazyLock;

use transom_check::Kind;
use transom_conformance::c_programs::RDMACM;
use transom_conformance::checked::Checked;

static PROGRAM: LazyLock<Checked> =
    LazyLock::new(|| Checked::new("connections", env!("CARGO_TARGET_TMPDIR"), RDMACM));

/// Rule: CHK-31
#[test]
fn a_thread_waits_for_itself_to_acknowledge_an_event_of_an_id() {
    PROGRAM.shows(Kind::OwnAck, &["got", "waits"]);
}

/// Rule: CHK-31
#[test]
fn a_thread_waits_for_itself_to_acknowledge_an_event_of_a_group() {
    let found = PROGRAM.run(&["group-left", "wrong"]);
    assert_eq!(found[0].kind, Kind::OwnAck, "{found:#?}");
    assert!(found[0].says.starts_with("rdma_leave_multicast waits"), "{found:#?}");
    assert_eq!(PROGRAM.run(&["group-left", "right"]), []);
}

/// Rule: CHK-30
#[test]
fn the_end_of_an_id_waits_long_for_an_acknowledgement() {
    PROGRAM.shows(Kind::WaitsForAck, &["got", "waits"]);
}

/// Rule: CHK-32
#[test]
fn an_event_of_an_id_is_never_acknowledged() {
    PROGRAM.shows(Kind::NeverAcked, &["got"]);
}

/// Rule: CHK-08
#[test]
fn a_request_is_posted_although_the_peer_has_rejected() {
    let found = PROGRAM.shows(Kind::PostedAfterError, &["posted"]);
    assert!(
        found.says.contains("after RDMA_CM_EVENT_REJECTED, so it is not connected"),
        "{found:#?}"
    );
}

/// Rule: CHK-33
#[test]
fn private_data_is_used_after_its_event_was_acknowledged() {
    let found = PROGRAM.shows(Kind::UsedAfterAck, &["got", "acknowledged", "used"]);
    assert_eq!(found.says, "rdma_reject got the content of an acknowledged event.");
}

/// Rule: CHK-33
#[test]
fn parameters_and_events_are_used_after_the_acknowledgement() {
    for (name, says) in [
        ("parameters-after-ack", "rdma_accept got the content of an acknowledged event."),
        ("acknowledged-twice", "rdma_ack_cm_event got an acknowledged event."),
    ] {
        let said = |form| {
            let mut found = PROGRAM.run(&[name, form]);
            found.retain(|finding| finding.kind == Kind::UsedAfterAck);
            found.into_iter().map(|finding| finding.says).collect::<Vec<_>>()
        };
        assert_eq!(said("wrong"), [says], "{name}");
        assert_eq!(said("right"), [""; 0], "{name}");
    }
}

/// Rule: CHK-05
#[test]
fn an_id_is_used_after_its_end() {
    let found = PROGRAM.shows(Kind::UsedAfterDestroy, &["destroyed", "used"]);
    assert_eq!(found.says, "rdma_get_src_port got an rdma_cm id, which is destroyed.");
}

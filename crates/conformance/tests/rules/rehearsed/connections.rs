//! `transom rehearse` on programs of rdma_cm (`connections.c`).

use std::collections::BTreeSet;
use std::sync::LazyLock;

use transom_conformance::c_programs::{RDMACM, compile};
use transom_conformance::processes::Scratch;
use transom_rehearse::Provocation;

use super::command::{is_shown_by, rehearse};

static PROGRAM: LazyLock<(Scratch, String)> = LazyLock::new(|| {
    let scratch = Scratch::new("rehearsed-connections");
    let binary = compile(&scratch, "rehearsed/connections.c", "connections", RDMACM);
    let binary = binary.to_str().expect("a path in UTF-8").to_owned();
    (scratch, binary)
});

/// The seeds that are tried until each event of a step has come.
const SEEDS: u64 = 30;

/// Rules: REH-33, REH-40, REH-42
#[test]
fn an_address_is_expected_to_lead_to_a_device() {
    is_shown_by(&PROGRAM.1, "expects-device", Provocation::RefusedConnections, "40");
}

/// Rules: REH-86, REH-42
#[test]
fn an_address_is_expected_to_be_resolved_at_once() {
    is_shown_by(&PROGRAM.1, "resolves-at-once", Provocation::LateAddresses, "20");
}

/// Rules: REH-86, REH-42
#[test]
fn a_route_is_expected_to_be_resolved_at_once() {
    is_shown_by(&PROGRAM.1, "connects-at-once", Provocation::LateAddresses, "20");
}

/// Rules: REH-16, REH-42
#[test]
fn a_connection_is_expected_to_be_established_before_its_first_message() {
    is_shown_by(&PROGRAM.1, "expects-established", Provocation::EarlyData, "20");
}

/// Rules: REH-17, REH-42
#[test]
fn the_end_of_a_connection_is_expected_with_its_flushed_receives() {
    is_shown_by(&PROGRAM.1, "expects-disconnected", Provocation::LateDisconnects, "20");
}

/// Rules: REH-70, REH-42
#[test]
fn flushed_receives_are_expected_before_the_end_of_their_connection() {
    is_shown_by(&PROGRAM.1, "takes-the-rest", Provocation::SlowFlush, "30");
}

/// Rules: REH-19, REH-42
#[test]
fn a_time_wait_is_expected_to_be_short() {
    is_shown_by(&PROGRAM.1, "waits-shortly", Provocation::LateTimewaits, "20");
}

/// Rules: REH-18, REH-42
#[test]
fn every_event_of_a_connection_is_taken_for_its_end() {
    is_shown_by(&PROGRAM.1, "hears-of-the-end", Provocation::AddressChanges, "20");
}

/// Rules: CM-56, REH-83
#[test]
fn a_request_is_expected_to_wait_for_its_listener() {
    is_shown_by(&PROGRAM.1, "connects-early", Provocation::RefusedEarlyRequests, "2");
    // Where nothing is refused, nothing is counted.
    let only = ["--only", "refused-early-requests", "--runs", "2"];
    let (status, printed) = rehearse(&only, &[&PROGRAM.1, "connects-early", "right"]);
    assert_eq!(status, Some(0), "{printed:?}");
    assert!(printed.complaints.contains("Never exercised: refused-early-requests."), "{printed:?}");
}

/// Rule: REH-33
#[test]
fn each_step_towards_a_connection_ends_with_an_event_that_it_may_have() {
    let steps = [
        ("1.0", &["RDMA_CM_EVENT_ADDR_ERROR -110"][..]),
        ("1.1", &["RDMA_CM_EVENT_ROUTE_ERROR -110"]),
        ("2.0", &["RDMA_CM_EVENT_REJECTED 28", "RDMA_CM_EVENT_UNREACHABLE -110"]),
        (
            "1.2",
            &[
                "RDMA_CM_EVENT_CONNECT_ERROR -12",
                "RDMA_CM_EVENT_REJECTED 10",
                "RDMA_CM_EVENT_REJECTED 8",
                "RDMA_CM_EVENT_UNREACHABLE -110",
            ],
        ),
        ("1.3", &["RDMA_CM_EVENT_ESTABLISHED 0"]),
    ];
    for (step, events) in steps {
        is_told("tell", &format!("refused-connections:0.{step}"), events);
    }
}

/// A call that fails has done nothing, and does its work when it is made again.
///
/// Rules: REH-30, REH-33
#[test]
fn a_channel_a_listener_and_a_group_are_refused_as_they_may_be() {
    is_told(
        "tell-more",
        "refused-objects:0.0.0",
        &["channel = rdma_create_event_channel() 12", "channel = rdma_create_event_channel() 24"],
    );
    let bind = ["!rdma_bind_addr(id, to) 12", "!rdma_bind_addr(id, to) 99"];
    is_told("tell-more", "refused-connections:0.0.0", &bind);
    let listen = ["!rdma_listen(id, 1) 12", "!rdma_listen(id, 1) 98"];
    is_told("tell-more", "refused-connections:0.0.1", &listen);
    is_told(
        "tell-more",
        "refused-connections:0.1.1",
        &["!rdma_join_multicast(member, of_group, NULL) 12", "RDMA_CM_EVENT_MULTICAST_ERROR -110"],
    );
}

/// What the program says if something is provoked at this place, over the seeds.
fn is_told(name: &str, place: &str, events: &[&str]) {
    let list = PROGRAM.0.path().join(place);
    let list_path = list.to_str().expect("a path in UTF-8");
    let mut seen = BTreeSet::new();
    for seed in 1..=SEEDS {
        let seed = seed.to_string();
        let options = ["--seed", &seed, "--at", place];
        let (status, printed) = rehearse(&options, &[&PROGRAM.1, name, list_path]);
        assert_eq!(status, Some(0), "{printed:?}");
        let said = std::fs::read_to_string(&list);
        let said = said.unwrap_or_else(|_| panic!("{place}: {printed:?}"));
        std::fs::remove_file(&list).expect("it is there");
        seen.insert(said.trim().to_owned());
        if seen.len() >= events.len() {
            break;
        }
    }
    assert_eq!(seen.iter().map(String::as_str).collect::<Vec<_>>(), events, "{place}");
}

/// A stream of rsockets takes DISCONNECTED for the end of its data only when its completion queue says so too.
///
/// Rules: CM-61, REH-11, REH-17
#[test]
fn a_stream_is_read_to_its_end_whatever_comes_late() {
    let stream = compile(&PROGRAM.0, "rehearsed/streams.c", "streams", RDMACM);
    let stream = stream.to_str().expect("a path in UTF-8");
    let only = ["--only", "hidden-completions,late-disconnects", "--runs", "16"];
    let (status, printed) = rehearse(&only, &[stream]);
    assert_eq!(status, Some(0), "{printed:?}");
    assert!(!printed.complaints.contains("Never"), "{printed:?}");
}

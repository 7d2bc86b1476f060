//! `transom rehearse` on programs whose requests and receives fail (`failures.c`).

use std::collections::BTreeSet;
use std::sync::LazyLock;

use transom_conformance::c_programs::compile;
use transom_conformance::processes::Scratch;
use transom_rehearse::Provocation;

use super::command::{is_shown_by, rehearse};

static PROGRAM: LazyLock<(Scratch, String)> = LazyLock::new(|| {
    let scratch = Scratch::new("rehearsed-failures");
    let binary = compile(&scratch, "rehearsed/failures.c", "failures", &["-libverbs"]);
    let binary = binary.to_str().expect("a path in UTF-8").to_owned();
    (scratch, binary)
});

/// The seeds that are tried until everything that may come of an operation has come.
const SEEDS: u64 = 60;

/// What comes of an operation if something is provoked at this place, over the seeds.
fn is_told(operation: &str, place: &str, endings: &[&str]) {
    let list = PROGRAM.0.path().join(format!("{operation}-{place}"));
    let list_path = list.to_str().expect("a path in UTF-8");
    let mut seen = BTreeSet::new();
    for seed in 1..=SEEDS {
        let seed = seed.to_string();
        let options = ["--seed", &seed, "--at", place];
        let (status, printed) = rehearse(&options, &[&PROGRAM.1, "tell", operation, list_path]);
        assert_eq!(status, Some(0), "{printed:?}");
        let said = std::fs::read_to_string(&list).expect("the program wrote it");
        std::fs::remove_file(&list).expect("it is there");
        seen.insert(said.trim().to_owned());
        if seen.len() >= endings.len() {
            break;
        }
    }
    assert_eq!(seen.iter().map(String::as_str).collect::<Vec<_>>(), endings, "{operation}");
}

/// Rules: REH-34, RA-42, ST-24
#[test]
fn a_write_ends_with_each_error_that_it_may_have() {
    is_told(
        "write",
        "failed-requests:0.0.0",
        &[
            "BAD_RESP, FLUSH; receive none; ERR to RTS; none; not written",
            "BAD_RESP, FLUSH; receive none; ERR to RTS; none; written",
            "LOC_PROT, FLUSH; receive none; ERR to RTS; none; not written",
            "LOC_QP_OP, FLUSH; receive none; ERR to RTS; none; not written",
            "REM_ACCESS, FLUSH; receive FLUSH; ERR to ERR; local access violation work queue error; not written",
            "RETRY_EXC, FLUSH; receive none; ERR to RTS; none; not written",
            "RETRY_EXC, FLUSH; receive none; ERR to RTS; none; written",
        ],
    );
}

/// Rule: REH-34
#[test]
fn a_send_ends_with_each_error_that_it_may_have() {
    is_told(
        "send",
        "failed-requests:0.0.0",
        &[
            "BAD_RESP, FLUSH; receive SUCCESS; ERR to RTS; none; written",
            "BAD_RESP, FLUSH; receive none; ERR to RTS; none; not written",
            "LOC_PROT, FLUSH; receive none; ERR to RTS; none; not written",
            "LOC_QP_OP, FLUSH; receive none; ERR to RTS; none; not written",
            "RETRY_EXC, FLUSH; receive SUCCESS; ERR to RTS; none; written",
            "RETRY_EXC, FLUSH; receive none; ERR to RTS; none; not written",
            "RNR_RETRY_EXC, FLUSH; receive none; ERR to RTS; none; not written",
        ],
    );
}

/// Rules: REH-34, RA-42, ST-24
#[test]
fn a_read_ends_with_each_error_that_it_may_have() {
    is_told(
        "read",
        "failed-requests:0.0.0",
        &[
            "BAD_RESP, FLUSH; receive none; ERR to RTS; none; not written",
            "BAD_RESP, FLUSH; receive none; ERR to RTS; none; written",
            "LOC_PROT, FLUSH; receive none; ERR to RTS; none; not written",
            "LOC_QP_OP, FLUSH; receive none; ERR to RTS; none; not written",
            "REM_ACCESS, FLUSH; receive FLUSH; ERR to ERR; local access violation work queue error; not written",
            "RETRY_EXC, FLUSH; receive none; ERR to RTS; none; not written",
            "RETRY_EXC, FLUSH; receive none; ERR to RTS; none; written",
        ],
    );
}

/// Rules: REH-34, ST-18
#[test]
fn an_unreliable_write_ends_with_each_error_that_it_may_have() {
    is_told(
        "unreliable",
        "failed-requests:0.2.0",
        &[
            "LOC_PROT, FLUSH; receive none; SQE to SQE; none; not written",
            "LOC_QP_OP, FLUSH; receive none; SQE to SQE; none; not written",
        ],
    );
}

/// Rules: REH-34, ST-24
#[test]
fn a_write_of_xrc_ends_with_each_error_that_it_may_have() {
    is_told(
        "xrc",
        "failed-requests:0.3.0",
        &[
            "BAD_RESP, FLUSH; receive none; ERR to RTS; none; not written",
            "BAD_RESP, FLUSH; receive none; ERR to RTS; none; written",
            "LOC_PROT, FLUSH; receive none; ERR to RTS; none; not written",
            "LOC_QP_OP, FLUSH; receive none; ERR to RTS; none; not written",
            "REM_ACCESS, FLUSH; receive none; ERR to ERR; local access violation work queue error; not written",
            "RETRY_EXC, FLUSH; receive none; ERR to RTS; none; not written",
            "RETRY_EXC, FLUSH; receive none; ERR to RTS; none; written",
        ],
    );
}

/// Rules: REH-34, AT-01, RA-50
#[test]
fn an_atomic_ends_with_each_error_that_it_may_have() {
    is_told(
        "atomic",
        "failed-requests:0.0.0",
        &[
            "BAD_RESP, FLUSH; receive none; ERR to RTS; none; not written",
            "BAD_RESP, FLUSH; receive none; ERR to RTS; none; written",
            "LOC_PROT, FLUSH; receive none; ERR to RTS; none; not written",
            "LOC_QP_OP, FLUSH; receive none; ERR to RTS; none; not written",
            "REM_ACCESS, FLUSH; receive FLUSH; ERR to ERR; local access violation work queue error; not written",
            "REM_INV_REQ, FLUSH; receive FLUSH; ERR to ERR; invalid request local work queue error; not written",
            "RETRY_EXC, FLUSH; receive none; ERR to RTS; none; not written",
            "RETRY_EXC, FLUSH; receive none; ERR to RTS; none; written",
        ],
    );
}

/// Rules: REH-34, ST-18
#[test]
fn a_datagram_ends_with_each_error_that_it_may_have() {
    is_told(
        "datagram",
        "failed-requests:0.2.0",
        &[
            "LOC_PROT, FLUSH; receive none; SQE to SQE; none; not written",
            "LOC_QP_OP, FLUSH; receive none; SQE to SQE; none; not written",
        ],
    );
}

/// Rule: REH-34
#[test]
fn a_bind_and_an_invalidation_end_with_the_error_that_they_may_have() {
    for operation in ["bind", "invalidate"] {
        is_told(
            operation,
            "failed-requests:0.0.0",
            &["MW_BIND, FLUSH; receive none; ERR to RTS; none; not written"],
        );
    }
}

/// Rules: REH-35, RA-52, RA-53
#[test]
fn a_receive_ends_with_each_error_that_it_may_have() {
    is_told(
        "send",
        "failed-receives:0.1.0",
        &[
            "REM_INV_REQ, FLUSH; receive LOC_LEN; ERR to ERR; none; not written",
            "REM_OP, FLUSH; receive LOC_PROT; ERR to ERR; none; not written",
        ],
    );
}

/// Rules: REH-34, REH-40, REH-42
#[test]
fn buffers_are_given_back_after_an_error_and_again_when_they_are_flushed() {
    is_shown_by(&PROGRAM.1, "frees-twice", Provocation::FailedRequests, "60");
}

/// Rules: REH-34, REH-40, REH-42
#[test]
fn every_request_is_expected_to_succeed() {
    is_shown_by(&PROGRAM.1, "waits-for-success", Provocation::FailedRequests, "60");
}

/// Rules: REH-35, REH-40, REH-42
#[test]
fn every_message_is_expected_to_have_a_length() {
    is_shown_by(&PROGRAM.1, "trusts-length", Provocation::FailedReceives, "60");
}

/// Rule: REH-30
#[test]
fn memory_is_refused_for_each_reason_that_there_may_be() {
    is_told("register", "refused-objects:0.0.6", &["EAGAIN", "ENOMEM", "EPERM"]);
}

/// Rules: REH-36, ST-24
#[test]
fn a_peer_that_is_gone_answers_nothing() {
    is_told(
        "write",
        "gone-peers:0.0.0",
        &["RETRY_EXC, FLUSH; receive none; ERR to RTS; none; not written"],
    );
}

/// Rules: REH-36, REH-40, REH-42
#[test]
fn a_reply_is_expected_from_a_peer_that_is_gone() {
    is_shown_by(&PROGRAM.1, "waits-for-reply", Provocation::GonePeers, "200");
}

/// Rules: REH-37, REH-40, REH-42
#[test]
fn a_buffer_is_in_other_use_when_a_read_comes() {
    is_shown_by(&PROGRAM.1, "reuses-target", Provocation::StuckWork, "60");
}

/// Rules: REH-37, REH-40, REH-42
#[test]
fn memory_is_in_other_use_when_a_write_comes() {
    is_shown_by(&PROGRAM.1, "reuses-granted", Provocation::StuckWork, "60");
}

/// Rules: REH-81, AE-09
#[test]
fn a_thread_that_waits_for_an_event_hears_of_a_device_that_is_removed() {
    is_told("removal", "removed-devices:0.0.0", &["heard"]);
}

/// Rules: REH-81, CHK-40, CHK-46
#[test]
fn what_a_removed_device_has_left_undone_keeps_no_memory() {
    is_told("giving-back", "removed-devices:0.0.2", &["given back"]);
}

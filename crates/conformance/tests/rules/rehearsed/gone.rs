//! `transom rehearse` on programs of rdma_cm whose peers go without a word (`gone.c`).

use std::collections::BTreeSet;
use std::sync::LazyLock;

use transom_conformance::c_programs::{RDMACM, compile};
use transom_conformance::processes::Scratch;
use transom_rehearse::Provocation;

use super::command::{is_shown_by, rehearse};

static PROGRAM: LazyLock<(Scratch, String)> = LazyLock::new(|| {
    let scratch = Scratch::new("rehearsed-gone");
    let binary = compile(&scratch, "rehearsed/gone.c", "gone", RDMACM);
    let binary = binary.to_str().expect("a path in UTF-8").to_owned();
    (scratch, binary)
});

/// The seeds that are tried until so many requests got no answer: none, one and two.
const SEEDS: u64 = 60;

/// Rules: REH-64, REH-40, REH-42
#[test]
fn the_end_of_a_connection_is_expected_from_a_peer_that_is_gone() {
    is_shown_by(&PROGRAM.1, "waits-for-both", Provocation::GonePeers, "40");
}

/// Rules: REH-64, REH-40, REH-42
#[test]
fn a_peer_that_is_gone_is_expected_to_take_the_next_connection() {
    is_shown_by(&PROGRAM.1, "connects-again", Provocation::GonePeers, "40");
}

/// Rule: REH-64
#[test]
fn from_peers_that_are_gone_nothing_comes() {
    let file = PROGRAM.0.path().join("told");
    let file = file.to_str().expect("a path in UTF-8");
    let mut unanswered = BTreeSet::new();
    for seed in 1..=SEEDS {
        let seed = seed.to_string();
        let options = ["--seed", &seed, "--at", "gone-peers:0.0.1"];
        let (status, printed) = rehearse(&options, &[&PROGRAM.1, "tell", file]);
        assert_eq!(status, Some(0), "{printed:?}");
        let told = std::fs::read_to_string(file).expect("the program wrote it");
        let told: Vec<_> = told.lines().collect();
        let (ends, tries) = told.split_at_checked(2).unwrap_or_else(|| panic!("{told:?}"));
        let ended =
            ["active RDMA_CM_EVENT_DISCONNECTED -110", "active RDMA_CM_EVENT_TIMEWAIT_EXIT 0"];
        assert_eq!(ends, ended);
        let Some((&"again RDMA_CM_EVENT_ESTABLISHED 0", before)) = tries.split_last() else {
            panic!("{told:?}")
        };
        let is_silent = |it: &&str| *it == "again RDMA_CM_EVENT_UNREACHABLE -110";
        assert!(before.iter().all(is_silent), "{told:?}");
        unanswered.insert(before.len());
        if unanswered.len() == 3 {
            break;
        }
    }
    assert_eq!(unanswered, [0, 1, 2].into());
}

//! `transom rehearse` on programs that rely on when a processor sees what peers write (`unseen.c`).

use std::sync::LazyLock;

use transom_conformance::c_programs::compile;
use transom_conformance::processes::Scratch;
use transom_rehearse::Provocation;

use super::command::{is_shown_by, rehearse};

static PROGRAM: LazyLock<(Scratch, String)> = LazyLock::new(|| {
    let scratch = Scratch::new("unseen");
    let binary = compile(&scratch, "rehearsed/unseen.c", "unseen", &["-libverbs"]);
    let binary = binary.to_str().expect("a path in UTF-8").to_owned();
    (scratch, binary)
});

/// Both provocations, with more options.
fn rehearse_both(options: &[&str], name: &str, form: &str) -> (Option<i32>, String) {
    let only = ["--only", "unseen-writes,relaxed-ordering", "--limit", "2s"];
    let (status, printed) = rehearse(&[&only, options].concat(), &[&PROGRAM.1, name, form]);
    (status, printed.complaints)
}

/// Rules: REH-90, REH-42
#[test]
fn a_completed_write_is_taken_for_seen() {
    is_shown_by(&PROGRAM.1, "completed", Provocation::UnseenWrites, "30");
}

/// Rules: REH-91, REH-42
#[test]
fn a_flag_in_relaxed_memory_is_taken_for_the_end_of_what_came_before() {
    is_shown_by(&PROGRAM.1, "relaxed-flag", Provocation::RelaxedOrdering, "30");
}

/// The manual names relaxed ordering as what takes the order of WRITEs away. The specification never gave it.
///
/// Rules: REH-91, ORD-07
#[test]
fn plain_memory_has_an_order_by_the_manual_and_none_by_the_specification() {
    for authority in [&[][..], &["--order", "model"]] {
        let (status, said) = rehearse_both(authority, "plain-flag", "wrong");
        assert_eq!(status, Some(0), "{said}");
        assert!(!said.lines().any(|line| line.starts_with("relaxed-ordering  ")), "{said}");
    }
    let (status, said) = rehearse_both(&["--order", "spec", "--runs", "30"], "plain-flag", "wrong");
    assert_eq!(status, Some(66), "{said}");
    let again = said.lines().find_map(|line| line.trim().strip_prefix("transom rehearse "));
    let (options, _) = again.and_then(|it| it.split_once(" -- ")).expect("the command");
    assert!(options.starts_with("--order spec --seed "), "{options}");
    let options: Vec<_> = options.split(' ').collect();
    let (status, printed) = rehearse(&options, &[&PROGRAM.1, "plain-flag", "wrong"]);
    assert_eq!(status, Some(66), "{printed:?}");
    let (status, said) = rehearse_both(&["--order", "spec", "--runs", "30"], "plain-flag", "right");
    assert_eq!(status, Some(0), "{said}");
}

/// Rules: REH-90, REH-91, INV-23, DR-15
#[test]
fn what_is_held_back_is_there_when_it_must_be() {
    for authority in ["spec", "model"] {
        let options = ["--order", authority, "--runs", "20"];
        let (status, said) = rehearse_both(&options, "is-there", "right");
        assert_eq!(status, Some(0), "{said}");
        assert!(said.lines().any(|line| line.starts_with("unseen-writes  ")), "{said}");
    }
}

/// A program may share its memory with another one, which looks at it when the first one has ended, or its device.
///
/// Rules: REH-90, REH-81
#[test]
fn what_is_held_back_is_there_when_the_process_or_its_device_ends() {
    let (status, said) = rehearse_both(&["--runs", "20"], "outlives", "right");
    assert_eq!(status, Some(0), "{said}");
    assert!(said.lines().any(|line| line.starts_with("unseen-writes  ")), "{said}");
    for seed in ["1", "2", "3", "4", "5"] {
        let places = ["--at", "unseen-writes:0.1.0", "--at", "removed-devices:0.0.1"];
        let options = [&["--seed", seed][..], &places].concat();
        let (status, printed) = rehearse(&options, &[&PROGRAM.1, "outlives-device", "right"]);
        assert_eq!(status, Some(0), "{printed:?}");
        for name in ["unseen-writes  ", "removed-devices  "] {
            let mut lines = printed.complaints.lines();
            assert!(lines.any(|line| line.starts_with(name)), "{printed:?}");
        }
    }
}

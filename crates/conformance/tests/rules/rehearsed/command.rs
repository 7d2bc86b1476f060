//! `transom rehearse` on programs that rely on luck (`moments.c`): the wrong form fails, and the right form never does.

use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::{Value, json};
use transom_check::{Gravity, Kind};
use transom_conformance::c_programs::compile;
use transom_conformance::explained::on_one_line;
use transom_conformance::processes::{Scratch, is_long};
use transom_conformance::programs::{Printed, Running, command, unread};
use transom_rehearse::{Place, Provocation};

/// How long one rehearsal may take. One of 2000 runs, beside others, takes an hour.
pub(super) fn limit() -> Duration {
    Duration::from_secs(if is_long() { 4 * 3600 } else { 600 })
}

static PROGRAM: LazyLock<(Scratch, String)> = LazyLock::new(|| {
    let scratch = Scratch::new("rehearsed");
    let binary = compile(&scratch, "rehearsed/moments.c", "moments", &["-libverbs"]);
    let binary = binary.to_str().expect("a path in UTF-8").to_owned();
    (scratch, binary)
});

/// Rehearses what comes behind the options; the exit status, if it was not killed, and what was printed.
pub(super) fn rehearse(options: &[&str], program: &[&str]) -> (Option<i32>, Printed) {
    let (status, printed) = Running::start(&mut line(options, program)).end(limit()).unwrap();
    (status.code(), printed)
}

fn line(options: &[&str], program: &[&str]) -> Command {
    let [transom, ..] = command();
    let mut rehearse = Command::new(transom);
    rehearse.arg("rehearse").args(options).arg("--").args(program);
    rehearse.env("TRANSOM_LIB", transom.parent().expect("a folder"));
    rehearse
}

/// The wrong form of a program fails by one place of a provocation alone, and again by the command that the report
/// prints. The right form does not fail with the same seeds.
pub(super) fn is_shown_by(program: &str, name: &str, provocation: Provocation, runs: &str) {
    let only = ["--only", provocation.name(), "--runs", runs];
    at_last(provocation, || {
        let limited = [&only[..], &["--limit", "1s"]].concat();
        let (status, printed) = rehearse(&limited, &[program, name, "wrong"]);
        let mut lines = printed.complaints.lines();
        let again = lines.find_map(|line| line.trim().strip_prefix("transom rehearse "));
        let (Some(66), Some((options, words))) =
            (status, again.and_then(|it| it.split_once(" -- ")))
        else {
            return Err(format!("{name}: {printed:?}"));
        };
        let options: Vec<_> = options.split(' ').collect();
        let places = options.iter().filter_map(|word| word.parse::<Place>().ok());
        let places: Vec<_> = places.map(|place| place.provocation).collect();
        if places != [provocation] {
            return Err(format!("{name}: {printed:?}"));
        }
        let words: Vec<_> = words.split(' ').collect();
        let (status, printed) = rehearse(&options, &words);
        if status == Some(66) { Ok(()) } else { Err(format!("{name}, again: {printed:?}")) }
    });
    let (status, printed) = rehearse(&only, &[program, name, "right"]);
    assert_eq!(status, Some(0), "{name}: {printed:?}");
}

/// Has something shown. What comes late by so many milliseconds may be in time all the same, if a busy machine has
/// others run before the program looks. And a run may take longer than its limit there. So that is tried a few times.
/// A send queue that is late waits for its program (rule REH-06).
pub(super) fn at_last(provocation: Provocation, show: impl Fn() -> Result<(), String>) {
    let is_timed = matches!(
        provocation,
        Provocation::SplitAtomics
            | Provocation::EarlyData
            | Provocation::LateDisconnects
            | Provocation::LateTimewaits
            | Provocation::LateAddresses
            | Provocation::SlowFlush
            | Provocation::LateEvents
            | Provocation::LateAsyncEvents
            | Provocation::AddressChanges
            | Provocation::SlowVerbs
            | Provocation::ShutRegions
            | Provocation::PortOutages
            | Provocation::ScrambledMessages
    );
    let mut problems = Vec::new();
    while let Err(problem) = show() {
        let may_be_busy = is_timed || problem.contains("still runs after");
        problems.push(problem);
        assert!(may_be_busy && problems.len() < 10, "{problems:?}");
    }
}

fn is_shown(name: &str, provocation: Provocation, runs: &str) {
    is_shown_by(&PROGRAM.1, name, provocation, runs);
}

/// A rehearsal of programs that register no empty region.
const HARMLESS: [&str; 4] = ["--only", "refused-empty-regions", "--runs", "1"];

/// Rule: REH-05
#[test]
fn a_list_that_leads_back_to_itself_fills_the_queue_as_ever() {
    let scratch = Scratch::new("rehearsed-circular");
    let program = compile(&scratch, "circular.c", "circular", &["-libverbs"]);
    let program = program.to_str().expect("a path in UTF-8");
    let (status, printed) = rehearse(&HARMLESS, &[program]);
    assert_eq!(status, Some(0), "{printed:?}");
}

/// Rules: PS-01, REH-05, REH-31, REH-32
#[test]
fn a_request_that_is_posted_is_not_looked_at_or_changed_any_more() {
    let scratch = Scratch::new("rehearsed-lists");
    let program = compile(&scratch, "lists.c", "lists", &["-libverbs"]);
    let program = program.to_str().expect("a path in UTF-8");
    let only = ["--only", "refused-posts,refused-receives", "--runs", "6"];
    let (status, printed) = rehearse(&only, &[program]);
    assert_eq!(status, Some(0), "{printed:?}");
}

/// Its processes keep accounts of their own, beside the check of the rehearsal.
///
/// Rules: REH-41, EXP-10
#[test]
fn the_demo_can_be_rehearsed() {
    let [transom, ..] = command();
    let demo = [transom.to_str().expect("a path in UTF-8"), "demo"];
    let (status, printed) = rehearse(&HARMLESS, &demo);
    assert_eq!(status, Some(0), "{printed:?}");
}

/// Rule: REH-40
#[test]
fn a_reader_that_goes_changes_no_verdict() {
    let only = ["--json", "--only", Provocation::LateWork.name(), "--runs", "30"];
    let (status, complaints) = unread(&mut line(&only, &[&PROGRAM.1, "reads-early", "wrong"]));
    assert_eq!(status, Some(66), "{complaints}");
}

/// Rules: REH-10, REH-42
#[test]
fn what_a_read_brings_is_used_before_its_completion() {
    is_shown("reads-early", Provocation::LateWork, "30");
}

/// Rule: REH-11
#[test]
fn hidden_completions_are_found_by_a_later_poll() {
    let only = ["--only", "hidden-completions", "--runs", "12"];
    for name in ["polls-once", "forgets-the-rest", "one-batch"] {
        let (status, printed) = rehearse(&only, &[&PROGRAM.1, name, "right"]);
        assert_eq!(status, Some(0), "{name}: {printed:?}");
        assert!(!printed.complaints.contains("Never"), "{printed:?}");
    }
}

/// The program arms, polls and then sleeps. No event comes for what is there at the arming, so a completion that was
/// hidden from its poll would leave it asleep.
///
/// Rules: REH-11, REH-21
#[test]
fn nothing_is_hidden_between_an_arming_and_its_event() {
    let only = ["--only", "hidden-completions,silent-arming", "--runs", "30", "--limit", "1s"];
    let (status, printed) = rehearse(&only, &[&PROGRAM.1, "sleeps-unlooked", "right"]);
    assert_eq!(status, Some(0), "{printed:?}");
}

/// Rules: REH-12, REH-42
#[test]
fn completions_are_expected_to_come_together() {
    is_shown("polls-once", Provocation::SingleCompletions, "12");
}

/// Rules: REH-12, REH-42
#[test]
fn completions_are_expected_in_one_batch() {
    is_shown("one-batch", Provocation::SingleCompletions, "12");
}

/// Rule: REH-20
#[test]
fn a_failed_request_is_recognized_by_its_opcode_as_a_field() {
    is_shown("reads-opcode", Provocation::PoisonedFields, "2");
}

/// Rule: REH-20
#[test]
fn a_failed_request_is_recognized_by_its_opcode() {
    is_shown("trusts-opcode", Provocation::PoisonedFields, "2");
}

/// Rule: REH-20
#[test]
fn immediate_data_are_read_that_are_not_there() {
    is_shown("reads-immediate", Provocation::PoisonedFields, "2");
}

/// Rule: REH-21
#[test]
fn a_thread_sleeps_without_another_look() {
    is_shown("sleeps-unlooked", Provocation::SilentArming, "2");
}

/// Rule: REH-22
#[test]
fn inline_data_is_sent_that_nobody_has_asked_room_for() {
    is_shown("inline-unasked", Provocation::ExactSizes, "2");
}

/// Rule: REH-22
#[test]
fn more_receives_are_posted_than_were_asked_for() {
    is_shown("one-more", Provocation::ExactSizes, "2");
}

/// Rule: REH-22
#[test]
fn more_completions_are_expected_than_were_asked_for() {
    is_shown("counts-entries", Provocation::ExactSizes, "2");
}

/// Rule: REH-23
#[test]
fn attributes_are_read_that_nobody_has_asked_for() {
    is_shown("asks-too-little", Provocation::PoisonedAttributes, "2");
}

/// Rule: REH-24
#[test]
fn a_queue_pair_is_expected_to_have_a_new_number() {
    is_shown("second-pair", Provocation::NumbersAgain, "2");
}

/// Rule: REH-24
#[test]
fn a_region_is_expected_to_have_a_new_key() {
    is_shown("second-key", Provocation::NumbersAgain, "2");
}

/// Rule: REH-25
#[test]
fn a_datagram_is_recognized_by_bytes_that_mean_nothing() {
    is_shown("looks-in-front", Provocation::PoisonedHeaders, "2");
}

/// Rule: REH-13
#[test]
fn the_target_of_a_failed_read_is_used() {
    is_shown("keeps-old", Provocation::ScribbledTargets, "12");
}

/// Rules: REH-30, REH-40
#[test]
fn a_registration_is_expected_to_succeed() {
    is_shown("ignores-null", Provocation::RefusedObjects, "120");
}

/// Rules: REH-31, REH-40
#[test]
fn the_rest_of_a_list_is_forgotten() {
    is_shown("forgets-the-rest", Provocation::RefusedPosts, "60");
}

/// Rules: REH-31, REH-40
#[test]
fn a_batch_is_expected_to_be_posted() {
    is_shown("forgets-the-batch", Provocation::RefusedPosts, "60");
}

/// Rules: REH-32, REH-40
#[test]
fn receives_are_expected_to_be_posted() {
    is_shown("forgets-receives", Provocation::RefusedReceives, "60");
}

/// Rules: REH-32, REH-40
#[test]
fn receives_for_many_are_expected_to_be_posted() {
    is_shown("forgets-shared", Provocation::RefusedReceives, "60");
}

/// Rule: REH-41
#[test]
fn a_program_that_fails_by_itself_is_not_rehearsed() {
    let (status, printed) = rehearse(&[], &["true"]);
    assert_eq!(status, Some(1), "{printed:?}");
    assert!(on_one_line(&printed.complaints).contains("no process opened a device"), "{printed:?}");
    let script = "\"$0\" reads-early right; exit 3";
    let (status, printed) = rehearse(&[], &["sh", "-c", script, &PROGRAM.1]);
    assert_eq!(status, Some(1), "{printed:?}");
    assert!(
        on_one_line(&printed.complaints).contains("exits with status 3; mend that first"),
        "{printed:?}"
    );
}

/// In each run, so what peers do stays direct where only a note is about it.
/// Rule: REH-41
#[test]
fn a_rehearsal_looks_for_no_notes() {
    let script = "cat \"$TRANSOM_CHECK/unwanted\" >> \"$1\"; \"$0\" reads-early right";
    let list = PROGRAM.0.path().join("unwanted");
    let list_path = list.to_str().expect("a path in UTF-8");
    let quiet = ["--runs", "2", "--only", "poisoned-fields"];
    let (status, printed) = rehearse(&quiet, &["sh", "-c", script, &PROGRAM.1, list_path]);
    assert_eq!(status, Some(0), "{printed:?}");
    let list = std::fs::read_to_string(list).expect("the script wrote it");
    let notes = Kind::ALL.iter().filter(|kind| kind.gravity() == Gravity::Note);
    let notes: Vec<_> = notes.map(|kind| kind.name()).collect();
    assert!(list.lines().eq(notes.repeat(3)), "{list}");
}

/// Rule: REH-43
#[test]
fn what_a_run_leaves_running_is_ended() {
    let script = "sleep 1000 & echo $! >> \"$1\"; \"$0\" reads-early right";
    let list = PROGRAM.0.path().join("left");
    let list_path = list.to_str().expect("a path in UTF-8");
    let quiet = ["--runs", "2", "--only", "poisoned-fields"];
    let (status, printed) = rehearse(&quiet, &["sh", "-c", script, &PROGRAM.1, list_path]);
    assert_eq!(status, Some(0), "{printed:?}");
    let left = std::fs::read_to_string(list).expect("the script wrote it");
    assert_eq!(left.lines().count(), 3);
    for pid in left.lines() {
        assert!(!std::path::Path::new("/proc").join(pid).exists(), "{pid}");
    }
}

/// A program reads what failed, by what, how to show it again, and what was never provoked.
///
/// Rule: REH-44
#[test]
fn a_report_for_programs_has_each_run_the_failure_and_the_counts() {
    let options = ["--json", "--only", "single-completions,refused-posts", "--runs", "12"];
    let (status, printed) = rehearse(&options, &[&PROGRAM.1, "polls-once", "wrong"]);
    assert_eq!(status, Some(66), "{printed:?}");
    assert_eq!(printed.complaints, "");
    let lines: Vec<Value> =
        printed.output.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of = |kind: &str| lines.iter().filter(|it| it["type"] == kind).collect::<Vec<_>>();
    let runs = of("run");
    assert_eq!((&runs[0]["seed"], &runs[0]["outcome"]), (&Value::Null, &json!("passed")));
    let failed = runs[runs.len() - 1];
    assert_eq!((&failed["outcome"], &failed["exit_status"]), (&json!("exited"), &json!(1)));
    let [failure] = of("failure")[..] else { panic!("{printed:?}") };
    assert_eq!((&failure["seed"], &failure["cut"]), (&failed["seed"], &json!("places")));
    let place = failure["places"][0]["place"].as_str().expect("a place");
    assert_eq!(failure["places"][0]["provocation"], "single-completions");
    // The program has one completion queue, and numbers begin at 0.
    assert!(place.starts_with("single-completions:0.0."), "{place}");
    let again = failure["again"].as_str().expect("a command");
    assert!(again.contains(&format!(" --at {place} -- ")), "{again}");
    let counts: Vec<_> =
        of("provocation").iter().map(|it| (&it["provocation"], &it["kind"])).collect();
    let [single, refused] = [json!("single-completions"), json!("refused-posts")];
    assert_eq!(counts, [(&single, &json!("moment")), (&refused, &json!("failure"))]);
    let last = lines.last().expect("a summary");
    assert_eq!((&last["type"], &last["failed"]), (&json!("summary"), &json!(1)));
    assert_eq!(last["runs"], runs.len() - 1);
}

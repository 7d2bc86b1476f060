//! What `transom check` finds where objects end.

use std::sync::LazyLock;

use transom_check::Kind;
use transom_check::record::Finding;
use transom_conformance::checked::Checked;

static PROGRAM: LazyLock<Checked> =
    LazyLock::new(|| Checked::new("teardown", env!("CARGO_TARGET_TMPDIR"), &["-libverbs"]));

/// Rule: CHK-01
#[test]
fn work_under_way_is_lost_with_its_queue_pair() {
    PROGRAM.shows(Kind::WorkLost, &["posted", "destroyed"]);
}

/// Rule: CHK-02
#[test]
fn completions_are_left_unpolled() {
    PROGRAM.shows(Kind::CompletionsUnpolled, &["posted"]);
}

/// Rule: CHK-02
#[test]
fn messages_are_left_unpolled() {
    PROGRAM.shows_all("message-unpolled", Kind::CompletionsUnpolled, "destroyed");
    PROGRAM.shows_what_is_left(
        "message-unpolled-at-exit",
        Kind::CompletionsUnpolled,
        "",
        "The process ends before a received message was polled, which came by queue pair 0x",
    );
}

/// Rule: CHK-02
#[test]
fn messages_of_xrc_are_left_unpolled() {
    PROGRAM.shows_all("shared-message-unpolled", Kind::CompletionsUnpolled, "destroyed");
    let came = "before a received message was polled, which came into shared receive queue 0x";
    for (end, mark, begins) in
        [("exit", "", "The process ends"), ("close", "closed", "The device is closed")]
    {
        let name = format!("shared-message-unpolled-at-{end}");
        let begins = format!("{begins} {came}");
        PROGRAM.shows_what_is_left(&name, Kind::CompletionsUnpolled, mark, &begins);
    }
}

/// Rule: CHK-04
#[test]
fn ebusy_is_ignored() {
    PROGRAM.shows(Kind::BusyIgnored, &["refused", "closed"]);
}

/// Rule: CHK-05
#[test]
fn a_destroyed_object_is_used() {
    PROGRAM.shows(Kind::UsedAfterDestroy, &["used", "destroyed"]);
}

/// Rule: CHK-05
#[test]
fn every_verb_knows_a_destroyed_object() {
    let name = "used-in-other-ways";
    let found = PROGRAM.run(&[name, "wrong"]);
    let found: Vec<_> = found.iter().filter(|it| it.kind == Kind::UsedAfterDestroy).collect();
    let says: Vec<_> = found.iter().map(|it| &it.says).collect();
    for verb in [
        "ibv_wr_start got queue pair",
        "ibv_wr_complete got queue pair",
        "ibv_start_poll got completion queue",
        "ibv_next_poll got completion queue",
        "ibv_ack_cq_events got completion queue",
        "ibv_get_cq_event got a completion channel",
        "ibv_destroy_comp_channel got a completion channel",
        "ibv_create_cq got a completion channel",
        "ibv_bind_mw got the memory window",
        "ibv_post_send got the memory window",
    ] {
        assert!(says.iter().any(|said| said.starts_with(verb)), "{verb}: {says:#?}");
    }
    assert_eq!(says.len(), 10, "{says:#?}");
    PROGRAM.is_silent_on(name, Kind::UsedAfterDestroy);
    PROGRAM.shows_all("sent-to-destroyed", Kind::UsedAfterDestroy, "used");
}

/// Rule: CHK-06
#[test]
fn objects_are_left_when_their_context_closes() {
    PROGRAM.shows(Kind::LeftAtClose, &["closed"]);
}

/// Rule: CHK-07
#[test]
fn objects_are_left_when_the_process_ends() {
    PROGRAM.shows(Kind::LeftAtExit, &[]);
}

/// Rule: CHK-08
#[test]
fn a_thread_posts_after_it_polled_an_error() {
    PROGRAM.shows(Kind::PostedAfterError, &["posted"]);
}

/// Rule: CHK-20
#[test]
fn a_full_send_queue_has_nothing_signaled() {
    PROGRAM.shows(Kind::NothingSignaled, &["posted"]);
}

/// Rule: CHK-21
#[test]
fn a_send_queue_was_full() {
    let found = PROGRAM.shows(Kind::QueueFull, &[]);
    let says = " was full: it held 16 requests, and was asked for 16.";
    assert!(
        found.says.starts_with("The send queue of ") && found.says.ends_with(says),
        "{found:?}"
    );
}

/// Rule: CHK-21
#[test]
fn a_completion_queue_was_full() {
    let name = "completions-full";
    let found = PROGRAM.run(&[name, "wrong"]);
    let [full] = &found[..] else { panic!("{found:#?}") };
    let says = " was full: it held 16 completions, and was asked for 16.";
    assert!(full.says.starts_with("Completion queue ") && full.says.ends_with(says), "{full:?}");
    assert_eq!(full.kind, Kind::QueueFull);
    PROGRAM.is_silent_on(name, Kind::QueueFull);
}

/// Rule: CHK-22
#[test]
fn a_completion_queue_could_overrun() {
    PROGRAM.shows(Kind::QueueCouldOverrun, &["made"]);
}

/// Rule: CHK-24
#[test]
fn a_message_found_no_receive() {
    let late = PROGRAM.shows(Kind::RanDry, &["late"]);
    is_told_how_often(&late);
    let name = "ran-dry-at-exit";
    let late = PROGRAM.shows_what_is_left(name, Kind::RanDry, "late", "Queue pair 0x");
    is_told_how_often(&late);
}

/// A message had to wait at least once, for a time that is not zero.
fn is_told_how_often(dry: &Finding) {
    let says = dry.says.split_once(" had no receive for a message, ").expect(&dry.says).1;
    let (times, rest) = says.split_once(" time").expect(&dry.says);
    let (_, waits) = rest.split_once(": its peer was asked to wait for ").expect(&dry.says);
    let waits = waits.strip_suffix(" ms in all.").expect(&dry.says);
    let numbers = [times, waits].map(|it| it.parse::<u64>().expect("a number"));
    assert!(numbers.iter().all(|it| *it >= 1), "{dry:?}");
}

/// Rule: CHK-25
#[test]
fn refused_receives_are_forgotten() {
    PROGRAM.shows(Kind::RefusedAndDropped, &["refused"]);
}

/// Rule: CHK-23
#[test]
fn more_is_used_than_was_asked_for() {
    PROGRAM.shows(Kind::BeyondAsked, &["posted"]);
}

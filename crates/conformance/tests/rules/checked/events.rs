//! What `transom check` finds where programs wait for events.

use std::sync::LazyLock;

use transom_check::Kind;
use transom_conformance::checked::Checked;

static PROGRAM: LazyLock<Checked> =
    LazyLock::new(|| Checked::new("events", env!("CARGO_TARGET_TMPDIR"), &["-libverbs"]));

/// Rule: CHK-50
#[test]
fn a_thread_sleeps_on_what_came_before_it_asked() {
    PROGRAM.shows(Kind::SleepsOnCompletions, &["armed", "sleeps"]);
}

/// Rule: CHK-50
#[test]
fn a_thread_sleeps_for_a_queue_that_was_never_armed() {
    let found = PROGRAM.run(&["never-armed", "wrong"]);
    assert_eq!(found[0].kind, Kind::SleepsOnCompletions, "{found:#?}");
    assert!(found[0].says.contains("never armed"), "{found:#?}");
    assert_eq!(PROGRAM.run(&["never-armed", "right"]), []);
}

static SLEEPS: LazyLock<Checked> =
    LazyLock::new(|| Checked::new("sleeps", env!("CARGO_TARGET_TMPDIR"), &["-libverbs"]));

/// Rule: CHK-50
#[test]
fn a_thread_sleeps_in_poll_for_a_queue_that_was_not_armed_again() {
    SLEEPS.shows(Kind::SleepsOnCompletions, &["sleeps"]);
}

/// Rule: CHK-50
#[test]
fn a_thread_sleeps_in_select_or_epoll() {
    for case in ["sleeps-in-select", "sleeps-in-epoll"] {
        let kinds: Vec<_> = SLEEPS.run(&[case, "wrong"]).iter().map(|it| it.kind).collect();
        assert_eq!(kinds, [Kind::SleepsOnCompletions], "{case}");
        assert_eq!(SLEEPS.run(&[case, "right"]), [], "{case}");
    }
}

/// The event that Transom has for the message is held until it is seen that the thread sleeps.
///
/// Rules: CHK-50, CQ-10
#[test]
fn a_thread_sleeps_in_epoll_for_what_came_before_it_armed() {
    let found = SLEEPS.shows_all("armed-late", Kind::SleepsOnCompletions, "armed");
    assert!(found[0].says.starts_with("A thread sleeps in epoll_wait while"), "{found:#?}");
    assert!(found[0].says.contains("came before it was armed"), "{found:#?}");
}

/// Rule: CHK-51
#[test]
fn a_thread_sleeps_until_its_time_out() {
    SLEEPS.shows(Kind::SleepsBeside, &["sleeps"]);
}

/// Rule: CHK-51
#[test]
fn a_thread_sleeps_for_something_else_too() {
    let kinds: Vec<_> =
        SLEEPS.run(&["sleeps-beside-a-pipe", "wrong"]).iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [Kind::SleepsBeside]);
    assert_eq!(SLEEPS.run(&["sleeps-beside-a-pipe", "right"]), []);
}

/// Rules: CHK-50, CHK-51
#[test]
fn a_thread_that_hands_a_queue_to_another_one_does_not_sleep_for_its_completions() {
    let slow: Vec<_> = SLEEPS.run(&["dispatches", "wrong"]).iter().map(|it| it.kind).collect();
    assert_eq!(slow, [Kind::SleepsBeside]);
    assert_eq!(SLEEPS.run(&["dispatches", "right"]), []);
    assert_eq!(SLEEPS.run(&["arms-for-another", "right"]), []);
}

/// Rules: CHK-50, CQ-10
#[test]
fn a_thread_that_knows_of_an_event_does_not_sleep() {
    for form in ["wrong", "right"] {
        assert_eq!(SLEEPS.run(&["looks-before", form]), []);
    }
}

/// Rule: CHK-31
#[test]
fn a_thread_waits_for_itself() {
    PROGRAM.shows(Kind::OwnAck, &["got", "waits"]);
}

/// Rule: CHK-30
#[test]
fn a_destroy_waits_long_for_an_acknowledgement() {
    let found = PROGRAM.shows(Kind::WaitsForAck, &["got"]);
    assert!(found.says.contains("has waited for a second"), "{found:#?}");
    assert!(found.sites.iter().any(|site| site.what == "it waits here"), "{found:#?}");
}

/// Rule: CHK-30
#[test]
fn a_thread_waits_for_an_event_that_it_has_itself_beside_another_thread() {
    const NAME: &str = "own-ack-beside-a-thread";
    let found = PROGRAM.shows_all(NAME, Kind::WaitsForAck, "own");
    assert!(found.iter().all(|it| it.says.contains("that its own thread got")), "{found:#?}");
}

/// Rule: CHK-32
#[test]
fn events_are_never_acknowledged() {
    PROGRAM.shows(Kind::NeverAcked, &["got"]);
}

/// Rule: CHK-03
#[test]
fn an_error_is_not_polled() {
    PROGRAM.shows(Kind::ErrorUnread, &["posted", "destroyed"]);
}

/// Rule: CHK-03
#[test]
fn an_error_is_not_polled_before_the_device_is_closed() {
    PROGRAM.shows_what_is_left(
        "error-unread-at-close",
        Kind::ErrorUnread,
        "unread",
        "The device is closed before the error of queue pair 0x",
    );
}

/// Rule: CHK-09
#[test]
fn a_fatal_event_is_not_read() {
    PROGRAM.shows(Kind::AsyncUnread, &["destroyed"]);
}

/// By `exit`, or by one in the handler of a signal.
/// Rules: CHK-03, CHK-09
#[test]
fn what_nobody_read_is_told_of_a_process_that_just_exits() {
    PROGRAM.shows_what_is_left(
        "error-unread-at-exit",
        Kind::ErrorUnread,
        "posted",
        "The process ends before the error of queue pair 0x",
    );
    PROGRAM.shows_what_is_left(
        "async-unread-at-exit",
        Kind::AsyncUnread,
        "",
        "IBV_EVENT_QP_ACCESS_ERR of queue pair 0x",
    );
}

/// Rule: CHK-34
#[test]
fn more_is_acknowledged_than_was_got() {
    PROGRAM.shows(Kind::AckedTooMuch, &["acknowledged"]);
}

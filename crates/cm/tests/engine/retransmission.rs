//! Lost and repeated messages, and slow programs.

use super::network::*;
use transom_cm::{ConnectionState, Handled, Happened, Refused, Service, Timing};
use transom_wire::cm::message::Answered;
use transom_wire::cm::{Message, RejectReason};

/// Rules: CM-14, CM-15, CM-27, CM-33
#[test]
fn a_req_that_nobody_answers_is_given_up_after_74_seconds() {
    let mut network = Network::with_listener();
    let active = network.connect(0, 1, Service::TCP, 1);
    let first = network.outgoing(0);
    for _ in 0..15 {
        assert_eq!(network.skip(), 4608 * MILLISECOND);
        assert_eq!(network.outgoing(0), first);
    }
    assert_eq!(network.skip(), 4608 * MILLISECOND);
    assert_eq!(network.now - 5 * SECOND, 73_728 * MILLISECOND);
    let sent = network.outgoing(0);
    let Message::Rej(rej) = message(&sent) else { panic!() };
    assert_eq!(rej.timed_out(), Some(config(0).node_guid));
    let event = network.event(0);
    assert_eq!((&event, event.happened.status()), (&unreachable(active), -110));
    assert_eq!(network.ends[0].engine.connection_state(active), Some(ConnectionState::Over));
    network.finish();
}

/// Rules: CM-43
#[test]
fn who_wants_to_wait_for_two_seconds_waits_for_two_seconds() {
    let timing = Timing::giving_up_after(2_000);
    let mut network = Network::with(2, |end| transom_cm::Config { timing, ..config(end) });
    network.listen(1, Service::TCP, 10);
    let active = network.connect(0, 1, Service::TCP, 1);
    let begin = network.now;
    network.pass(1_999 * MILLISECOND, |_| true);
    assert_eq!(network.ends[0].engine.connection_state(active), Some(ConnectionState::RequestSent));
    assert_eq!(network.sent.len(), 16);
    network.pass(MILLISECOND, |_| true);
    assert_eq!(network.event(0), unreachable(active));
    // The same for a slow program, however much time an MRA asks for.
    network.said();
    let active = network.connect(0, 1, Service::TCP, 1);
    let begin = (begin, network.now);
    network.requested(1);
    while network.ends[0].engine.connection_state(active) == Some(ConnectionState::RequestSent) {
        network.skip();
        network.run();
    }
    assert_eq!(network.now - begin.1, 2_000 * MILLISECOND);
    assert!(network.said().contains(&"MRA"));
    assert_eq!(network.event(0), unreachable(active));
    network.finish();
}

/// Rules: CM-08, CM-16, CM-17
#[test]
fn a_program_that_takes_its_time_is_waited_for() {
    let (mut network, active, passive) = Network::with_request();
    network.said();
    // A repeated REQ is no new request, and an MRA asks for 65.5 s.
    assert_eq!(network.skip(), 4608 * MILLISECOND);
    network.no_events();
    assert_eq!(network.said(), ["REQ", "MRA"]);
    assert_eq!(network.skip(), (65_536 + 512) * MILLISECOND);
    network.no_events();
    assert_eq!(network.said(), ["REQ", "MRA"]);
    // The second MRA changes nothing.
    assert_eq!(network.skip(), (65_536 + 512) * MILLISECOND);
    network.run();
    network.accept(1, passive, 2);
    let event = network.event(0);
    assert!(matches!(event.happened, Happened::ConnectResponse { .. }));
    network.said();
    // The same at the other end: the REP is repeated while the program makes its queue pair ready.
    assert_eq!(network.skip(), 4096 * MILLISECOND);
    network.no_events();
    assert_eq!(network.said(), ["REP", "MRA"]);
    network.ends[0].engine.establish(active).unwrap();
    assert_eq!(network.event(1).happened, Happened::Established);
    network.finish();
}

/// Rules: CM-16
#[test]
fn an_mra_for_the_wrong_message_is_ignored() {
    let (mut network, ..) = Network::with_request();
    assert_eq!(network.skip(), 4608 * MILLISECOND);
    let req = network.outgoing(0).remove(0);
    network.deliver(&req);
    let mut mra = network.outgoing(1).remove(0);
    let Message::Mra(said) = &mut mra.mad.message else { panic!() };
    said.answered = Answered::Rep;
    assert_eq!(network.deliver(&mra), Handled::Unknown);
    assert_eq!(network.skip(), 4608 * MILLISECOND);
    network.finish();
}

/// Rules: CM-08, CM-17
#[test]
fn a_req_that_comes_again_does_not_bring_the_rep_again() {
    let mut network = Network::with_listener();
    network.connect(0, 1, Service::TCP, 1);
    let req = network.outgoing(0).remove(0);
    network.deliver(&req);
    let passive = network.requested(1);
    network.accept(1, passive, 2);
    let rep = network.outgoing(1);
    assert_eq!(network.deliver(&req), Handled::Duplicate(passive));
    assert_eq!(network.outgoing(1), []);
    // The REP's own timer repeats it, with the same bytes.
    assert_eq!(network.skip(), 4096 * MILLISECOND);
    assert_eq!(network.outgoing(1), rep);
    network.finish();
}

/// Rules: CM-18
#[test]
fn an_rtu_that_is_lost_is_sent_again_for_a_rep() {
    let (mut network, active, passive) = Network::with_reply();
    network.ends[0].engine.establish(active).unwrap();
    network.run_but(is("RTU"));
    assert_eq!(network.ends[1].engine.connection_state(passive), Some(ConnectionState::ReplySent));
    network.said();
    network.skip();
    assert_eq!(network.event(1).happened, Happened::Established);
    assert_eq!(network.said(), ["REP", "RTU"]);
    network.no_events();
    network.finish();
}

/// Rules: CM-47
#[test]
fn data_before_the_rtu_says_that_the_connection_stands() {
    let (mut network, active, passive) = Network::with_request();
    assert!(matches!(network.ends[1].engine.notify(passive), Err(Refused::State { .. })));
    network.accept(1, passive, 2);
    network.event(0);
    network.ends[0].engine.establish(active).unwrap();
    let rtu = network.outgoing(0).remove(0);
    network.ends[1].engine.notify(passive).unwrap();
    assert_eq!(network.event(1).happened, Happened::Established);
    assert_eq!(network.ends[1].engine.notify(passive), Err(Refused::Connected));
    assert_eq!(network.deliver(&rtu), Handled::Unknown);
    network.no_events();
    assert_eq!(network.ends[1].engine.poll_timeout(), None);
    network.finish();
}

/// Rules: CM-27, CM-33
#[test]
fn a_rep_that_nobody_confirms_is_given_up_at_both_ends() {
    let (mut network, active, passive) = Network::with_reply();
    network.ends[0].engine.establish(active).unwrap();
    network.pass(65_535 * MILLISECOND, is("RTU"));
    assert_eq!(network.ends[1].engine.connection_state(passive), Some(ConnectionState::ReplySent));
    network.pass(MILLISECOND, is("RTU"));
    assert_eq!(network.event(1), unreachable(passive));
    let event = network.event(0);
    assert_eq!(reason(&event, active), RejectReason::Timeout);
    network.finish();
}

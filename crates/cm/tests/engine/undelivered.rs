//! Messages that reach nobody, as the network reports.

use super::network::*;
use transom_cm::{Event, Handled, Happened, Nobody, Service, Transmit};
use transom_wire::cm::{CommId, Message};

/// The times from a try that reaches nobody to the next, in milliseconds.
const PAUSES: [u64; 4] = [100, 200, 400, 800];

/// The network reports to end 0 that this message has reached nobody.
fn undelivered(network: &mut Network, transmit: &Transmit, why: Nobody) -> Handled {
    let (now, bytes) = (network.now, transmit.mad.write());
    network.ends[0].engine.undelivered(now, transmit.destination, &bytes, why)
}

/// The only message that end 0 has sent.
fn only(network: &mut Network) -> Transmit {
    let [transmit] = &network.outgoing(0)[..] else { panic!("one message") };
    transmit.clone()
}

/// A host may have no process yet, or none any more. A program that starts meanwhile gets one of the tries.
///
/// Rules: CM-70
#[test]
fn a_request_that_comes_to_nobody_is_tried_again_soon_and_then_given_up() {
    for (service, datagram) in [(Service::TCP, false), (Service::UDP, true)] {
        for why in [Nobody::NoProcess, Nobody::NoWay] {
            let mut network = Network::new(2);
            let active = network.connect(0, 1, service, 1);
            for pause in PAUSES {
                let request = only(&mut network);
                assert_eq!(undelivered(&mut network, &request, why), Handled::Taken(active));
                assert_eq!(undelivered(&mut network, &request, why), Handled::Taken(active));
                assert_eq!(network.skip(), pause * MILLISECOND);
            }
            let unanswered = network.ends[0].engine.unanswered(active).expect("it waits");
            assert_eq!((unanswered.sent, unanswered.in_vain), (5, 4));
            assert_eq!(network.now - unanswered.since, PAUSES.iter().sum::<u64>() * MILLISECOND);
            let request = only(&mut network);
            undelivered(&mut network, &request, why);
            let happened = match why {
                Nobody::NoProcess => Happened::NobodyThere { datagram },
                Nobody::NoWay => Happened::Unreachable,
            };
            let (code, status) = match (why, datagram) {
                (Nobody::NoProcess, false) => (8, 8),
                (Nobody::NoProcess, true) => (7, 1),
                (Nobody::NoWay, _) => (7, -110),
            };
            assert_eq!((happened.code(), happened.status()), (code, status));
            let event = network.ends[0].engine.poll_event();
            assert_eq!(event, Some(Event { id: active, happened }));
            assert_eq!(network.ends[0].engine.unanswered(active), None);
            assert_eq!(undelivered(&mut network, &request, why), Handled::Unknown);
            assert!(network.outgoing(0).is_empty());
            network.finish();
        }
    }
}

/// Rules: CM-70
#[test]
fn a_program_that_starts_between_two_tries_is_connected_to() {
    let mut network = Network::new(2);
    let active = network.connect(0, 1, Service::TCP, 1);
    for _ in 0..2 {
        let request = only(&mut network);
        undelivered(&mut network, &request, Nobody::NoProcess);
        network.skip();
    }
    network.listen(1, Service::TCP, 10);
    let passive = network.requested(1);
    network.accept(1, passive, 2);
    let event = network.event(0);
    assert!(event.id == active && matches!(event.happened, Happened::ConnectResponse { .. }));
    network.finish();
}

/// Hosts limit the rate of reports, so one report counts for all requests to that host.
///
/// Rules: CM-70
#[test]
fn all_requests_to_a_host_learn_that_nobody_is_there() {
    let mut network = Network::new(3);
    let same = [1, 2].map(|number| network.connect(0, 1, Service::TCP, number));
    let other = network.connect(0, 2, Service::TCP, 3);
    for tries in 0..5 {
        let sent = network.outgoing(0);
        assert_eq!(sent.len(), if tries == 0 { 3 } else { 2 });
        let request = sent.iter().find(|it| it.destination == address(1)).expect("there is one");
        undelivered(&mut network, request, Nobody::NoProcess);
        if tries < 4 {
            network.skip();
        }
    }
    let engine = &mut network.ends[0].engine;
    let told: Vec<CommId> = std::iter::from_fn(|| engine.poll_event()).map(|it| it.id).collect();
    assert_eq!(told, same);
    assert!(network.ends[0].engine.connection_state(other).is_some());
    network.finish();
}

/// A report must contain the whole message, which must be unanswered, with its sender and its destination.
///
/// Rules: CM-70
#[test]
fn what_a_stranger_says_of_a_message_is_not_believed() {
    let mut network = Network::new(3);
    network.listen(1, Service::TCP, 10);
    let active = network.connect(0, 1, Service::TCP, 1);
    let request = only(&mut network);
    let elsewhere = Transmit { destination: address(2), ..request.clone() };
    let mut changed = request.clone();
    let Message::Req(req) = &mut changed.mad.message else { panic!("a REQ") };
    req.private_data[60] ^= 1;
    let mut of_another = request.clone();
    let Message::Req(req) = &mut of_another.mad.message else { panic!("a REQ") };
    req.local_id = CommId(req.local_id.0 ^ 1);
    let mut later = request.clone();
    later.mad.transaction ^= 1;
    for forged in [elsewhere, changed, of_another, later] {
        for _ in 0..5 {
            let handled = undelivered(&mut network, &forged, Nobody::NoProcess);
            assert_eq!(handled, Handled::Unknown);
        }
    }
    network.deliver(&request);
    let passive = network.requested(1);
    network.accept(1, passive, 2);
    network.event(0);
    // A report for an answered message.
    for _ in 0..5 {
        let handled = undelivered(&mut network, &request, Nobody::NoProcess);
        assert_eq!(handled, Handled::Unknown);
    }
    network.ends[0].engine.establish(active).unwrap();
    network.event(1);
    network.finish();
}

/// If a process was there before and is not any more, it has ended, and the connection too.
///
/// Rules: CM-70
#[test]
fn an_end_or_an_answer_that_comes_to_nobody_ends_the_connection_at_once() {
    let mut network = Network::new(2);
    let listener = network.listen(1, Service::TCP, 10);
    let (active, passive) = network.connected(1);
    network.ends[0].engine.disconnect(active, network.now).unwrap();
    let end = only(&mut network);
    // There may be a route again later.
    undelivered(&mut network, &end, Nobody::NoWay);
    assert_eq!(network.ends[0].engine.poll_event(), None);
    undelivered(&mut network, &end, Nobody::NoProcess);
    let event = network.ends[0].engine.poll_event();
    let happened = Happened::Disconnected { timed_out: false };
    assert_eq!(event, Some(Event { id: active, happened }));
    network.destroy(0, active);
    network.destroy(1, passive);
    network.outgoing(1);

    // If the id is gone, nothing is left of the connection.
    let (active, passive) = network.connected(3);
    network.destroy(0, active);
    let end = only(&mut network);
    undelivered(&mut network, &end, Nobody::NoProcess);
    assert_eq!(network.ends[0].engine.lingering().count(), 0);
    network.destroy(1, passive);
    network.outgoing(1);
    network.destroy(1, listener);

    // An answer to a process that has asked and then ended.
    network.listen(0, Service::TCP, 10);
    network.connect(1, 0, Service::TCP, 5);
    let passive = network.requested(0);
    network.accept(0, passive, 6);
    let answer = only(&mut network);
    undelivered(&mut network, &answer, Nobody::NoProcess);
    let event = network.ends[0].engine.poll_event();
    assert_eq!(event, Some(Event { id: passive, happened: Happened::Unreachable }));
    network.finish();
}

/// Rules: CM-27, CM-32
#[test]
fn a_request_is_given_up_as_after_its_last_try() {
    let (mut network, active, passive) = Network::with_request();
    network.said();
    network.ends[0].engine.give_up(active, 0);
    assert_eq!(network.event(0), unreachable(active));
    assert_eq!(network.said(), ["REJ"]);
    network.ends[0].engine.give_up(active, 0);
    assert_eq!(network.ends[0].engine.poll_event(), None);
    network.destroy(1, passive);

    let active = network.connect(0, 1, Service::UDP, 5);
    assert_eq!(network.outgoing(0).len(), 1, "the request, which is lost");
    network.ends[0].engine.give_up(active, 0);
    assert_eq!(network.event(0), unreachable(active));
    assert!(network.outgoing(0).is_empty());
    network.finish();
}

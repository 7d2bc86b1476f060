//! Requests that come before their listener listens.

use super::network::*;
use transom_cm::{ConnectionState, Engine, Event, Handled, Happened, Service};
use transom_wire::cm::{Bits, CommId, Message, RejectReason, SidrStatus};

/// How long a request waits.
const WAIT: u64 = 100 * MILLISECOND;

fn listens(network: &mut Network, id: CommId) {
    let (End { engine, host, .. }, now) = (&mut network.ends[1], network.now);
    engine.listen(id, 10, now, host).unwrap();
}

/// A server may tell its port before it listens there.
///
/// Rules: CM-56
#[test]
fn a_request_that_comes_before_its_listener_listens_waits_for_it() {
    let mut network = Network::new(2);
    let listener = network.bound(1, Service::TCP);
    let active = network.connect(0, 1, Service::TCP, 1);
    network.no_events();
    assert_eq!((network.handled.pop(), network.said()), (Some(Handled::Waits), vec!["REQ"]));
    network.pass(WAIT - 1, |_| false);
    network.no_events();
    listens(&mut network, listener);
    let passive = network.requested(1);
    assert_eq!(network.answered(1), [Handled::Taken(passive)]);
    network.accept(1, passive, 2);
    assert!(matches!(network.event(0).happened, Happened::ConnectResponse { .. }));
    network.ends[0].engine.establish(active).unwrap();
    assert_eq!(network.event(1), Event { id: passive, happened: Happened::Established });
    network.finish();
}

/// Rules: CM-56
#[test]
fn a_datagram_service_is_waited_for_too() {
    let mut network = Network::new(2);
    let listener = network.bound(1, Service::UDP);
    let active = network.connect(0, 1, Service::UDP, 1);
    network.no_events();
    listens(&mut network, listener);
    let passive = network.requested(1);
    network.accept(1, passive, 2);
    let event = network.event(0);
    assert!(event.id == active && matches!(event.happened, Happened::Resolved { .. }), "{event:?}");
    network.answered(1);
    network.destroy(1, listener);
    network.bound(1, Service::UDP);
    let refused = network.connect(0, 1, Service::UDP, 1);
    network.pass(WAIT, |_| false);
    let (status, private_data) = (SidrStatus::NotSupported, vec![0; 136].into());
    let not_supported = Happened::NotServed { status, private_data };
    assert_eq!(network.event(0), Event { id: refused, happened: not_supported });
    assert_eq!(network.answered(1), [Handled::NotServed(SidrStatus::NotSupported)]);
    network.finish();
}

/// Rules: CM-21, CM-56
#[test]
fn a_request_is_refused_when_it_has_waited_and_nobody_listens() {
    let mut network = Network::new(2);
    network.bound(1, Service::TCP);
    let active = network.connect(0, 1, Service::TCP, 1);
    network.run();
    assert_eq!(network.ends[1].engine.poll_timeout(), Some(network.now + WAIT));
    network.pass(WAIT - 1, |_| false);
    network.no_events();
    network.pass(1, |_| false);
    let Event { id, happened: Happened::Rejected { reason, .. } } = network.event(0) else {
        panic!()
    };
    assert_eq!((id, reason), (active, RejectReason::InvalidServiceId));
    assert_eq!(network.answered(1), [Handled::Refused(reason)]);
    network.finish();
}

/// A server may make a listener for each connection, or may have agreed on datagrams over a connection.
///
/// Rules: CM-56
#[test]
fn where_a_connection_came_a_request_waits_for_the_next_listener() {
    for service in [Service::TCP, Service::UDP] {
        let mut network = Network::new(2);
        let listener = network.listen(1, Service::TCP, 1);
        let (_, first) = network.connected(1);
        network.destroy(1, listener);
        network.connect(0, 1, service, 3);
        network.no_events();
        assert_eq!(network.handled.pop(), Some(Handled::Waits));
        let listener = network.bound(1, service);
        listens(&mut network, listener);
        let second = network.requested(1);
        assert_eq!(network.answered(1), [Handled::Taken(second)]);
        // When the last connection is gone too, requests do not wait.
        for id in [listener, second, first] {
            network.destroy(1, id);
        }
        network.run();
        network.ends[0].events.clear();
        network.connect(0, 1, Service::TCP, 7);
        assert!(matches!(network.event(0).happened, Happened::Rejected { .. }));
        network.finish();
    }
}

/// A request waits only for an id that may listen.
///
/// Rules: CM-21, CM-56
#[test]
fn the_port_of_an_id_that_asks_for_a_connection_refuses_at_once() {
    let mut network = Network::new(2);
    let bound = network.bound(1, Service::TCP);
    let End { engine, host, .. } = &mut network.ends[1];
    engine.resolve_address(bound, None, "10.0.0.1:9".parse().unwrap(), host).unwrap();
    network.connect(0, 1, Service::TCP, 1);
    assert!(matches!(network.event(0).happened, Happened::Rejected { .. }));
    network.finish();
}

/// Rules: CM-27, CM-56
#[test]
fn a_request_whose_sender_has_given_up_waits_no_longer() {
    let mut network = Network::new(2);
    let listener = network.bound(1, Service::TCP);
    let active = network.connect(0, 1, Service::TCP, 1);
    network.run();
    network.destroy(0, active);
    network.run();
    listens(&mut network, listener);
    network.no_events();
    assert_eq!(network.answered(1), []);
    network.finish();
}

/// A repeated request waits only once, and only a few requests of a flood wait.
///
/// Rules: CM-56
#[test]
fn of_a_flood_few_requests_wait() {
    let mut network = Network::new(2);
    let listener = network.bound(1, Service::TCP);
    let honest = network.connect(0, 1, Service::TCP, 0xff_ffff);
    let request = network.outgoing(0).remove(0);
    for _ in 0..1_000 {
        assert_eq!(network.deliver(&request), Handled::Waits);
    }
    for number in 0..20_000_u32 {
        let mut flood = request.clone();
        if let Message::Req(req) = &mut flood.mad.message {
            (req.local_id, req.qpn) = (CommId(number), Bits::low(number));
            req.ca_guid = number.into();
        }
        let waits = network.deliver(&flood) == Handled::Waits;
        assert_eq!(waits, number < 63, "{number}");
        network.outgoing(1);
    }
    let ids = |engine: &Engine| engine.ids().count();
    assert_eq!(ids(&network.ends[1].engine), 1);
    listens(&mut network, listener);
    assert_eq!(ids(&network.ends[1].engine), 11);
    // The first request gets a place in the backlog before the flood.
    let passive = network.requested(1);
    network.accept(1, passive, 2);
    assert!(matches!(network.event(0).happened, Happened::ConnectResponse { .. }));
    let state = network.ends[0].engine.connection_state(honest);
    assert_eq!(state, Some(ConnectionState::ReplyReceived));
    network.ends[1].events.clear();
    let full = network.answered(1);
    let full = full.iter().filter(|it| **it == Handled::BacklogFull(listener)).count();
    assert_eq!(full, 54);
    network.finish();
}

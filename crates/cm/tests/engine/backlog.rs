//! Requests that wait at a listener for its program.

use std::net::{IpAddr, Ipv4Addr};

use super::network::*;
use transom_cm::{Arrival, Claim, ConnectionState, Handled, Host, Ports, Refused, Route, Service};
use transom_wire::cm::{Bits, CommId, Message, PortSpace, RejectReason, ServiceId};

/// Rules: CM-22
#[test]
fn what_finds_the_backlog_full_finds_room_later() {
    let mut network = Network::new(2);
    let listener = network.listen(1, Service::TCP, 2);
    let ids: Vec<_> = (1..=3).map(|number| network.connect(0, 1, Service::TCP, number)).collect();
    network.run();
    assert_eq!(
        network.handled,
        [network.handled[0], network.handled[1], Handled::BacklogFull(listener)]
    );
    assert_eq!(network.ends[1].engine.ids().count(), 3);
    assert_eq!((network.said().len(), network.ends[1].engine.waiting(listener)), (3, Some(2)));
    network.requested(1);
    assert_eq!(network.ends[1].engine.waiting(listener), Some(1));
    network.skip();
    network.run();
    assert_eq!(network.ends[1].engine.waiting(listener), Some(2));
    assert_eq!(network.ends[0].engine.connection_state(ids[2]), Some(ConnectionState::RequestSent));
    // Waiting requests are refused when the listener goes.
    network.ends[1].events.clear();
    network.destroy(1, listener);
    for id in &ids[1..] {
        assert_eq!(reason(&network.event(0), *id), RejectReason::Consumer);
    }
    network.finish();
}

/// Rules: CM-22
#[test]
fn of_a_flood_nothing_is_kept_beyond_the_backlog() {
    let mut network = Network::new(2);
    let listener = network.listen(1, Service::TCP, 8);
    let honest = network.connect(0, 1, Service::TCP, 0xffff);
    let flood = network.outgoing(0).remove(0);
    for number in 0..20_000_u32 {
        let mut req = flood.clone();
        if let Message::Req(req) = &mut req.mad.message {
            (req.local_id, req.qpn) = (CommId(number), Bits::low(number));
            req.ca_guid = number.into();
        }
        let handled = network.deliver(&req);
        assert_eq!(number >= 8, handled == Handled::BacklogFull(listener));
        // One request in a thousand is fetched and refused.
        if number % 1_000 == 999 {
            let event = network.ends[1].engine.poll_event().unwrap();
            let (End { engine, host, .. }, now) = (&mut network.ends[1], network.now);
            engine.fetched(event.id).unwrap();
            engine.reject(event.id, RejectReason::Consumer, &[], now).unwrap();
            engine.destroy(event.id, now, host).unwrap();
            break;
        }
    }
    assert!(network.ends[1].engine.ids().count() <= 9);
    // If nobody listens, answers do not pile up either.
    for number in 0..20_000_u64 {
        let mut req = flood.clone();
        if let Message::Req(req) = &mut req.mad.message {
            req.service = ServiceId::of(PortSpace::Tcp, 1);
            req.ca_guid = number;
        }
        network.deliver(&req);
    }
    assert!(network.outgoing(1).len() < 300);
    // The honest peer's REQ was lost. Its repeat finds room.
    network.skip();
    network.run();
    assert_eq!(network.ends[0].engine.connection_state(honest), Some(ConnectionState::RequestSent));
    assert_eq!(network.ends[1].engine.waiting(listener), Some(8));
    network.finish();
}

/// A peer that sends many requests leaves others their share of the backlog, and no more than that.
///
/// Rules: CM-66
#[test]
fn a_peer_that_floods_a_listener_does_not_keep_others_out() {
    let mut network = Network::new(3);
    let listener = network.listen(1, Service::TCP, 8);
    network.connect(2, 1, Service::TCP, 0xffff);
    let flood = network.outgoing(2).remove(0);
    let forged = |number: u32| {
        let mut forged = flood.clone();
        if let Message::Req(req) = &mut forged.mad.message {
            (req.local_id, req.qpn) = (CommId(number), Bits::low(number));
            req.ca_guid = number.into();
        }
        forged
    };
    let fill = |network: &mut Network, from| {
        for number in from..from + 100 {
            let handled = network.deliver(&forged(number));
            assert_eq!(number >= 8, handled == Handled::BacklogFull(listener));
        }
    };
    fill(&mut network, 0);
    // The first four requests of another peer each displace one of the flood's, and keep their place.
    for number in 1..=6 {
        network.connect(0, 1, Service::TCP, number);
        let request = network.outgoing(0).remove(0);
        let handled = network.deliver(&request);
        match (number, handled) {
            (..=4, Handled::Taken(id)) => {
                fill(&mut network, 1_000);
                assert!(network.ends[1].engine.has(id));
                assert_eq!(network.deliver(&request), Handled::Duplicate(id));
                assert!(matches!(network.outgoing(1)[..], [ref it] if is("MRA")(it)));
            }
            (5.., Handled::BacklogFull(full)) => assert_eq!(full, listener),
            other => panic!("{other:?}"),
        }
        assert_eq!(network.ends[1].engine.waiting(listener), Some(8));
        assert_eq!(network.ends[1].engine.ids().count(), 9);
    }
    // Nobody is told of the displaced requests: not the program, and not the peer, which repeats them.
    assert_eq!(network.outgoing(1), []);
    for _ in 0..8 {
        network.run();
        let id = network.requested(1);
        assert!(network.ends[1].engine.has(id));
    }
    assert!(matches!(network.deliver(&forged(7)), Handled::Taken(_)));
    assert!(matches!(network.deliver(&forged(0)), Handled::Duplicate(_)));
    network.finish();
}

/// If every waiting request has another source, none is displaced.
///
/// Rules: CM-66
#[test]
fn among_equals_nobody_makes_way() {
    let mut network = Network::new(6);
    let listener = network.listen(0, Service::TCP, 4);
    for from in 1..=5 {
        network.connect(from, 0, Service::TCP, from as u32);
        let request = network.outgoing(from).remove(0);
        let handled = network.deliver(&request);
        assert_eq!(from == 5, handled == Handled::BacklogFull(listener), "{handled:?}");
    }
    network.finish();
}

/// A host that answers all of 127.0.0.0/8 from 127.0.0.1, as its kernel routes it.
#[derive(Debug)]
struct Loopback(Ports);

impl Host for Loopback {
    fn claim(&mut self, claim: Claim) -> Result<u16, Refused> {
        self.0.claim(claim)
    }

    fn is_v6_only(&self) -> bool {
        self.0.is_v6_only()
    }

    fn change(&mut self, claim: Claim) -> Result<(), Refused> {
        self.0.change(claim)
    }

    fn listen(&mut self, claim: Claim) -> Result<(), Refused> {
        self.0.listen(claim)
    }

    fn is_here(&self, address: IpAddr) -> bool {
        self.0.is_here(address)
    }

    fn ids_at(&mut self, space: PortSpace, port: u16) -> Vec<CommId> {
        self.0.ids_at(space, port)
    }

    fn release(&mut self, claim: Claim) {
        self.0.release(claim);
    }

    fn route(&mut self, source: IpAddr, _: IpAddr) -> Option<Route> {
        self.0.route(source, Ipv4Addr::LOCALHOST.into())
    }
}

/// Shares go by the source of requests. The address for the answers may be another one.
///
/// Rules: CM-22, CM-66
#[test]
fn a_backlog_stays_full_where_many_sources_are_answered_at_one_address() {
    let here = Ipv4Addr::LOCALHOST;
    let mut network = Network::new(2);
    network.ends[1].host = Ports::new([here.into()]);
    let listener = network.listen(1, Service::TCP, 4);
    network.connect(0, 1, Service::TCP, 0xffff);
    let template = network.outgoing(0).remove(0).mad;
    let mut host = Loopback(network.ends[1].host.clone());
    let mut ask = |network: &mut Network, number: u8| {
        let source = Ipv4Addr::new(127, 0, 1, number);
        let mut mad = template.clone();
        let Message::Req(req) = &mut mad.message else { panic!("{mad:?}") };
        (req.local_id, req.qpn) = (CommId(number.into()), Bits::low(number.into()));
        req.primary.local_gid = source.to_ipv6_mapped().octets();
        req.primary.remote_gid = here.to_ipv6_mapped().octets();
        let arrival = Arrival { source: source.into(), destination: here.into() };
        network.ends[1].engine.handle(network.now, arrival, &mad.write(), &mut host)
    };
    let taken: Vec<CommId> = (0..4)
        .map(|number| match ask(&mut network, number) {
            Handled::Taken(id) => id,
            other => panic!("{other:?}"),
        })
        .collect();
    // Every waiting request has another source.
    for number in 4..100 {
        assert_eq!(ask(&mut network, number), Handled::BacklogFull(listener));
        assert_eq!(network.ends[1].engine.waiting(listener), Some(4));
    }
    // Each fetched request frees one place, and no more.
    for (number, id) in (100..).zip(taken) {
        network.ends[1].engine.fetched(id).unwrap();
        assert_eq!(network.ends[1].engine.waiting(listener), Some(3));
        assert!(matches!(ask(&mut network, number), Handled::Taken(_)));
        assert_eq!(ask(&mut network, number + 100), Handled::BacklogFull(listener));
    }
    assert_eq!(network.ends[1].engine.poll_displaced(), None);
}

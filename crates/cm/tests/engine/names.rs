//! The names of peers: addresses, queue pairs, communication ids, and a node GUID that anybody may claim.

use std::net::IpAddr;

use super::network::*;
use transom_cm::{Arrival, ConnectionState, Engine, Event, Handled, Happened, Service, Transmit};
use transom_wire::cm::service::Addresses;
use transom_wire::cm::{Bits, Ignored, IpHeader, Message, RejectReason};

/// Rules: CM-19, CM-26
#[test]
fn a_queue_pair_that_is_connected_anew_ends_the_connection_before() {
    let (mut network, _, passive) = Network::with_connection();
    // The client's process dies, and another one gets the same queue pair.
    network.ends[0].engine = Engine::new(transom_cm::Config { seed: 99, ..config(0) });
    let active = network.connect(0, 1, Service::TCP, 1);
    network.run_but(|_| false);
    assert_eq!(network.said(), ["REQ", "REJ", "DREQ", "DREP"]);
    assert_eq!(reason(&network.event(0), active), RejectReason::StaleConnection);
    assert_eq!(network.event(1), disconnected(passive, false));
    // A time wait without an earlier connection gives no event.
    network.pass(SECOND, |_| false);
    assert_eq!(network.event(1).happened, Happened::TimewaitExit);
    network.no_events();
    let active = network.connect(0, 1, Service::TCP, 1);
    network.requested(1);
    assert_eq!(network.ends[0].engine.connection_state(active), Some(ConnectionState::RequestSent));
    network.ends[0].host.release_slot(config(0).slot);
    network.ends[0].engine = Engine::new(config(0));
    network.finish();
}

/// Rules: CM-19
#[test]
fn a_rep_with_a_queue_pair_of_another_connection_is_refused() {
    let (mut network, first, _) = Network::with_connection();
    // The server's process dies, and another one gets the same queue pair.
    network.ends[1].host = transom_cm::Ports::new([address(1)]);
    network.ends[1].engine = Engine::new(transom_cm::Config { seed: 99, ..config(1) });
    network.listen(1, Service::TCP, 10);
    let active = network.connect(0, 1, Service::TCP, 3);
    let passive = network.requested(1);
    network.accept(1, passive, 2);
    network.run();
    let names = network.sent.iter().map(|(_, transmit)| transmit.mad.message.name());
    assert_eq!(names.collect::<Vec<_>>(), ["REQ", "REP", "REJ", "DREQ", "DREP"]);
    assert_eq!(reason(&network.event(1), passive), RejectReason::StaleConnection);
    assert_eq!(network.event(0), disconnected(first, false));
    assert_eq!(network.ends[0].engine.connection_state(active), Some(ConnectionState::RequestSent));
    assert_eq!(network.ends[1].engine.connection_state(passive), Some(ConnectionState::TimeWait));
    // A delayed copy of that REP arrives when the old connection is gone.
    let sent = network.sent.iter().map(|(_, transmit)| transmit);
    let rep = sent.clone().find(|transmit| is("REP")(transmit)).cloned().unwrap();
    let stale = Handled::Refused(RejectReason::StaleConnection);
    assert_eq!(network.deliver(&rep), stale);
    assert_eq!(network.ends[0].engine.connection_state(active), Some(ConnectionState::RequestSent));
    network.finish();
}

/// The same REQ from another address, as from a host that has the peer's GUID, queue pair and id by chance.
fn in_the_name_of(peer: &Transmit, elsewhere: usize) -> Transmit {
    let mut transmit = Transmit { source: address(elsewhere), ..peer.clone() };
    let Message::Req(req) = &mut transmit.mad.message else { panic!() };
    let IpAddr::V4(ip) = address(elsewhere) else { panic!() };
    req.primary.local_gid = ip.to_ipv6_mapped().octets();
    let header = req.private_data.first_chunk_mut::<{ IpHeader::BYTES }>().unwrap();
    let IpHeader { source_port, .. } = IpHeader::read(header).unwrap();
    let addresses = Addresses::new(address(elsewhere), peer.destination).unwrap();
    *header = IpHeader { source_port, addresses }.write();
    transmit
}

/// Rules: CM-17, CM-19
#[test]
fn who_names_the_guid_of_another_keeps_nobody_out_and_ends_nothing() {
    for stranger_comes_first in [false, true] {
        let mut network = Network::new(3);
        network.listen(1, Service::TCP, 10);
        let active = network.connect(0, 1, Service::TCP, 1);
        let req = network.outgoing(0).remove(0);
        let forged = in_the_name_of(&req, 2);
        let (first, second) = if stranger_comes_first { (&forged, &req) } else { (&req, &forged) };
        // Each REQ is a connection of its own, and a repeat belongs to its own connection.
        let [one, other] = [first, second].map(|req| {
            let Handled::Taken(id) = network.deliver(req) else { panic!("{:?}", network.handled) };
            assert_eq!(network.deliver(req), Handled::Duplicate(id));
            assert_eq!(network.requested(1), id);
            id
        });
        assert_ne!(one, other);
        let honest = if stranger_comes_first { other } else { one };
        network.accept(1, honest, 2);
        assert_eq!(network.event(0).id, active);
        network.ends[0].engine.establish(active).unwrap();
        assert_eq!(network.event(1), Event { id: honest, happened: Happened::Established });
        // The stranger's REQ has not ended the established connection.
        let state = network.ends[1].engine.connection_state(honest);
        assert_eq!(state, Some(ConnectionState::Established));
        network.finish();
    }
}

/// Rules: CM-27, CM-56
#[test]
fn a_request_that_waits_is_forgotten_for_its_own_sender_alone() {
    let mut network = Network::new(3);
    let listener = network.bound(1, Service::TCP);
    let active = network.connect(0, 1, Service::TCP, 1);
    network.run();
    assert_eq!(network.handled, [Handled::Waits]);
    network.destroy(0, active);
    let rej = network.outgoing(0).remove(0);
    assert!(is("REJ")(&rej));
    let elsewhere = Transmit { source: address(2), ..rej.clone() };
    assert_eq!(network.deliver(&elsewhere), Handled::Unknown);
    let End { engine, host, .. } = &mut network.ends[1];
    engine.listen(listener, 10, network.now, host).unwrap();
    network.requested(1);
    network.finish();
}

/// The new process gets an answer. Without one, it would wait for as long as a REQ is repeated.
///
/// Rules: CM-17, CM-19
#[test]
fn an_id_that_a_peer_gives_anew_ends_the_connection_before() {
    let (mut network, _, passive) = Network::with_connection();
    network.ends[0].engine = Engine::new(config(0));
    network.ends[0].host.release_slot(config(0).slot);
    let active = network.connect(0, 1, Service::TCP, 3);
    network.run();
    assert_eq!(network.said(), ["REQ", "REJ", "DREQ", "DREP"]);
    assert_eq!(reason(&network.event(0), active), RejectReason::StaleConnection);
    assert_eq!(network.event(1), disconnected(passive, false));
    network.finish();
}

/// Rules: CM-20, CM-45, CM-11, CM-12
#[test]
fn what_is_not_from_the_peer_changes_nothing() {
    let mut network = Network::new(3);
    network.listen(1, Service::TCP, 10);
    let (active, passive) = network.connected(1);
    network.ends[0].engine.disconnect(active, network.now).unwrap();
    let dreq = network.outgoing(0).remove(0);
    let dreq_but = |change: &dyn Fn(&mut transom_wire::cm::Dreq)| {
        let mut other = dreq.clone();
        let Message::Dreq(dreq) = &mut other.mad.message else { panic!() };
        change(dreq);
        other
    };
    // Another address, other ids (which get the answer for an unknown connection), another queue pair.
    let elsewhere = Transmit { source: address(2), ..dreq.clone() };
    assert_eq!(network.deliver(&elsewhere), Handled::Unknown);
    assert_eq!(network.deliver(&dreq_but(&|dreq| dreq.local_id.0 ^= 1)), Handled::Unknown);
    assert_eq!(network.deliver(&dreq_but(&|dreq| dreq.remote_id.0 ^= 1)), Handled::Unknown);
    assert_eq!(network.deliver(&dreq_but(&|dreq| dreq.remote_qpn = Bits::MAX)), Handled::Unknown);
    network.run_but(is("DREP"));
    let mut bytes = dreq.mad.write();
    bytes[17] = 0x19;
    let arrival = Arrival { source: address(0), destination: address(1) };
    let alternate = Handled::Ignored(Ignored::AlternatePath);
    assert_eq!(network.deliver_bytes(arrival, &bytes), alternate);
    assert_eq!(
        network.ends[1].engine.connection_state(passive),
        Some(ConnectionState::Established)
    );
    // The transaction may have any number.
    let mut other = dreq.clone();
    other.mad.transaction ^= 0xff;
    assert_eq!(network.deliver(&other), Handled::Taken(passive));
    network.ends[1].engine.disconnect(passive, network.now).unwrap();
    assert_eq!(network.outgoing(1)[0].mad.transaction, other.mad.transaction);
    network.finish();
}

/// Rules: CM-41
#[test]
fn ids_name_their_process_and_are_unlike_each_other() {
    let mut engines = [1, 2].map(|slot| Engine::new(transom_cm::Config::new(slot, 5, 9)));
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..2_000 {
        for (slot, engine) in (1..).zip(&mut engines) {
            let id = engine.create(Service::TCP).unwrap();
            assert_eq!(id.0 >> 24, slot);
            assert!(seen.insert(id));
        }
    }
    let first = Engine::new(transom_cm::Config::new(1, 5, 10)).create(Service::TCP).unwrap();
    assert!(!seen.contains(&first));
}

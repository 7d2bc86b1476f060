//! The calls that a program may make, and the states for them.

use super::network::*;
use transom_cm::{Connect, Refused, Service};
use transom_wire::cm::{CommId, IpHeader, Message, RejectReason, TimeCode};

/// Rules: CM-07
#[test]
fn private_data_that_is_too_long_is_refused() {
    let mut network = Network::with_listener();
    let active = network.resolved(0, 1, Service::TCP);
    let (engine, now) = (&mut network.ends[0].engine, network.now);
    let long = Connect { private_data: &[1; 57], ..request(1) };
    let refused = Err(Refused::PrivateData { given: 57, room: 56 });
    assert_eq!(engine.connect(active, &long, now), refused);
    assert_eq!(engine.poll_transmit(), None);
    engine.connect(active, &Connect { private_data: &[1; 56], ..request(1) }, now).unwrap();
    let passive = network.requested(1);
    let long = transom_cm::Accept { private_data: &[1; 197], ..acceptance(2) };
    let refused = Refused::PrivateData { given: 197, room: 196 };
    assert_eq!(network.ends[1].engine.accept(passive, &long, network.now), Err(refused));
    assert_eq!(refused.errno().0, 22);
    network.accept(1, passive, 2);
    network.finish();
}

#[test]
fn a_call_in_another_state_is_refused_and_changes_nothing() {
    let (mut network, active, passive) = Network::with_connection();
    let now = network.now;
    let End { engine, host, .. } = &mut network.ends[0];
    assert!(matches!(engine.connect(active, &request(1), now), Err(Refused::State { .. })));
    assert!(matches!(engine.accept(active, &acceptance(1), now), Err(Refused::State { .. })));
    assert!(matches!(engine.establish(active), Err(Refused::State { .. })));
    assert!(matches!(engine.listen(active, 1, now, host), Err(Refused::State { .. })));
    assert!(matches!(
        engine.bind(active, "0.0.0.0:0".parse().unwrap(), host),
        Err(Refused::State { .. })
    ));
    assert!(matches!(
        engine.reject(active, RejectReason::Consumer, &[], now),
        Err(Refused::State { .. })
    ));
    assert!(matches!(engine.resolve_route(active, Ok(())), Err(Refused::State { .. })));
    assert_eq!(engine.disconnect(CommId(3), now), Err(Refused::NoSuchId));
    let fresh = engine.create(Service::TCP).unwrap();
    assert!(matches!(engine.disconnect(fresh, now), Err(Refused::State { .. })));
    assert!(matches!(engine.connect(fresh, &request(1), now), Err(Refused::State { .. })));
    let to = "[fd00::2]:1".parse().unwrap();
    engine.bind(fresh, "10.0.0.1:0".parse().unwrap(), host).unwrap();
    assert_eq!(engine.resolve_address(fresh, None, to, host), Err(Refused::Family));
    assert!(matches!(
        network.ends[1].engine.accept(passive, &acceptance(1), now),
        Err(Refused::State { .. })
    ));
    network.no_events();
    assert_eq!(network.said(), [""; 0]);
    network.finish();
}

/// Rules: CM-32, CM-33
#[test]
fn a_way_that_is_not_found_can_be_looked_for_again() {
    use transom_cm::refused::Errno;
    let mut network = Network::new(2);
    let End { engine, host, .. } = &mut network.ends[0];
    let id = engine.create(Service::TCP).unwrap();
    let to = "10.0.0.2:7174".parse().unwrap();
    engine.resolve_address(id, None, to, host).unwrap();
    assert!(matches!(engine.resolve_address(id, None, to, host), Err(Refused::State { .. })));
    engine.address_resolved(id, Err(Errno::ENODEV)).unwrap();
    let event = engine.poll_event().unwrap();
    assert_eq!((event.happened.code(), event.happened.status()), (1, -19));
    engine.resolve_address(id, None, to, host).unwrap();
    let route = transom_cm::Host::route(host, address(0), address(1)).unwrap();
    engine.address_resolved(id, Ok(route)).unwrap();
    engine.resolve_route(id, Err(Errno::ETIMEDOUT)).unwrap();
    engine.resolve_route(id, Ok(())).unwrap();
    let happened: Vec<_> =
        std::iter::from_fn(|| engine.poll_event()).map(|event| event.happened.code()).collect();
    assert_eq!(happened, [0, 3, 2]);
    assert_eq!(engine.source(id).unwrap().ip(), address(0));
    network.finish();
}

/// The call says so, and the id keeps its port.
///
/// Rules: CM-33
#[test]
fn a_destination_without_a_route_is_refused_at_once() {
    use transom_cm::refused::Errno;
    let mut network = Network::new(2);
    let End { engine, host, .. } = &mut network.ends[0];
    let id = engine.create(Service::TCP).unwrap();
    let to = "203.0.113.9:7174".parse().unwrap();
    engine.resolve_address(id, None, to, host).unwrap();
    let refused = engine.has_no_route(id, Errno(101));
    assert_eq!((refused.errno(), engine.poll_event()), (Errno(101), None));
    assert!(refused.to_string().contains("203.0.113.9"), "{refused}");
    let bound = engine.source(id).unwrap();
    assert!(matches!(engine.bind(id, bound, host), Err(Refused::State { is: "is bound", .. })));
    engine.resolve_address(id, None, "10.0.0.2:7174".parse().unwrap(), host).unwrap();
    let route = transom_cm::Host::route(host, address(0), address(1)).unwrap();
    engine.address_resolved(id, Ok(route)).unwrap();
    assert!(matches!(engine.has_no_route(id, Errno(101)), Refused::State { .. }));
    assert_eq!(engine.source(id).unwrap().port(), bound.port());
    network.run();
    network.ends[0].events.clear();
    network.finish();
}

/// Who wants the port later is judged by what is set then.
///
/// Rules: CM-36, CM-38
#[test]
fn options_that_are_set_after_the_address_count() {
    let mut network = Network::new(2);
    let End { engine, host, .. } = &mut network.ends[0];
    let ids: [CommId; 5] = std::array::from_fn(|_| engine.create(Service::TCP).unwrap());
    let at = "10.0.0.1:9000".parse().unwrap();
    engine.bind(ids[0], at, host).unwrap();
    engine.set_reuse_address(ids[1], true, host).unwrap();
    assert_eq!(engine.bind(ids[1], at, host), Err(Refused::InUse));
    engine.set_reuse_address(ids[0], true, host).unwrap();
    engine.bind(ids[1], at, host).unwrap();

    let [any4, any6] = ["0.0.0.0:9001", "[::]:9001"].map(|any| any.parse().unwrap());
    engine.bind(ids[2], any6, host).unwrap();
    assert_eq!(engine.bind(ids[3], any4, host), Err(Refused::Overlaps));
    engine.set_v6_only(ids[2], true, host).unwrap();
    engine.bind(ids[3], any4, host).unwrap();
    engine.set_v6_only(ids[2], false, host).unwrap();
    assert_eq!(engine.listen(ids[3], 1, 0, host), Err(Refused::Overlaps));
    network.finish();
}

/// Rules: CM-36, CM-38
#[test]
fn the_host_says_whether_an_ipv6_wildcard_excludes_ipv4() {
    let mut network = Network::new(2);
    let End { engine, host, .. } = &mut network.ends[0];
    host.v6_only = true;
    let [any4, any6] = ["0.0.0.0:9001", "[::]:9001"].map(|any| any.parse().unwrap());
    let [four, six, both] = std::array::from_fn(|_| engine.create(Service::TCP).unwrap());
    engine.bind(six, any6, host).unwrap();
    engine.bind(four, any4, host).unwrap();
    engine.destroy(six, 0, host).unwrap();
    // What the program says counts.
    engine.set_v6_only(both, false, host).unwrap();
    assert_eq!(engine.bind(both, any6, host), Err(Refused::Overlaps));
    network.finish();
}

/// Rules: CM-36, CM-38
#[test]
fn options_are_set_while_they_matter() {
    let mut network = Network::new(2);
    let End { engine, host, .. } = &mut network.ends[0];
    let at = "10.0.0.1:9000".parse().unwrap();
    let [one, other, udp] =
        [Service::TCP, Service::TCP, Service::UDP].map(|service| engine.create(service).unwrap());
    for id in [one, other] {
        engine.set_reuse_address(id, true, host).unwrap();
        engine.bind(id, at, host).unwrap();
    }
    assert_eq!(engine.listen(one, 1, 0, host), Err(Refused::InUse));
    engine.destroy(other, 0, host).unwrap();
    engine.listen(one, 1, 0, host).unwrap();
    assert!(matches!(engine.set_reuse_address(one, true, host), Err(Refused::State { .. })));
    assert!(matches!(engine.set_v6_only(one, true, host), Err(Refused::State { .. })));
    assert!(matches!(engine.set_ack_timeout(udp, TimeCode::MAX), Err(Refused::Service { .. })));
    engine.set_tos(udp, 0x60).unwrap();
    engine.set_tos(one, 0x60).unwrap();

    let active = network.resolved(0, 1, Service::TCP);
    network.ends[0].engine.set_tos(active, 0x60).unwrap();
    network.ends[0].engine.connect(active, &request(1), network.now).unwrap();
    let sent = network.outgoing(0);
    let Message::Req(req) = message(&sent) else { panic!() };
    assert_eq!((sent[0].traffic_class, req.primary.traffic_class), (0x60, 0x60));
    let header = IpHeader::read(req.private_data.first_chunk().unwrap()).unwrap();
    assert_eq!(header.source_port, network.ends[0].engine.source(active).unwrap().port());
    network.finish();
}

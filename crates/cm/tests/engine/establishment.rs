//! New connections, and the attributes that the exchange of messages gives their queue pairs.

use super::network::*;
use transom_cm::attributes::{Access, AddressVector, Attributes, Path};
use transom_cm::{
    Connect, ConnectionState, Engine, Event, Happened, QpState, Refused, Route, Service,
};
use transom_wire::cm::{Bits, Ece, Message, PathMtu, PortSpace, TimeCode, Transport};

/// Rules: CM-03, CM-32, CM-33, CM-35
#[test]
fn a_connection_is_made_and_ended_in_the_order_that_programs_rely_on() {
    let mut network = Network::new(2);
    let listener = network.listen(1, Service::TCP, 10);
    let active = network.connect(0, 1, Service::TCP, 0x111);
    let event = network.event(1);
    let passive = event.id;
    let Happened::ConnectRequest { listener: from, offer: Some(offer), private_data } =
        event.happened
    else {
        panic!()
    };
    assert_eq!(
        (from, offer.qpn, offer.responder_resources, offer.initiator_depth),
        (listener, qpn(0x111), 2, 4)
    );
    assert_eq!((private_data.len(), &private_data[..8]), (56, &b"please\0\0"[..]));
    network.ends[1].engine.fetched(passive).unwrap();
    network.accept(1, passive, 0x222);

    let event = network.event(0);
    let Happened::ConnectResponse { offer, ref private_data } = event.happened else { panic!() };
    assert_eq!((offer.qpn, offer.responder_resources, offer.initiator_depth), (qpn(0x222), 3, 1));
    assert_eq!((private_data.len(), &private_data[..8]), (196, &b"gladly\0\0"[..]));
    network.no_events();
    network.ends[0].engine.establish(active).unwrap();
    assert_eq!(network.event(1), Event { id: passive, happened: Happened::Established });
    assert_eq!(network.said(), ["REQ", "REP", "RTU"]);
    assert_eq!(network.ends[0].engine.connection_state(active), Some(ConnectionState::Established));

    network.ends[0].engine.disconnect(active, network.now).unwrap();
    assert_eq!(network.event(1), disconnected(passive, false));
    // The program confirms the end, not the engine.
    network.no_events();
    assert_eq!(network.said(), ["DREQ"]);
    network.ends[1].engine.disconnect(passive, network.now).unwrap();
    assert_eq!(network.event(0), disconnected(active, false));
    assert_eq!(network.said(), ["DREP"]);
    network.pass(512 * MILLISECOND, |_| false);
    for (end, id) in [(0, active), (1, passive)] {
        assert_eq!(network.event(end), Event { id, happened: Happened::TimewaitExit });
    }
    network.no_events();
    assert_eq!(network.ends[0].engine.poll_timeout(), None);
    network.finish();
}

/// The REQ of rping on Linux, with the same numbers except the random ones.
///
/// Rules: CM-04, CM-05, CM-06, CM-07, CM-14, CM-38, CM-48
#[test]
fn a_req_says_what_linux_says() {
    let mut network = Network::new(2);
    let engine = &mut network.ends[0].engine;
    let id = engine.create(Service::TCP).unwrap();
    // The captured kernel used packet life time 18.
    engine.set_ack_timeout(id, TimeCode::new(19).unwrap()).unwrap();
    let to = "10.0.0.2:7174".parse().unwrap();
    let End { engine, host, .. } = &mut network.ends[0];
    engine.resolve_address(id, Some("10.0.0.1:35022".parse().unwrap()), to, host).unwrap();
    let route = transom_cm::Host::route(host, address(0), address(1)).unwrap();
    engine.address_resolved(id, Ok(route)).unwrap();
    engine.resolve_route(id, Ok(())).unwrap();
    let with = Connect {
        qpn: qpn(0x3c),
        responder_resources: 1,
        initiator_depth: 1,
        retry_count: Bits::MAX,
        rnr_retry_count: Bits::MAX,
        ..Connect::default()
    };
    engine.connect(id, &with, 0).unwrap();
    let sent = network.outgoing(0);
    let Message::Req(req) = message(&sent) else { panic!() };
    let written = sent[0].mad.write();

    let captured = "
        01070203 00000000 00000002 0f18b8ba 00100000 00000000 bab8180f 00000000 00000000 01061c06
        505400ff fe770066 00000000 00000000 00003c01 00000001 000000a0 126003a7 ffff37f0 ffffffff
        00000000 00000000 0000ffff 0a4d0066 00000000 00000000 0000ffff 0a4d0065 0acf8000 00400098";
    let digits: Vec<_> = captured.chars().filter_map(|digit| digit.to_digit(16)).collect();
    let mut expected: Vec<_> =
        digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect();
    assert_eq!(expected.len(), 24 + 96);
    // The transaction, the id, the GUID, the PSN and the hosts' addresses differ.
    for range in [8..16, 24..28, 40..48, 68..71, 92..96, 108..112] {
        expected[range.clone()].copy_from_slice(&written[range]);
    }
    assert_eq!(&written[..24 + 96], expected);
    assert_eq!(written[24 + 96..24 + 140], [0; 44]);
    assert_eq!(written[24 + 140..24 + 144], [0, 0x40, 0x88, 0xce]);
    assert_eq!(sent[0].mad.transaction as u32, req.local_id.0);
    assert_eq!((sent[0].hop_limit, sent[0].traffic_class), (64, 0));
}

/// Each end has its own, whatever the messages have agreed on, and none from its listener.
///
/// Rules: CM-34, CM-38
#[test]
fn the_ack_timeout_that_a_program_sets_is_that_of_its_queue_pair() {
    let code = |code| TimeCode::new(code).unwrap();
    for set in [[None, None], [Some(14), None], [None, Some(9)], [Some(0), Some(31)]] {
        let mut network = Network::new(2);
        let listener = network.listen(1, Service::TCP, 10);
        network.ends[1].engine.set_ack_timeout(listener, code(25)).unwrap();
        let active = network.resolved(0, 1, Service::TCP);
        if let Some(timeout) = set[0] {
            network.ends[0].engine.set_ack_timeout(active, code(timeout)).unwrap();
        }
        network.ends[0].engine.connect(active, &request(1), network.now).unwrap();
        let passive = network.requested(1);
        if let Some(timeout) = set[1] {
            network.ends[1].engine.set_ack_timeout(passive, code(timeout)).unwrap();
        }
        network.accept(1, passive, 2);
        network.run();
        let timeouts = [(0, active), (1, passive)].map(|(end, id)| {
            let told = network.ends[end].engine.attributes(id, QpState::ReadyToSend);
            let Ok(Attributes::ReadyToSend { timeout: Some(timeout), .. }) = told else { panic!() };
            timeout.code()
        });
        // Both have a delay of 15. The packet life time is 13 in the REQ of a program that sets 14, else 16.
        let agreed = if set[0] == Some(14) { 16 } else { 17 };
        assert_eq!(timeouts, set.map(|timeout| timeout.unwrap_or(agreed)), "{set:?}");
        network.finish();
    }
}

/// Before the connection it is that of the options, then that of the REQ at both ends.
///
/// Rules: CM-38
#[test]
fn a_path_is_told_as_the_connection_has_it() {
    let mut network = Network::new(2);
    let listener = network.listen(1, Service::TCP, 10);
    let End { engine, host, .. } = &mut network.ends[0];
    let active = engine.create(Service::TCP).unwrap();
    let to = "10.0.0.2:7174".parse().unwrap();
    engine.resolve_address(active, Some("10.0.0.1:9000".parse().unwrap()), to, host).unwrap();
    let route = transom_cm::Host::route(host, address(0), address(1)).unwrap();
    let route = Route { mtu: PathMtu::B512, ..route };
    engine.address_resolved(active, Ok(route)).unwrap();
    assert_eq!(engine.path(active), None);
    engine.resolve_route(active, Ok(())).unwrap();
    while engine.poll_event().is_some() {}
    let told = |network: &Network, end: usize, id| {
        let Path { address, mtu, life_time } = network.ends[end].engine.path(id).unwrap();
        let AddressVector { route, flow_label, traffic_class, hop_limit } = address;
        assert_eq!((route.source, hop_limit), (super::network::address(end), 64));
        (flow_label.get(), traffic_class, mtu, life_time.code())
    };
    let flow_label = 9000 * 31 + 7174;
    assert_eq!(told(&network, 0, active), (flow_label, 0, PathMtu::B512, 16));
    network.ends[0].engine.set_tos(active, 0x68).unwrap();
    network.ends[0].engine.set_ack_timeout(active, TimeCode::new(20).unwrap()).unwrap();
    assert_eq!(told(&network, 0, active), (flow_label, 0x68, PathMtu::B512, 19));
    network.ends[0].engine.connect(active, &request(1), network.now).unwrap();
    assert_eq!(told(&network, 0, active), (flow_label, 0x68, PathMtu::B512, 19));
    let passive = network.requested(1);
    // The REQ says an ACK timeout of 20.
    assert_eq!(told(&network, 1, passive), (flow_label, 0x68, PathMtu::B512, 19));
    assert_eq!(network.ends[1].engine.path(listener), None);
    network.finish();
}

/// Rules: CM-34, CM-42, CM-44, CM-48
#[test]
fn the_attributes_of_a_queue_pair_follow_from_the_exchange() {
    let mut network = Network::with_listener();
    let active = network.resolved(0, 1, Service::TCP);
    let get =
        |network: &Network, end: usize, id, state| network.ends[end].engine.attributes(id, state);
    let none = Attributes::Init { access: Access::default() };
    assert_eq!(get(&network, 0, active, QpState::Init), Ok(none));
    assert!(matches!(
        get(&network, 0, active, QpState::ReadyToReceive),
        Err(Refused::State { .. })
    ));

    network.ends[0].engine.connect(active, &request(0x111), network.now).unwrap();
    let all =
        Access { remote_write: true, remote_read: true, remote_atomic: true, flush_global: false };
    assert_eq!(get(&network, 0, active, QpState::Init), Ok(Attributes::Init { access: all }));
    assert!(matches!(
        get(&network, 0, active, QpState::ReadyToReceive),
        Err(Refused::State { .. })
    ));
    let passive = network.requested(1);
    // These are known before the REP, because rdma_accept makes its queue pair ready first.
    let Ok(Attributes::ReadyToReceive { destination, responder_resources, .. }) =
        get(&network, 1, passive, QpState::ReadyToReceive)
    else {
        panic!()
    };
    assert_eq!((destination, responder_resources), (qpn(0x111), Some(2)));
    network.accept(1, passive, 0x222);
    network.run();

    let attributes = [(0, active), (1, passive)].map(|(end, id)| {
        let Ok(Attributes::ReadyToReceive {
            psn: receive,
            destination,
            address,
            mtu,
            responder_resources,
        }) = get(&network, end, id, QpState::ReadyToReceive)
        else {
            panic!()
        };
        let Ok(Attributes::ReadyToSend { psn: send, timeout, retries: Some(retries) }) =
            get(&network, end, id, QpState::ReadyToSend)
        else {
            panic!()
        };
        assert_eq!((address.hop_limit, mtu.bytes()), (64, 1024));
        assert_eq!(address.route.source, super::network::address(end));
        assert_eq!((timeout, retries.retry_count), (TimeCode::new(17), Bits::MAX));
        let reads = (responder_resources, retries.initiator_depth, retries.rnr_retry_count.get());
        (receive, send, destination, reads)
    });
    let [(a_receives, a_sends, a_to, a_reads), (p_receives, p_sends, p_to, p_reads)] = attributes;
    assert_eq!((a_receives, a_sends), (p_sends, p_receives));
    assert_ne!(a_receives, a_sends);
    assert_eq!((a_to, p_to), (qpn(0x222), qpn(0x111)));
    assert_eq!((a_reads, p_reads), ((Some(3), 1, 5), (Some(1), 3, 6)));
    network.finish();
}

/// Rules: CM-42, CM-34, CM-28
#[test]
fn xrc_has_its_receiving_queue_pair_at_the_passive_end() {
    use transom_cm::Kind;
    let mut network = Network::new(2);
    network.listen(1, Service::ib(Kind::Xrc), 10);
    let active = network.connect(0, 1, Service::ib(Kind::Xrc), 0x111);
    let sent = network.outgoing(0);
    let Message::Req(req) = message(&sent) else { panic!() };
    assert_eq!(
        (req.transport, req.responder_resources, req.retry_count.get()),
        (Transport::Xrc, 0, 0)
    );
    assert_eq!(req.service.port(), Some((PortSpace::Ib, PORT)));
    network.deliver(&sent[0]);
    let passive = network.requested(1);
    network.accept(1, passive, 0x222);
    let sent = network.outgoing(1);
    let Message::Rep(rep) = message(&sent) else { panic!() };
    assert_eq!((rep.qpn, rep.eecn, rep.srq, rep.initiator_depth), (qpn(0), qpn(0x222), true, 0));
    network.deliver(&sent[0]);
    let Happened::ConnectResponse { offer, .. } = network.event(0).happened else { panic!() };
    assert_eq!(offer.qpn, qpn(0x222));
    network.ends[0].engine.establish(active).unwrap();
    network.event(1);
    let rts = |end: usize, id| match network.ends[end].engine.attributes(id, QpState::ReadyToSend) {
        Ok(Attributes::ReadyToSend { timeout, retries, .. }) => {
            (timeout.is_some(), retries.is_some())
        }
        other => panic!("{other:?}"),
    };
    assert_eq!((rts(0, active), rts(1, passive)), ((true, true), (true, false)));
    let rtr = |end: usize, id| match network.ends[end]
        .engine
        .attributes(id, QpState::ReadyToReceive)
    {
        Ok(Attributes::ReadyToReceive { responder_resources, .. }) => responder_resources.is_some(),
        other => panic!("{other:?}"),
    };
    assert_eq!((rtr(0, active), rtr(1, passive)), (false, true));
    network.said();
    network.destroy(1, passive);
    assert_eq!(network.outgoing(1), []);
    network.finish();
}

/// Rules: CM-40
#[test]
fn what_vendors_agree_on_goes_there_and_back() {
    let mut network = Network::with_listener();
    let ece = |options| Ece { vendor: Bits::low(0x15b3), options };
    let active = network.resolved(0, 1, Service::TCP);
    network.ends[0].engine.set_ece(active, ece(7)).unwrap();
    network.ends[0].engine.connect(active, &request(1), network.now).unwrap();
    let event = network.event(1);
    let Happened::ConnectRequest { offer: Some(offer), .. } = event.happened else { panic!() };
    assert_eq!(offer.ece, ece(7));
    network.ends[1].engine.set_ece(event.id, ece(3)).unwrap();
    network.accept(1, event.id, 2);
    let Happened::ConnectResponse { offer, .. } = network.event(0).happened else { panic!() };
    assert_eq!(offer.ece, ece(3));
    network.finish();
}

/// Rules: CM-17, CM-19
#[test]
fn a_process_connects_to_itself() {
    let mut network = Network::new(1);
    network.listen(0, Service::TCP, 10);
    let active = network.connect(0, 0, Service::TCP, 1);
    let passive = network.requested(0);
    network.accept(0, passive, 2);
    let event = network.event(0);
    assert!(event.id == active && matches!(event.happened, Happened::ConnectResponse { .. }));
    network.ends[0].engine.establish(active).unwrap();
    assert_eq!(network.event(0), Event { id: passive, happened: Happened::Established });
    network.ends[0].engine.disconnect(active, network.now).unwrap();
    assert_eq!(network.event(0), disconnected(passive, false));
    network.ends[0].engine.disconnect(passive, network.now).unwrap();
    assert_eq!(network.event(0), disconnected(active, false));
    network.finish();
}

/// Rules: CM-07, CM-21
#[test]
fn ipv6_is_connected_like_ipv4() {
    let mut network = Network::new(2);
    let End { engine, host, .. } = &mut network.ends[1];
    let listener = engine.create(Service::TCP).unwrap();
    engine.bind(listener, "[fd00::2]:7174".parse().unwrap(), host).unwrap();
    engine.listen(listener, 10, 0, host).unwrap();
    network.ends[0].address = "fd00::1".parse().unwrap();
    let active = network.resolved_to(0, "[fd00::2]:7174".parse().unwrap(), Service::TCP);
    network.ends[0].engine.connect(active, &request(1), network.now).unwrap();
    let passive = network.requested(1);
    let ends = |end: &Engine, id| (end.source(id).unwrap(), end.destination(id).unwrap());
    let (source, destination) = ends(&network.ends[0].engine, active);
    assert_eq!(ends(&network.ends[1].engine, passive), (destination, source));
    assert!(source.is_ipv6() && source.port() >= 32_768);
    network.accept(1, passive, 2);
    assert!(matches!(network.event(0).happened, Happened::ConnectResponse { .. }));
    network.finish();
}

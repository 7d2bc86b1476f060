//! Connections between two engines, state by state.

mod common;

use common::*;
use transom_cm::attributes::{Access, Attributes};
use transom_cm::{
    Arrival, Connect, ConnectionState, Engine, Event, Handled, Happened, QpState, Refused, Service,
    Timing,
};
use transom_wire::cm::message::Answered;
use transom_wire::cm::{
    Bits, CommId, Ece, Ignored, IpHeader, Mad, Message, PortSpace, RejectReason, Rejected,
    TimeCode, Transport,
};

fn unreachable(id: CommId) -> Event {
    Event { id, happened: Happened::Unreachable }
}

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
    // The program confirms it, not the engine.
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

/// The REQ of rping on Linux, with the same numbers, but for what is random.
///
/// Rules: CM-04, CM-05, CM-06, CM-07, CM-14, CM-38, CM-48
#[test]
fn a_req_says_what_linux_says() {
    let mut network = Network::new(2);
    let engine = &mut network.ends[0].engine;
    let id = engine.create(Service::TCP).unwrap();
    // The capture is of a kernel with packet life time 18.
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
    // The transaction, the id, the GUID, the PSN and the hosts' addresses are others.
    for range in [8..16, 24..28, 40..48, 68..71, 92..96, 108..112] {
        expected[range.clone()].copy_from_slice(&written[range]);
    }
    assert_eq!(&written[..24 + 96], expected);
    assert_eq!(written[24 + 96..24 + 140], [0; 44]);
    assert_eq!(written[24 + 140..24 + 144], [0, 0x40, 0x88, 0xce]);
    assert_eq!(sent[0].mad.transaction as u32, req.local_id.0);
    assert_eq!((sent[0].hop_limit, sent[0].traffic_class), (64, 0));
}

/// Rules: CM-34, CM-42, CM-44, CM-48
#[test]
fn the_attributes_of_a_queue_pair_follow_from_the_exchange() {
    let mut network = Network::new(2);
    network.listen(1, Service::TCP, 10);
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
    // Before the REP: rdma_accept brings its queue pair up first.
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
        assert_eq!(address.route.source, common::address(end));
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

/// Rules: CM-49
#[test]
fn an_rtu_that_finds_nobody_is_refused() {
    for destroyed in [true, false] {
        let mut network = Network::new(2);
        network.listen(1, Service::TCP, 10);
        let active = network.connect(0, 1, Service::TCP, 1);
        let passive = network.requested(1);
        network.accept(1, passive, 2);
        network.event(0);
        if destroyed {
            network.destroy(1, passive);
        } else {
            let (reason, now) = (RejectReason::Consumer, network.now);
            network.ends[1].engine.reject(passive, reason, &[], now).unwrap();
        }
        network.run_but(is("REJ"));
        network.ends[0].engine.establish(active).unwrap();
        assert_eq!(reason(&network.event(0), active), RejectReason::InvalidCommId);
        network.no_events();
        network.finish();
    }
}

/// Rules: CM-40
#[test]
fn what_vendors_agree_on_goes_there_and_back() {
    let mut network = Network::new(2);
    network.listen(1, Service::TCP, 10);
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

// What is lost or comes twice.

/// Rules: CM-14, CM-15, CM-27, CM-33
#[test]
fn a_req_that_nobody_answers_is_given_up_after_74_seconds() {
    let mut network = Network::new(2);
    network.listen(1, Service::TCP, 10);
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
    // A program that takes its time, however much more an MRA asks for.
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
    let mut network = Network::new(2);
    network.listen(1, Service::TCP, 10);
    let active = network.connect(0, 1, Service::TCP, 1);
    let passive = network.requested(1);
    network.said();
    // The REQ comes again, is no new request, and an MRA asks for 65.5 s.
    assert_eq!(network.skip(), 4608 * MILLISECOND);
    network.no_events();
    assert_eq!(network.said(), ["REQ", "MRA"]);
    assert_eq!(network.skip(), (65_536 + 512) * MILLISECOND);
    network.no_events();
    assert_eq!(network.said(), ["REQ", "MRA"]);
    // The second MRA has changed nothing.
    assert_eq!(network.skip(), (65_536 + 512) * MILLISECOND);
    network.run();
    network.accept(1, passive, 2);
    let event = network.event(0);
    assert!(matches!(event.happened, Happened::ConnectResponse { .. }));
    network.said();
    // The same at the other end: the REP comes again while the program brings its queue pair up.
    assert_eq!(network.skip(), 4096 * MILLISECOND);
    network.no_events();
    assert_eq!(network.said(), ["REP", "MRA"]);
    network.ends[0].engine.establish(active).unwrap();
    assert_eq!(network.event(1).happened, Happened::Established);
    network.finish();
}

/// Rules: CM-08, CM-17
#[test]
fn a_req_that_comes_again_does_not_bring_the_rep_again() {
    let mut network = Network::new(2);
    network.listen(1, Service::TCP, 10);
    network.connect(0, 1, Service::TCP, 1);
    let req = network.outgoing(0).remove(0);
    network.deliver(&req);
    let passive = network.requested(1);
    network.accept(1, passive, 2);
    let rep = network.outgoing(1);
    assert_eq!(network.deliver(&req), Handled::Duplicate(passive));
    assert_eq!(network.outgoing(1), []);
    // Its own timer does, with the same bytes.
    assert_eq!(network.skip(), 4096 * MILLISECOND);
    assert_eq!(network.outgoing(1), rep);
    network.finish();
}

/// Rules: CM-18
#[test]
fn an_rtu_that_is_lost_is_sent_again_for_a_rep() {
    let mut network = Network::new(2);
    network.listen(1, Service::TCP, 10);
    let active = network.connect(0, 1, Service::TCP, 1);
    let passive = network.requested(1);
    network.accept(1, passive, 2);
    network.event(0);
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
    let mut network = Network::new(2);
    network.listen(1, Service::TCP, 10);
    let active = network.connect(0, 1, Service::TCP, 1);
    let passive = network.requested(1);
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
    let mut network = Network::new(2);
    network.listen(1, Service::TCP, 10);
    let active = network.connect(0, 1, Service::TCP, 1);
    let passive = network.requested(1);
    network.accept(1, passive, 2);
    network.event(0);
    network.ends[0].engine.establish(active).unwrap();
    network.pass(65_535 * MILLISECOND, is("RTU"));
    assert_eq!(network.ends[1].engine.connection_state(passive), Some(ConnectionState::ReplySent));
    network.pass(MILLISECOND, is("RTU"));
    assert_eq!(network.event(1), unreachable(passive));
    let event = network.event(0);
    assert_eq!(reason(&event, active), RejectReason::Timeout);
    network.finish();
}

// Refusals.

/// Rules: CM-21, CM-33
#[test]
fn a_port_that_nobody_listens_on_refuses() {
    let mut network = Network::new(2);
    let active = network.connect(0, 1, Service::TCP, 1);
    let event = network.event(0);
    assert_eq!(reason(&event, active), RejectReason::InvalidServiceId);
    assert_eq!((event.happened.status(), event.happened.private_data().len()), (8, 148));
    network.no_events();
    network.finish();
}

/// Rules: CM-21, CM-23, CM-24, CM-13
#[test]
fn a_listener_takes_what_is_for_its_address_and_kind_of_queue_pair_only() {
    let mut network = Network::new(2);
    let refusal = |network: &mut Network, change: &dyn Fn(&mut Mad)| {
        let active = network.connect(0, 1, Service::TCP, 1);
        let mut req = network.outgoing(0).remove(0);
        change(&mut req.mad);
        network.deliver(&req);
        let event = network.event(0);
        network.no_events();
        network.destroy(0, active);
        let Message::Rej(rej) = &network.sent.last().unwrap().1.mad.message else { panic!() };
        assert_eq!((rej.local_id, rej.remote_id, rej.rejected), (CommId(0), active, Rejected::Req));
        reason(&event, active)
    };
    fn req(change: impl Fn(&mut transom_wire::cm::Req)) -> impl Fn(&mut Mad) {
        move |mad| match &mut mad.message {
            Message::Req(req) => change(req),
            _ => unreachable!(),
        }
    }
    // Datagrams are another service; a listener for one address takes no other.
    let udp = network.listen(1, Service::UDP, 10);
    assert_eq!(refusal(&mut network, &|_| ()), RejectReason::InvalidServiceId);
    network.destroy(1, udp);
    let End { engine, host, .. } = &mut network.ends[1];
    let listener = engine.create(Service::TCP).unwrap();
    engine.bind(listener, "[fd00::2]:7174".parse().unwrap(), host).unwrap();
    engine.listen(listener, 0, 0, host).unwrap();
    assert_eq!(refusal(&mut network, &|_| ()), RejectReason::Consumer);
    network.destroy(1, listener);

    network.listen(1, Service::TCP, 10);
    let transport = req(|req| req.transport = Transport::Uc);
    assert_eq!(refusal(&mut network, &transport), RejectReason::Consumer);
    let version = req(|req| req.private_data[0] = 1);
    assert_eq!(refusal(&mut network, &version), RejectReason::Consumer);
    for (at, byte) in [(16, 0xe0), (16, 0xff), (32, 0xe1)] {
        let address = req(|req| req.private_data[at..at + 4].fill(byte));
        assert_eq!(refusal(&mut network, &address), RejectReason::Consumer);
    }
    let unspecified = req(|req| req.private_data[16..20].fill(0));
    assert_eq!(refusal(&mut network, &unspecified), RejectReason::Consumer);
    for local in [true, false] {
        let gid = req(|req| {
            let path = &mut req.primary;
            if local { path.local_gid[15] = 9 } else { path.remote_gid[15] = 9 }
        });
        assert_eq!(refusal(&mut network, &gid), RejectReason::InvalidGid);
    }
    network.finish();
}

/// Rules: CM-13
#[test]
fn a_req_for_an_mtu_that_does_not_exist_is_refused() {
    let mut network = Network::new(2);
    network.listen(1, Service::TCP, 10);
    let active = network.connect(0, 1, Service::TCP, 1);
    let req = network.outgoing(0).remove(0);
    let mut bytes = req.mad.write();
    bytes[24 + 50] = 0x77;
    let arrival = Arrival { source: req.source, destination: req.destination };
    assert_eq!(network.deliver_bytes(arrival, &bytes), Handled::Refused(RejectReason::InvalidMtu));
    let event = network.event(0);
    assert_eq!(reason(&event, active), RejectReason::InvalidMtu);
    network.finish();
}

/// Rules: CM-21
#[test]
fn an_ipv6_wildcard_takes_ipv4_unless_told_not_to() {
    for only in [false, true] {
        let mut network = Network::new(2);
        let End { engine, host, .. } = &mut network.ends[1];
        let listener = engine.create(Service::TCP).unwrap();
        engine.set_v6_only(listener, only).unwrap();
        engine.bind(listener, "[::]:7174".parse().unwrap(), host).unwrap();
        engine.listen(listener, 10, 0, host).unwrap();
        let active = network.connect(0, 1, Service::TCP, 1);
        if only {
            assert_eq!(reason(&network.event(0), active), RejectReason::Consumer);
        } else {
            network.requested(1);
        }
        network.finish();
    }
}

/// Rules: CM-33
#[test]
fn a_program_that_refuses_says_why() {
    let mut network = Network::new(2);
    network.listen(1, Service::TCP, 10);
    let active = network.connect(0, 1, Service::TCP, 1);
    let passive = network.requested(1);
    let (engine, now) = (&mut network.ends[1].engine, network.now);
    let refused = Refused::PrivateData { given: 149, room: 148 };
    assert_eq!(engine.reject(passive, RejectReason::Consumer, &[1; 149], now), Err(refused));
    engine.reject(passive, RejectReason::Consumer, b"no", now).unwrap();
    assert!(matches!(
        engine.reject(passive, RejectReason::Consumer, b"no", now),
        Err(Refused::State { .. })
    ));
    let event = network.event(0);
    assert_eq!((reason(&event, active), event.happened.status()), (RejectReason::Consumer, 28));
    assert_eq!(event.happened.private_data()[..4], *b"no\0\0");
    assert_eq!(event.happened.private_data().len(), 148);
    // The same queue pair may try again.
    network.connect(0, 1, Service::TCP, 1);
    network.requested(1);
    network.finish();
}

// Who a message is from.

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
    // Another address; other ids, which are answered as nobody's; another queue pair.
    let elsewhere = transom_cm::Transmit { source: address(2), ..dreq.clone() };
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
    // A transaction of another's making is none of its concern.
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

// The end.

/// Rules: CM-25
#[test]
fn dreqs_that_cross_each_other_end_the_connection_once() {
    let mut network = Network::new(2);
    network.listen(1, Service::TCP, 10);
    let (active, passive) = network.connected(1);
    network.ends[0].engine.disconnect(active, network.now).unwrap();
    network.ends[1].engine.disconnect(passive, network.now).unwrap();
    let (one, other) = (network.outgoing(0), network.outgoing(1));
    network.deliver(&one[0]);
    network.deliver(&other[0]);
    assert_eq!(network.event(0), disconnected(active, false));
    assert_eq!(network.event(1), disconnected(passive, false));
    network.said();
    // Each program answers for itself.
    network.ends[0].engine.disconnect(active, network.now).unwrap();
    network.run();
    network.ends[1].engine.disconnect(passive, network.now).unwrap();
    network.run();
    assert_eq!(network.said(), ["DREP"]);
    network.pass(SECOND, |_| false);
    for end in [0, 1] {
        assert_eq!(network.event(end).happened, Happened::TimewaitExit);
    }
    network.no_events();
    network.finish();
}

/// Rules: CM-25, CM-29
#[test]
fn a_drep_that_is_lost_is_sent_again_in_time_wait_and_after_it() {
    let mut network = Network::new(2);
    network.listen(1, Service::TCP, 10);
    let (active, passive) = network.connected(1);
    network.ends[0].engine.disconnect(active, network.now).unwrap();
    let dreq = network.outgoing(0).remove(0);
    network.deliver(&dreq);
    assert_eq!(network.event(1), disconnected(passive, false));
    assert_eq!(network.deliver(&dreq), Handled::Unknown);
    assert_eq!(network.outgoing(1), []);
    network.ends[1].engine.disconnect(passive, network.now).unwrap();
    let drep = network.outgoing(1);
    assert_eq!(network.deliver(&dreq), Handled::Taken(passive));
    assert_eq!(network.outgoing(1), drep);
    // The time wait is over long before the DREQ comes again.
    assert_eq!(network.skip(), 512 * MILLISECOND);
    assert_eq!(network.event(1).happened, Happened::TimewaitExit);
    assert_eq!(network.skip(), (4608 - 512) * MILLISECOND);
    assert_eq!(network.event(0), disconnected(active, false));
    network.finish();
}

/// Rules: CM-14, CM-33
#[test]
fn a_peer_that_does_not_confirm_the_end_is_given_up() {
    for end in [0, 1] {
        let mut network = Network::new(2);
        network.listen(1, Service::TCP, 10);
        let (active, passive) = network.connected(1);
        let id = [active, passive][end];
        let begin = network.now;
        network.ends[end].engine.disconnect(id, begin).unwrap();
        let mut sent = 0;
        while network.ends[end].engine.connection_state(id) == Some(ConnectionState::DisconnectSent)
        {
            sent += network.outgoing(end).len();
            network.skip();
        }
        // An active end waits as for its REQ, a passive one as for its REP.
        assert_eq!((sent, network.now - begin), (16, 16 * [4608, 4096][end] * MILLISECOND));
        let event = network.event(end);
        assert_eq!((&event, event.happened.status()), (&disconnected(id, true), -110));
        network.finish();
    }
}

/// Rules: CM-29
#[test]
fn a_queue_pair_may_be_connected_again_in_time_wait() {
    let mut network = Network::new(2);
    network.listen(1, Service::TCP, 10);
    let (active, passive) = network.connected(1);
    network.ends[0].engine.disconnect(active, network.now).unwrap();
    network.run();
    network.ends[1].engine.disconnect(passive, network.now).unwrap();
    network.run();
    assert_eq!(network.ends[1].engine.connection_state(passive), Some(ConnectionState::TimeWait));
    for end in &mut network.ends {
        end.events.clear();
    }
    network.connected(1);
    // An id that goes has no more events.
    network.destroy(1, passive);
    network.pass(SECOND, |_| false);
    assert_eq!(network.event(0), Event { id: active, happened: Happened::TimewaitExit });
    network.no_events();
    network.finish();
}

/// Rules: CM-26
#[test]
fn a_connection_that_nobody_knows_is_confirmed_to_have_ended() {
    let mut network = Network::new(2);
    let listener = network.listen(1, Service::TCP, 10);
    let (active, _) = network.connected(1);
    // The server's process dies, and nobody says so.
    network.ends[1].engine = Engine::new(config(1));
    network.ends[1].host.release_slot(config(1).slot);
    _ = listener;
    network.ends[0].engine.disconnect(active, network.now).unwrap();
    assert_eq!(network.event(0), disconnected(active, false));
    let drep = &network.sent.last().unwrap().1.mad;
    assert_eq!(drep.transaction, network.sent[0].1.mad.transaction);
    network.finish();
}

/// Whoever notices that a process has died ends its connections for it.
///
/// Rules: CM-25, CM-28
#[test]
fn another_process_tells_the_peers_of_a_process_that_has_died() {
    let mut network = Network::new(2);
    network.listen(1, Service::TCP, 10);
    let (active, passive) = network.connected(1);
    let records = [(0, active), (1, passive)].map(|(end, id)| network.ends[end].engine.record(id));
    for (end, record) in records.into_iter().enumerate() {
        let other = [passive, active][end];
        assert_eq!(network.deliver(&record.unwrap().final_message()), Handled::Taken(other));
        assert_eq!(network.event(1 - end), disconnected(other, false));
    }
    network.finish();

    // Before that it refuses.
    let mut network = Network::new(2);
    network.listen(1, Service::TCP, 10);
    let active = network.connect(0, 1, Service::TCP, 1);
    let passive = network.requested(1);
    let received = network.ends[1].engine.record(passive).unwrap();
    network.accept(1, passive, 2);
    let replied = network.ends[1].engine.record(passive).unwrap();
    assert_eq!((received.rejected, replied.rejected), (Some(Rejected::Req), Some(Rejected::Other)));
    // It has overtaken the REP.
    let rep = network.outgoing(1).remove(0);
    assert_eq!(network.deliver(&replied.final_message()), Handled::Taken(active));
    assert_eq!(reason(&network.event(0), active), RejectReason::Consumer);
    assert_eq!(network.deliver(&rep), Handled::Unknown);
    network.no_events();
    network.finish();
}

/// What an id says when it goes, in each state, and what comes of it at the other end.
///
/// Rules: CM-27, CM-28
#[test]
fn an_id_that_is_destroyed_says_so_to_its_peer() {
    fn last(network: &mut Network, end: usize, id: CommId) -> Option<Message> {
        network.said();
        network.destroy(end, id);
        let sent = network.outgoing(end);
        assert!(sent.len() < 2);
        for transmit in &sent {
            network.deliver(transmit);
        }
        sent.into_iter().next().map(|transmit| transmit.mad.message)
    }
    fn rej(message: Option<Message>) -> (u16, Rejected, bool) {
        let Some(Message::Rej(rej)) = message else { panic!("{message:?}") };
        (rej.reason.code(), rej.rejected, rej.local_id != CommId(0))
    }
    let begun = || {
        let mut network = Network::new(2);
        network.listen(1, Service::TCP, 10);
        let active = network.connect(0, 1, Service::TCP, 1);
        let passive = network.requested(1);
        (network, active, passive)
    };
    let replied = || {
        let (mut network, active, passive) = begun();
        network.accept(1, passive, 2);
        network.event(0);
        (network, active, passive)
    };
    let established = || {
        let (mut network, active, passive) = replied();
        network.ends[0].engine.establish(active).unwrap();
        network.event(1);
        (network, active, passive)
    };

    let (mut network, active, passive) = begun();
    assert_eq!(rej(last(&mut network, 0, active)), (4, Rejected::Other, true));
    assert_eq!(reason(&network.event(1), passive), RejectReason::Timeout);
    network.finish();

    let (mut network, active, passive) = begun();
    assert_eq!(rej(last(&mut network, 1, passive)), (28, Rejected::Req, true));
    assert_eq!(reason(&network.event(0), active), RejectReason::Consumer);
    network.finish();

    let (mut network, active, passive) = replied();
    assert_eq!(rej(last(&mut network, 0, active)), (28, Rejected::Rep, true));
    assert_eq!(reason(&network.event(1), passive), RejectReason::Consumer);
    network.finish();

    let (mut network, active, passive) = replied();
    assert_eq!(rej(last(&mut network, 1, passive)), (28, Rejected::Other, true));
    assert_eq!(reason(&network.event(0), active), RejectReason::Consumer);
    assert_eq!(network.ends[0].engine.connection_state(active), Some(ConnectionState::TimeWait));
    network.finish();

    let (mut network, active, passive) = established();
    assert!(matches!(last(&mut network, 0, active), Some(Message::Dreq(_))));
    assert_eq!(network.event(1), disconnected(passive, false));
    assert!(matches!(last(&mut network, 1, passive), Some(Message::Drep(_))));
    network.finish();

    let (mut network, active, _) = established();
    network.ends[0].engine.disconnect(active, network.now).unwrap();
    network.outgoing(0);
    assert_eq!(last(&mut network, 0, active), None);
    // The DREQ that was lost is sent again, though the id is gone.
    assert_eq!(network.skip(), 4608 * MILLISECOND);
    network.run();
    assert_eq!(network.said(), ["DREQ"]);
    network.finish();

    let mut network = Network::new(2);
    let resolved = network.resolved(0, 1, Service::TCP);
    let created = network.ends[0].engine.create(Service::UDP).unwrap();
    let listener = network.listen(1, Service::TCP, 0);
    for (end, id) in [(0, resolved), (0, created), (1, listener)] {
        assert_eq!(last(&mut network, end, id), None);
    }
    network.finish();
}

/// Rules: CM-28
#[test]
fn a_dreq_of_an_id_that_is_gone_is_sent_again_until_it_is_confirmed() {
    let mut network = Network::new(2);
    network.listen(1, Service::TCP, 10);
    let (active, passive) = network.connected(1);
    network.destroy(1, passive);
    assert_eq!(
        (network.ends[1].engine.has(passive), network.ends[1].engine.connection_state(passive)),
        (false, None)
    );
    network.run_but(is("DREQ"));
    network.pass(20 * SECOND, |_| true);
    assert_eq!(network.said(), ["DREQ"; 5]);
    assert_eq!(network.ends[1].engine.lingering().collect::<Vec<_>>(), [passive]);
    // Its queue pair may be connected anew meanwhile.
    network.skip();
    assert_eq!(network.event(0), disconnected(active, false));
    network.ends[0].engine.disconnect(active, network.now).unwrap();
    network.no_events();
    assert_eq!(network.ends[1].engine.lingering().count(), 0);
    assert_eq!(network.ends[1].engine.poll_timeout(), None);
    // A peer that is not there any more is given up.
    let (_, passive) = {
        network.pass(SECOND, |_| false);
        network.ends[0].events.clear();
        network.connected(3)
    };
    network.destroy(1, passive);
    network.pass(65_535 * MILLISECOND, |_| true);
    assert_eq!(network.ends[1].engine.lingering().count(), 1);
    network.pass(MILLISECOND, |_| true);
    assert_eq!(network.ends[1].engine.lingering().count(), 0);
    network.finish();
}

/// Rules: CM-46
#[test]
fn a_device_that_goes_is_the_last_that_an_id_hears_of() {
    let mut network = Network::new(2);
    let listener = network.listen(1, Service::TCP, 10);
    let (active, passive) = network.connected(1);
    network.remove_device(1);
    network.remove_device(1);
    let mut heard = [network.event(1), network.event(1)].map(|event| event.id);
    heard.sort();
    let mut all = [listener, passive];
    all.sort();
    assert_eq!(heard, all);
    // The peer is told.
    assert_eq!(network.event(0), disconnected(active, false));
    network.ends[0].engine.disconnect(active, network.now).unwrap();
    network.no_events();
    let late = network.connect(0, 1, Service::TCP, 9);
    assert_eq!(reason(&network.event(0), late), RejectReason::InvalidServiceId);
    assert!(matches!(
        network.ends[1].engine.attributes(passive, QpState::Init),
        Err(Refused::Removed)
    ));
    network.finish();
}

// Calls.

/// Rules: CM-07
#[test]
fn private_data_that_is_too_long_is_refused() {
    let mut network = Network::new(2);
    network.listen(1, Service::TCP, 10);
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
    let mut network = Network::new(2);
    network.listen(1, Service::TCP, 10);
    let (active, passive) = network.connected(1);
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

/// Rules: CM-36, CM-38
#[test]
fn options_are_set_while_they_matter() {
    let mut network = Network::new(2);
    let End { engine, host, .. } = &mut network.ends[0];
    let at = "10.0.0.1:9000".parse().unwrap();
    let [one, other, udp] =
        [Service::TCP, Service::TCP, Service::UDP].map(|service| engine.create(service).unwrap());
    for id in [one, other] {
        engine.set_reuse_address(id, true).unwrap();
        engine.bind(id, at, host).unwrap();
    }
    assert_eq!(engine.listen(one, 1, 0, host), Err(Refused::InUse));
    engine.destroy(other, 0, host).unwrap();
    engine.listen(one, 1, 0, host).unwrap();
    assert!(matches!(engine.set_reuse_address(one, true), Err(Refused::State { .. })));
    assert!(matches!(engine.set_v6_only(one, true), Err(Refused::State { .. })));
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

/// Rules: CM-16
#[test]
fn an_mra_for_the_wrong_message_is_ignored() {
    let mut network = Network::new(2);
    network.listen(1, Service::TCP, 10);
    network.connect(0, 1, Service::TCP, 1);
    network.requested(1);
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

/// Whatever comes: messages of any connection with any bytes changed, in any order and at any time.
///
/// Rules: CM-02, CM-13, CM-20
#[test]
fn no_message_whatever_it_says_does_more_than_a_message_may() {
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt, SeedableRng};
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut network = Network::new(2);
    let listeners = [Service::TCP, Service::UDP].map(|service| network.listen(1, service, 4));
    let mut past = Vec::new();
    for number in 0..2_000_u32 {
        match random.random_range(0..8) {
            0 => _ = network.connect(0, 1, Service::TCP, number),
            1 => _ = network.connect(0, 1, Service::UDP, number),
            2 => _ = network.ends[0].engine.poll_timeout().map(|_| network.skip()),
            _ => {}
        }
        if past.is_empty() {
            network.connect(0, 1, Service::TCP, number);
        }
        for end in [0, 1] {
            past.extend(network.outgoing(end));
            let now = network.now;
            let End { engine, host, events, .. } = &mut network.ends[end];
            events.extend(std::iter::from_fn(|| engine.poll_event()));
            for event in std::mem::take(events) {
                // Programs do anything, and are refused what they may not.
                _ = engine.fetched(event.id);
                _ = match random.random_range(0..6) {
                    0 => engine.reject(event.id, RejectReason::Consumer, b"no", now),
                    1 => engine.disconnect(event.id, now),
                    2 => engine.destroy(event.id, now, host).map(drop),
                    3 => engine.establish(event.id),
                    _ => engine.accept(event.id, &acceptance(number), now),
                };
            }
        }
        for _ in 0..4 {
            let transmit = &past[random.random_range(past.len().saturating_sub(50)..past.len())];
            let arrival = Arrival { source: transmit.source, destination: transmit.destination };
            let mut bytes = transmit.mad.write();
            for _ in 0..random.random_range(0..3) {
                let at = random.random_range(0..bytes.len());
                bytes[at] ^= 1 << random.random_range(0..8);
            }
            // The attribute of another message.
            if random.random_range(0..10) == 0 {
                bytes[17] = random.random_range(0x10..0x1b);
            }
            network.deliver_bytes(arrival, &bytes);
        }
        let ids = network.ends[1].engine.ids().count();
        assert!(network.ends[1].engine.waiting(listeners[0]).unwrap() <= 4, "{ids} ids");
    }
    network.finish();
}

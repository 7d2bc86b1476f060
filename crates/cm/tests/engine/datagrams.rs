//! Datagram services, and multicast groups.

use super::network::*;
use transom_cm::attributes::{Attributes, DEFAULT_QKEY};
use transom_cm::{Accept, Connect, Event, Handled, Happened, QpState, Refused, Service};
use transom_wire::cm::{CommId, Message, SidrStatus};

fn asked(network: &mut Network) -> CommId {
    network.connect(0, 1, Service::UDP, 1)
}

/// Why a service cannot be had, and what its program says.
#[track_caller]
fn status(event: &Event, id: CommId) -> (SidrStatus, &[u8]) {
    match &event.happened {
        Happened::NotServed { status, private_data } if event.id == id => (*status, private_data),
        _ => panic!("{event:?}"),
    }
}

/// Rules: CM-30, CM-33, CM-34
#[test]
fn a_port_leads_to_a_queue_pair() {
    for (qkey, expected) in [(None, DEFAULT_QKEY), (Some(7), 7)] {
        let mut network = Network::new(2);
        let listener = network.listen(1, Service::UDP, 10);
        let active = asked(&mut network);
        let event = network.event(1);
        let Happened::ConnectRequest { listener: at, offer: None, ref private_data } =
            event.happened
        else {
            panic!("{event:?}")
        };
        assert_eq!((at, private_data.len(), &private_data[..7]), (listener, 180, &b"please\0"[..]));
        let passive = event.id;
        network.ends[1].engine.fetched(passive).unwrap();
        let with = Accept { qkey, ..acceptance(0x222) };
        network.ends[1].engine.accept(passive, &with, network.now).unwrap();
        let Event {
            id,
            happened: Happened::Resolved { address, qpn: found, qkey, private_data, .. },
        } = network.event(0)
        else {
            panic!()
        };
        assert_eq!((id, found, qkey), (active, qpn(0x222), expected));
        assert_eq!(
            (address.route.destination, private_data.len()),
            (super::network::address(1), 136)
        );
        // The passive end gets no more events.
        network.no_events();
        assert_eq!(network.said(), ["SIDR_REQ", "SIDR_REP"]);
        assert_eq!(network.ends[0].engine.poll_timeout(), None);
        let attributes = |state| network.ends[0].engine.attributes(active, state);
        let init = Attributes::InitDatagram { qkey: DEFAULT_QKEY };
        assert_eq!(attributes(QpState::Init), Ok(init));
        assert_eq!(attributes(QpState::ReadyToReceive), Ok(Attributes::ReadyToReceiveDatagram));
        network.ends[0].engine.disconnect(active, network.now).unwrap();
        network.no_events();
        network.finish();
    }
}

/// Rules: CM-21, CM-28, CM-30, CM-33
#[test]
fn a_service_that_cannot_be_had_says_why() {
    let mut network = Network::new(2);
    let active = asked(&mut network);
    let event = network.event(0);
    assert_eq!(status(&event, active), (SidrStatus::NotSupported, &[0; 136][..]));
    assert_eq!((event.happened.code(), event.happened.status()), (7, 1));

    network.listen(1, Service::UDP, 10);
    for said in [None, Some("no")] {
        let active = asked(&mut network);
        let passive = network.requested(1);
        if let Some(said) = said {
            let (reason, now) = (transom_wire::cm::RejectReason::Consumer, network.now);
            network.ends[1].engine.reject(passive, reason, said.as_bytes(), now).unwrap();
        } else {
            network.destroy(1, passive);
        }
        let event = network.event(0);
        let (status, private_data) = status(&event, active);
        assert_eq!((status, private_data.len()), (SidrStatus::Rejected, 136));
        assert_eq!(private_data, event.happened.private_data());
        let said = said.unwrap_or_default().as_bytes();
        let (begin, rest) = private_data.split_at(said.len());
        assert!(begin == said && rest.iter().all(|byte| *byte == 0), "{private_data:?}");
    }
    network.finish();
}

/// Rules: CM-14, CM-30
#[test]
fn a_service_that_does_not_answer_is_given_up() {
    let mut network = Network::new(2);
    let active = asked(&mut network);
    let first = network.outgoing(0);
    for _ in 0..15 {
        assert_eq!(network.skip(), 4096 * MILLISECOND);
        assert_eq!(network.outgoing(0), first);
    }
    assert_eq!(network.skip(), 4096 * MILLISECOND);
    assert_eq!(network.event(0), Event { id: active, happened: Happened::Unreachable });
    assert_eq!(network.deliver(&first[0]), Handled::NotServed(SidrStatus::NotSupported));
    network.no_events();
    network.finish();
}

/// Rules: CM-31
#[test]
fn a_program_is_asked_once_however_often_the_answer_is_lost() {
    let mut network = Network::new(2);
    network.listen(1, Service::UDP, 10);
    let active = asked(&mut network);
    let request = network.outgoing(0).remove(0);
    network.deliver(&request);
    let passive = network.requested(1);
    assert_eq!(network.deliver(&request), Handled::Duplicate(passive));
    assert_eq!(network.outgoing(1), []);
    network.accept(1, passive, 2);
    let answer = network.outgoing(1);
    assert_eq!(network.skip(), 4096 * MILLISECOND);
    network.run_but(is("SIDR_REP"));
    assert_eq!(network.sent.last().unwrap().1, answer[0]);
    // Another request with the same id is a new request.
    let mut other = request.clone();
    let Message::SidrReq(asks) = &mut other.mad.message else { panic!() };
    asks.private_data[40] ^= 1;
    assert!(matches!(network.deliver(&other), Handled::Taken(id) if id != passive));
    network.deliver(&answer[0]);
    let found = network.event(0);
    assert!(found.id == active && matches!(found.happened, Happened::Resolved { .. }));
    assert_eq!(network.deliver(&answer[0]), Handled::Unknown);
    network.finish();
}

/// Rules: CM-22
#[test]
fn a_request_that_finds_the_backlog_full_finds_room_later() {
    let mut network = Network::new(2);
    let listener = network.listen(1, Service::UDP, 1);
    asked(&mut network);
    asked(&mut network);
    network.run();
    assert_eq!(network.handled[1], Handled::BacklogFull(listener));
    let first = network.requested(1);
    network.skip();
    assert_ne!(network.requested(1), first);
    network.finish();
}

/// Rules: CM-07
#[test]
fn private_data_has_180_bytes_one_way_and_136_the_other() {
    let mut network = Network::new(2);
    network.listen(1, Service::UDP, 1);
    let active = network.resolved(0, 1, Service::UDP);
    let long = Connect { private_data: &[1; 181], ..request(1) };
    let refused = Refused::PrivateData { given: 181, room: 180 };
    assert_eq!(network.ends[0].engine.connect(active, &long, network.now), Err(refused));
    let fits = Connect { private_data: &[1; 180], ..request(1) };
    network.ends[0].engine.connect(active, &fits, network.now).unwrap();
    let passive = network.requested(1);
    let long = Accept { private_data: &[1; 137], ..acceptance(1) };
    let refused = Refused::PrivateData { given: 137, room: 136 };
    assert_eq!(network.ends[1].engine.accept(passive, &long, network.now), Err(refused));
    network.finish();
}

/// Rules: CM-39
#[test]
fn a_group_is_joined_by_ids_of_datagrams_that_have_an_address() {
    let mut network = Network::new(2);
    let group = "239.1.2.3".parse().unwrap();
    let End { engine, host, .. } = &mut network.ends[0];
    let tcp = engine.create(Service::TCP).unwrap();
    engine.bind(tcp, "10.0.0.1:0".parse().unwrap(), host).unwrap();
    assert!(matches!(engine.join(tcp, group, false, Ok(())), Err(Refused::Service { .. })));
    let udp = engine.create(Service::UDP).unwrap();
    assert!(matches!(engine.join(udp, group, false, Ok(())), Err(Refused::State { .. })));
    engine.bind(udp, "10.0.0.1:0".parse().unwrap(), host).unwrap();
    assert!(matches!(
        engine.join(udp, "10.0.0.1".parse().unwrap(), false, Ok(())),
        Err(Refused::Address(_))
    ));
    engine.join(udp, group, true, Ok(())).unwrap();
    let event = engine.poll_event().unwrap();
    let Happened::MulticastJoin(joined) = event.happened else { panic!() };
    assert_eq!((joined.address, joined.send_only, joined.qkey), (group, true, DEFAULT_QKEY));
    let errno = transom_cm::refused::Errno::EADDRNOTAVAIL;
    engine.join(udp, "239.9.9.9".parse().unwrap(), false, Err(errno)).unwrap();
    assert_eq!(engine.poll_event().unwrap().happened.status(), -99);
    // A program gets no events of a group that it has left.
    let other = "239.7.7.7".parse().unwrap();
    engine.join(udp, other, false, Ok(())).unwrap();
    engine.leave(udp, other).unwrap();
    assert_eq!(engine.leave(udp, other), Err(Refused::NotJoined));
    assert_eq!(engine.poll_event(), None);
    assert_eq!(engine.destroy(udp, 0, host), Ok(vec![joined]));
    network.finish();
}

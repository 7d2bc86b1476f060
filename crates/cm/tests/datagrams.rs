//! Datagram services, and multicast groups.

mod common;

use common::*;
use transom_cm::attributes::{Attributes, DEFAULT_QKEY};
use transom_cm::{Accept, Connect, Event, Handled, Happened, QpState, Refused, Service};
use transom_wire::cm::{CommId, Message, SidrStatus};

fn asked(world: &mut World) -> CommId {
    world.connect(0, 1, Service::UDP, 1)
}

#[track_caller]
fn status(event: &Event, id: CommId) -> SidrStatus {
    match event.happened {
        Happened::NotServed(status) if event.id == id => status,
        _ => panic!("{event:?}"),
    }
}

/// Rules: CM-30, CM-33, CM-34
#[test]
fn a_port_leads_to_a_queue_pair() {
    for (qkey, expected) in [(None, DEFAULT_QKEY), (Some(7), 7)] {
        let mut world = World::new(2);
        let listener = world.listen(1, Service::UDP, 10);
        let active = asked(&mut world);
        let event = world.event(1);
        let Happened::ConnectRequest { listener: at, offer: None, ref private_data } =
            event.happened
        else {
            panic!("{event:?}")
        };
        assert_eq!((at, private_data.len(), &private_data[..7]), (listener, 180, &b"please\0"[..]));
        let passive = event.id;
        world.ends[1].engine.fetched(passive).unwrap();
        let with = Accept { qkey, ..acceptance(0x222) };
        world.ends[1].engine.accept(passive, &with, world.now).unwrap();
        let Event {
            id,
            happened: Happened::Resolved { address, qpn: found, qkey, private_data, .. },
        } = world.event(0)
        else {
            panic!()
        };
        assert_eq!((id, found, qkey), (active, qpn(0x222), expected));
        assert_eq!((address.route.destination, private_data.len()), (common::address(1), 136));
        // The passive end hears nothing more.
        world.no_events();
        assert_eq!(world.said(), ["SIDR_REQ", "SIDR_REP"]);
        assert_eq!(world.ends[0].engine.poll_timeout(), None);
        let attributes = |state| world.ends[0].engine.attributes(active, state);
        let init = Attributes::InitDatagram { qkey: DEFAULT_QKEY };
        assert_eq!(attributes(QpState::Init), Ok(init));
        assert_eq!(attributes(QpState::ReadyToReceive), Ok(Attributes::ReadyToReceiveDatagram));
        world.ends[0].engine.disconnect(active, world.now).unwrap();
        world.no_events();
        world.finish();
    }
}

/// Rules: CM-21, CM-28, CM-30
#[test]
fn a_service_that_cannot_be_had_says_why() {
    let mut world = World::new(2);
    let active = asked(&mut world);
    let event = world.event(0);
    assert_eq!((status(&event, active), event.happened.code()), (SidrStatus::NotSupported, 7));
    assert_eq!(event.happened.status(), 1);

    world.listen(1, Service::UDP, 10);
    for destroyed in [true, false] {
        let active = asked(&mut world);
        let passive = world.requested(1);
        if destroyed {
            world.destroy(1, passive);
        } else {
            let (reason, now) = (transom_wire::cm::RejectReason::Consumer, world.now);
            world.ends[1].engine.reject(passive, reason, b"no", now).unwrap();
        }
        assert_eq!(status(&world.event(0), active), SidrStatus::Rejected);
    }
    world.finish();
}

/// Rules: CM-14, CM-30
#[test]
fn a_service_that_does_not_answer_is_given_up() {
    let mut world = World::new(2);
    let active = asked(&mut world);
    let first = world.outgoing(0);
    for _ in 0..15 {
        assert_eq!(world.skip(), 4096 * MILLISECOND);
        assert_eq!(world.outgoing(0), first);
    }
    assert_eq!(world.skip(), 4096 * MILLISECOND);
    assert_eq!(world.event(0), Event { id: active, happened: Happened::Unreachable });
    assert_eq!(world.deliver(&first[0]), Handled::NotServed(SidrStatus::NotSupported));
    world.no_events();
    world.finish();
}

/// Rules: CM-31
#[test]
fn a_program_is_asked_once_however_often_the_answer_is_lost() {
    let mut world = World::new(2);
    world.listen(1, Service::UDP, 10);
    let active = asked(&mut world);
    let request = world.outgoing(0).remove(0);
    world.deliver(&request);
    let passive = world.requested(1);
    assert_eq!(world.deliver(&request), Handled::Duplicate(passive));
    assert_eq!(world.outgoing(1), []);
    world.accept(1, passive, 2);
    let answer = world.outgoing(1);
    assert_eq!(world.skip(), 4096 * MILLISECOND);
    world.run_but(is("SIDR_REP"));
    assert_eq!(world.sent.last().unwrap().1, answer[0]);
    // Another request by the same name is another request.
    let mut other = request.clone();
    let Message::SidrReq(asks) = &mut other.mad.message else { panic!() };
    asks.private_data[40] ^= 1;
    assert!(matches!(world.deliver(&other), Handled::Taken(id) if id != passive));
    world.deliver(&answer[0]);
    let found = world.event(0);
    assert!(found.id == active && matches!(found.happened, Happened::Resolved { .. }));
    assert_eq!(world.deliver(&answer[0]), Handled::Unknown);
    world.finish();
}

/// Rules: CM-22
#[test]
fn a_request_that_finds_the_backlog_full_finds_room_later() {
    let mut world = World::new(2);
    let listener = world.listen(1, Service::UDP, 1);
    asked(&mut world);
    asked(&mut world);
    world.run();
    assert_eq!(world.handled[1], Handled::BacklogFull(listener));
    let first = world.requested(1);
    world.skip();
    assert_ne!(world.requested(1), first);
    world.finish();
}

/// Rules: CM-07
#[test]
fn private_data_has_180_bytes_one_way_and_136_the_other() {
    let mut world = World::new(2);
    world.listen(1, Service::UDP, 1);
    let active = world.resolved(0, 1, Service::UDP);
    let long = Connect { private_data: &[1; 181], ..request(1) };
    let refused = Refused::PrivateData { given: 181, room: 180 };
    assert_eq!(world.ends[0].engine.connect(active, &long, world.now), Err(refused));
    let fits = Connect { private_data: &[1; 180], ..request(1) };
    world.ends[0].engine.connect(active, &fits, world.now).unwrap();
    let passive = world.requested(1);
    let long = Accept { private_data: &[1; 137], ..acceptance(1) };
    let refused = Refused::PrivateData { given: 137, room: 136 };
    assert_eq!(world.ends[1].engine.accept(passive, &long, world.now), Err(refused));
    world.finish();
}

/// Rules: CM-39
#[test]
fn a_group_is_joined_by_ids_of_datagrams_that_have_an_address() {
    let mut world = World::new(2);
    let group = "239.1.2.3".parse().unwrap();
    let End { engine, host, .. } = &mut world.ends[0];
    let tcp = engine.create(Service::TCP).unwrap();
    engine.bind(tcp, "10.0.0.1:0".parse().unwrap(), host).unwrap();
    assert_eq!(engine.join(tcp, group, false, Ok(())), Err(Refused::Service));
    let udp = engine.create(Service::UDP).unwrap();
    assert_eq!(engine.join(udp, group, false, Ok(())), Err(Refused::State));
    engine.bind(udp, "10.0.0.1:0".parse().unwrap(), host).unwrap();
    assert_eq!(engine.join(udp, "10.0.0.1".parse().unwrap(), false, Ok(())), Err(Refused::State));
    engine.join(udp, group, true, Ok(())).unwrap();
    let event = engine.poll_event().unwrap();
    let Happened::MulticastJoin(joined) = event.happened else { panic!() };
    assert_eq!((joined.address, joined.send_only, joined.qkey), (group, true, DEFAULT_QKEY));
    let errno = transom_cm::refused::Errno::EADDRNOTAVAIL;
    engine.join(udp, "239.9.9.9".parse().unwrap(), false, Err(errno)).unwrap();
    assert_eq!(engine.poll_event().unwrap().happened.status(), -99);
    // What a program has left it does not hear of.
    let other = "239.7.7.7".parse().unwrap();
    engine.join(udp, other, false, Ok(())).unwrap();
    engine.leave(udp, other).unwrap();
    assert_eq!(engine.leave(udp, other), Err(Refused::NotAvailable));
    assert_eq!(engine.poll_event(), None);
    assert_eq!(engine.destroy(udp, 0, host), Ok(vec![joined]));
    world.finish();
}

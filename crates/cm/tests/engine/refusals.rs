//! Refused requests, and the reasons.

use super::network::*;
use transom_cm::{Arrival, Handled, Refused, Service};
use transom_wire::cm::{CommId, Mad, Message, RejectReason, Rejected, Transport};

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
    // Datagrams are another service. A listener for one address takes no other address.
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
    let mut network = Network::with_listener();
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
    // It may be told before it has the address, or after.
    for (only, told_after) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut network = Network::new(2);
        let End { engine, host, .. } = &mut network.ends[1];
        let listener = engine.create(Service::TCP).unwrap();
        engine.set_v6_only(listener, only != told_after, host).unwrap();
        engine.bind(listener, "[::]:7174".parse().unwrap(), host).unwrap();
        if told_after {
            engine.set_v6_only(listener, only, host).unwrap();
        }
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
    let (mut network, active, passive) = Network::with_request();
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

/// Rules: CM-49
#[test]
fn an_rtu_that_finds_nobody_is_refused() {
    for destroyed in [true, false] {
        let (mut network, active, passive) = Network::with_reply();
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

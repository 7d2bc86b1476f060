//! The ends of connections and of ids.

use std::net::{Ipv4Addr, SocketAddr};

use super::network::*;
use transom_cm::{
    ConnectionState, Engine, Event, Handled, Happened, Host, QpState, Refused, Service,
};
use transom_wire::cm::{CommId, Message, PortSpace, RejectReason, Rejected};

/// Rules: CM-25
#[test]
fn dreqs_that_cross_each_other_end_the_connection_once() {
    let (mut network, active, passive) = Network::with_connection();
    network.ends[0].engine.disconnect(active, network.now).unwrap();
    network.ends[1].engine.disconnect(passive, network.now).unwrap();
    let (one, other) = (network.outgoing(0), network.outgoing(1));
    network.deliver(&one[0]);
    network.deliver(&other[0]);
    assert_eq!(network.event(0), disconnected(active, false));
    assert_eq!(network.event(1), disconnected(passive, false));
    network.said();
    // Each program confirms the end itself.
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
    let (mut network, active, passive) = Network::with_connection();
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
        let (mut network, active, passive) = Network::with_connection();
        let id = [active, passive][end];
        let begin = network.now;
        network.ends[end].engine.disconnect(id, begin).unwrap();
        let mut sent = 0;
        while network.ends[end].engine.connection_state(id) == Some(ConnectionState::DisconnectSent)
        {
            sent += network.outgoing(end).len();
            network.skip();
        }
        // An active end waits as long as for its REQ, a passive one as long as for its REP.
        assert_eq!((sent, network.now - begin), (16, 16 * [4608, 4096][end] * MILLISECOND));
        let event = network.event(end);
        assert_eq!((&event, event.happened.status()), (&disconnected(id, true), -110));
        network.finish();
    }
}

/// Rules: CM-29
#[test]
fn a_queue_pair_may_be_connected_again_in_time_wait() {
    let (mut network, active, passive) = Network::with_connection();
    network.ends[0].engine.disconnect(active, network.now).unwrap();
    network.run();
    network.ends[1].engine.disconnect(passive, network.now).unwrap();
    network.run();
    assert_eq!(network.ends[1].engine.connection_state(passive), Some(ConnectionState::TimeWait));
    for end in &mut network.ends {
        end.events.clear();
    }
    network.connected(1);
    // A destroyed id gets no more events.
    network.destroy(1, passive);
    network.pass(SECOND, |_| false);
    assert_eq!(network.event(0), Event { id: active, happened: Happened::TimewaitExit });
    network.no_events();
    network.finish();
}

/// Rules: CM-26
#[test]
fn a_connection_that_nobody_knows_is_confirmed_to_have_ended() {
    let (mut network, active, _) = Network::with_connection();
    // The server's process dies, and nobody tells the peer.
    network.ends[1].engine = Engine::new(config(1));
    network.ends[1].host.release_slot(config(1).slot);
    network.ends[0].engine.disconnect(active, network.now).unwrap();
    assert_eq!(network.event(0), disconnected(active, false));
    let drep = &network.sent.last().unwrap().1.mad;
    assert_eq!(drep.transaction, network.sent[0].1.mad.transaction);
    network.finish();
}

/// A process that notices the death of another one ends the dead process's connections.
///
/// Rules: CM-25, CM-28
#[test]
fn another_process_tells_the_peers_of_a_process_that_has_died() {
    let (mut network, active, passive) = Network::with_connection();
    let records = [(0, active), (1, passive)].map(|(end, id)| network.ends[end].engine.record(id));
    for (end, record) in records.into_iter().enumerate() {
        let other = [passive, active][end];
        assert_eq!(network.deliver(&record.unwrap().final_message()), Handled::Taken(other));
        assert_eq!(network.event(1 - end), disconnected(other, false));
    }
    network.finish();

    // Before the connection is established, the message is a REJ.
    let (mut network, active, passive) = Network::with_request();
    let received = network.ends[1].engine.record(passive).unwrap();
    network.accept(1, passive, 2);
    let replied = network.ends[1].engine.record(passive).unwrap();
    assert_eq!((received.rejected, replied.rejected), (Some(Rejected::Req), Some(Rejected::Other)));
    // The REJ has overtaken the REP.
    let rep = network.outgoing(1).remove(0);
    assert_eq!(network.deliver(&replied.final_message()), Handled::Taken(active));
    assert_eq!(reason(&network.event(0), active), RejectReason::Consumer);
    assert_eq!(network.deliver(&rep), Handled::Unknown);
    network.no_events();
    network.finish();
}

/// The message of a destroyed id in each state, and its effect at the other end.
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
    let (mut network, active, passive) = Network::with_request();
    assert_eq!(rej(last(&mut network, 0, active)), (4, Rejected::Other, true));
    assert_eq!(reason(&network.event(1), passive), RejectReason::Timeout);
    network.finish();

    let (mut network, active, passive) = Network::with_request();
    assert_eq!(rej(last(&mut network, 1, passive)), (28, Rejected::Req, true));
    assert_eq!(reason(&network.event(0), active), RejectReason::Consumer);
    network.finish();

    let (mut network, active, passive) = Network::with_reply();
    assert_eq!(rej(last(&mut network, 0, active)), (28, Rejected::Rep, true));
    assert_eq!(reason(&network.event(1), passive), RejectReason::Consumer);
    network.finish();

    let (mut network, active, passive) = Network::with_reply();
    assert_eq!(rej(last(&mut network, 1, passive)), (28, Rejected::Other, true));
    assert_eq!(reason(&network.event(0), active), RejectReason::Consumer);
    assert_eq!(network.ends[0].engine.connection_state(active), Some(ConnectionState::TimeWait));
    network.finish();

    let (mut network, active, passive) = Network::with_connection();
    assert!(matches!(last(&mut network, 0, active), Some(Message::Dreq(_))));
    assert_eq!(network.event(1), disconnected(passive, false));
    assert!(matches!(last(&mut network, 1, passive), Some(Message::Drep(_))));
    network.finish();

    let (mut network, active, _) = Network::with_connection();
    network.ends[0].engine.disconnect(active, network.now).unwrap();
    network.outgoing(0);
    assert_eq!(last(&mut network, 0, active), None);
    // The lost DREQ is repeated, even though the id is gone.
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
    let (mut network, active, passive) = Network::with_connection();
    network.destroy(1, passive);
    assert_eq!(
        (network.ends[1].engine.has(passive), network.ends[1].engine.connection_state(passive)),
        (false, None)
    );
    network.run_but(is("DREQ"));
    network.pass(20 * SECOND, |_| true);
    assert_eq!(network.said(), ["DREQ"; 5]);
    assert_eq!(network.ends[1].engine.lingering().collect::<Vec<_>>(), [passive]);
    // Meanwhile its queue pair may be connected again.
    network.skip();
    assert_eq!(network.event(0), disconnected(active, false));
    network.ends[0].engine.disconnect(active, network.now).unwrap();
    network.no_events();
    assert_eq!(network.ends[1].engine.lingering().count(), 0);
    assert_eq!(network.ends[1].engine.poll_timeout(), None);
    // A peer that does not exist any more is given up.
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

/// Rules: DEVS-15
#[test]
fn ids_without_an_address_hear_nothing_of_one_device_of_several() {
    let mut network = Network::new(2);
    let any = |port| SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
    let End { engine, host, .. } = &mut network.ends[1];
    let [new, listens] = [(); 2].map(|()| engine.create(Service::TCP).unwrap());
    engine.bind(listens, any(7_001), host).unwrap();
    engine.listen(listens, 1, 0, host).unwrap();
    let bound = engine.create(Service::TCP).unwrap();
    engine.bind(bound, SocketAddr::new(address(1), 7_003), host).unwrap();
    // Another listener has its port now, so that nothing of it is released here.
    assert_eq!(engine.leave_port(listens).map(|it| it.address), Some(any(7_001)));
    let serves_alone = engine.create(Service::TCP).unwrap();
    engine.bind(serves_alone, any(7_004), host).unwrap();
    engine.listen(serves_alone, 1, 0, host).unwrap();
    engine.device_removed(0, host, true);
    let heard = [network.event(1), network.event(1)];
    assert!(heard.iter().all(|it| it.happened == Happened::DeviceRemoval));
    let heard = heard.map(|it| it.id);
    assert!(heard.contains(&bound) && heard.contains(&serves_alone));
    network.no_events();
    let End { engine, host, .. } = &mut network.ends[1];
    assert_eq!(host.ids_at(PortSpace::Tcp, 7_001), [listens], "it keeps its port");
    assert!(!engine.is_removed(new) && engine.unbound(new).is_some());
    assert!(host.ids_at(PortSpace::Tcp, 7_004).is_empty(), "no other has it");
    engine.bind(new, any(7_002), host).unwrap();
    // No device is left, and that concerns it too.
    engine.device_removed(0, host, false);
    assert_eq!(network.event(1), Event { id: new, happened: Happened::DeviceRemoval });
    network.no_events();
    network.destroy(1, listens);
    assert_eq!(network.ends[1].host.ids_at(PortSpace::Tcp, 7_001), [listens]);
    network.ends[1].host.release_slot((listens.0 >> 24) as u8);
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

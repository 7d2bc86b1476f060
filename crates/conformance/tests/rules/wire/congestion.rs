//! Congestion notifications over the real socket, as the option asks for them.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use transom_abi::*;
use transom_conformance::forger::*;
use transom_conformance::harness::*;
use transom_conformance::processes::Scratch;
use transom_host::{Options, capture};
use transom_wire::Psn;
use transom_wire::packet::{Operation, Packet, Transport};

/// The congestion bits of a TOS byte: capable of being marked, and marked.
const CAPABLE: u8 = 2;
const MARKED: u8 = 3;
/// At least so many nanoseconds are between two notifications.
const INTERVAL: u128 = 50_000;

fn congestion(congestion: bool) -> Options {
    Options { congestion, ..Options::default() }
}

/// The last packet that `b` has had, once more: it is acknowledged again and has no other effect.
fn replay(both: &WirePair, forger: &Forger) {
    let psn = Psn::new(both.psn().value() - 1);
    let datagram = forger.seal(&Packet { psn, ..both.packet(Transport::Rc) });
    let received = &counters(both.pair.qb).received;
    forger.send_until_counted(&[datagram], || received.load(Relaxed));
}

fn notified(both: &WirePair) -> (u64, u64) {
    let sent = counters(both.pair.qb).notifications_sent.load(Relaxed);
    (sent, counters(both.pair.qa).notifications_received.load(Relaxed))
}

/// Sends marked packets until a notification has reached the sender: nobody sends a lost one again.
fn until_told(both: &WirePair, marked: &Forger) {
    until("the sender is told", || {
        replay(both, marked);
        (notified(both).1 > 0).then_some(())
    });
}

/// Rules: CNP-03
#[test]
fn marked_packets_bring_notifications_one_in_an_interval() {
    let both = WirePair::new(IBV_QPT_RC, congestion(true));
    replay(&both, &Forger::at(PEER).marked(CAPABLE));
    assert_eq!(notified(&both), (0, 0));
    let (start, marked) = (Instant::now(), Forger::at(PEER).marked(MARKED));
    until_told(&both, &marked);
    (0..100).for_each(|_| replay(&both, &marked));
    let most = 1 + (start.elapsed().as_nanos() / INTERVAL) as u64;
    assert!((1..=most).contains(&notified(&both).0), "{:?}, most {most}", notified(&both));
    both.is_unchanged();
    both.write(2);
}

/// Rules: CNP-03
#[test]
fn without_the_option_marks_are_ignored() {
    let both = WirePair::new(IBV_QPT_RC, congestion(false));
    replay(&both, &Forger::at(PEER).marked(MARKED));
    both.write(2);
    assert_eq!(notified(&both), (0, 0));
}

/// Rules: CNP-01
#[test]
fn a_notification_looks_as_hardware_sends_it() {
    let scratch = Scratch::new("congestion");
    let path = scratch.path().join("test.pcapng");
    capture::begin(&path).expect("our own folder");
    let options = Options { capture: Some(Box::leak(path.clone().into())), ..congestion(true) };
    let both = WirePair::new(IBV_QPT_RC, options);
    until_told(&both, &Forger::at(PEER).marked(MARKED));
    // SAFETY: the queue pair is live.
    let [_, to @ ..] = unsafe { (*both.pair.qa).qp_num }.to_be_bytes();
    // Nothing set but BECN, PSN 0, 16 bytes of zeros.
    let notification = [&[0x81, 0, 0xff, 0xff, 0x40][..], &to, &[0; 4], &[0; 16]].concat();
    until("it is written down", || {
        let written = std::fs::read(&path).expect("our own file");
        written.windows(notification.len()).any(|part| part == notification).then_some(())
    });
}

/// A traffic class that a program sets says nothing of congestion, whatever its lowest two bits are.
/// Rules: NET-07
#[test]
fn the_congestion_bits_are_not_the_programs() {
    for (class, congested) in [(0x69, false), (0xff, false), (0x69, true), (0xff, true)] {
        let scratch = Scratch::new("classes");
        let path = scratch.path().join("test.pcapng");
        capture::begin(&path).expect("our own folder");
        let options =
            Options { capture: Some(Box::leak(path.clone().into())), ..congestion(congested) };
        let (a, b) = ends(Link::Wire, options);
        let (qa, qb) = (a.qp(IBV_QPT_RC), b.qp(IBV_QPT_RC));
        for (qp, peer) in [(qa, qb), (qb, qa)] {
            let mut attr = usual_attr(peer);
            attr.ah_attr.grh.traffic_class = class;
            bring_up(qp, &attr);
        }
        recv(qb, 1, &mut []);
        post(qa, &mut wr(IBV_WR_SEND));
        a.expect(IBV_WC_SUCCESS);
        b.expect(IBV_WC_SUCCESS);
        assert_eq!(counters(qb).notifications_sent.load(Relaxed), 0);
        let expected = class & !MARKED | if congested { CAPABLE } else { 0 };
        let classes = || {
            let written = std::fs::read(&path).expect("our own file");
            // The headers of IPv4, with UDP and without fragments.
            let is_header = |it: &&[u8]| (it[0], it[6], it[9]) == (0x45, 0x40, 17);
            BTreeSet::from_iter(written.windows(20).filter(is_header).map(|header| header[1]))
        };
        until("it is written down", || (!classes().is_empty()).then_some(()));
        assert_eq!(classes(), BTreeSet::from([expected]), "{class:#x} {congested}");
    }
}

/// Rules: CNP-02, NET-16
#[test]
fn a_notification_is_never_answered_and_changes_nothing() {
    for kind in [IBV_QPT_RC, IBV_QPT_UC] {
        let both = WirePair::new(kind, congestion(true));
        let transport = if kind == IBV_QPT_RC { Transport::Rc } else { Transport::Uc };
        // Marked itself, which is not told either.
        let forger = Forger::at(PEER).marked(MARKED);
        let counters = counters(both.pair.qb);
        let before = both.unasked();
        let notification = Packet {
            operation: Operation::Congestion,
            transport: Transport::Rc,
            becn: true,
            ack_request: false,
            psn: Psn::new(0),
            payload: &[],
            ..both.packet(transport)
        };
        let arrived = || counters.notifications_received.load(Relaxed);
        until("notifications arrive", || {
            forger.send(&forger.seal(&notification));
            (arrived() > 10).then_some(())
        });
        both.is_unchanged();
        both.expect_silence(before);
        assert_eq!(counters.notifications_sent.load(Relaxed), 0);
        both.write(2);
        // It goes on sending, too.
        recv(both.pair.qa, 9, &mut []);
        post(both.pair.qb, &mut wr(IBV_WR_SEND));
        both.pair.b.expect(IBV_WC_SUCCESS);
        both.pair.a.expect(IBV_WC_SUCCESS);
    }
}

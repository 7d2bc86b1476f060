//! Packets that nobody's device has sent come over the real socket: they are counted, and nothing else
//! comes of them.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use transom_abi::*;
use transom_conformance::forger::*;
use transom_conformance::harness::*;
use transom_host::Options;
use transom_ibverbs::*;
use transom_system::registry::Dropped;
use transom_wire::packet::{Aeth, Ending, ICRC_BYTES, Operation, Packet, Reth, Transport};
use transom_wire::{NakCode, Psn, Syndrome};

/// Bytes of a BTH, and of a RETH.
const BTH: usize = 12;
const RETH: usize = 16;
/// Shorter datagrams do not say for which process they are.
const NAMED: usize = 8;

fn both(kind: ibv_qp_type) -> WirePair {
    WirePair::new(kind, Options::default())
}

fn number(qp: *mut ibv_qp) -> u32 {
    // SAFETY: the queue pair is live.
    unsafe { (*qp).qp_num }
}

/// Every operation that a peer could ask for now, as the packet that it would send.
fn requests(both: &WirePair) -> Vec<Packet<'static>> {
    let write = both.packet(Transport::Rc);
    let (address, key) = (both.to.0.addr(), keys(both.to.1).1);
    let reth = Reth { address, key, length: LENGTH as u32 };
    let with = |operation| Packet { operation, ..write };
    let bare = |operation| Packet { payload: &[], ..with(operation) };
    vec![
        write,
        with(Operation::SendOnly(Ending::Plain)),
        with(Operation::WriteOnly { reth, immediate: Some(7) }),
        bare(Operation::ReadRequest(reth)),
        bare(Operation::FetchAdd { address, key, add: 1 }),
        bare(Operation::CompareSwap { address, key, swap: 1, compare: u64::MAX }),
        bare(Operation::SendOnly(Ending::Invalidate(key))),
        bare(Operation::SendFirst),
        bare(Operation::Reserved(0x15)),
        bare(Operation::Congestion),
    ]
}

/// Rules: CRC-09, RA-02, NET-16
#[test]
fn a_packet_with_any_bit_flipped_is_dropped_and_counted() {
    let both = both(IBV_QPT_RC);
    let forger = Forger::at(PEER);
    let right = forger.seal(&both.packet(Transport::Rc));
    let flipped = (0..8 * right.len()).map(|bit| {
        let mut datagram = right.clone();
        datagram[bit / 8] ^= 1 << (bit % 8);
        datagram
    });
    // The ICRC leaves out byte 4; with a bit of the queue pair's number changed it is for another.
    let named = flipped.filter(|datagram| datagram[4..NAMED] == right[4..NAMED]);
    let wrong: Vec<_> = named.filter(|datagram| forger.is_wrong(datagram)).collect();
    assert!(wrong.len() > 700, "{}", wrong.len());
    both.is_dropped(&forger, &wrong, Dropped::WrongIcrc);
    both.write(2);
}

/// Rules: NET-13, RA-02, NET-16
#[test]
fn a_packet_cut_short_anywhere_is_dropped() {
    let both = both(IBV_QPT_RC);
    let forger = Forger::at(PEER);
    let whole = forger.seal(&both.packet(Transport::Rc));
    (0..NAMED).for_each(|length| forger.send(&whole[..length]));
    let cut: Vec<_> = (NAMED..whole.len()).map(|length| whole[..length].to_vec()).collect();
    assert!(cut.iter().all(|datagram| forger.is_wrong(datagram)));
    both.is_dropped(&forger, &cut, Dropped::WrongIcrc);
    // The same with an ICRC that is right for what is left.
    let packet = &whole[..whole.len() - ICRC_BYTES];
    let lengths = (BTH..packet.len()).filter(|length| *length < BTH + RETH || length % 4 != 0);
    let sealed: Vec<_> = lengths.map(|length| forger.seal_bytes(&packet[..length])).collect();
    both.is_dropped(&forger, &sealed, Dropped::Malformed);
    both.write(2);
}

/// Rules: PK-13, NET-13, NET-16
#[test]
fn what_is_no_packet_is_dropped_and_counted() {
    let both = both(IBV_QPT_RC);
    let forger = Forger::at(PEER);
    let whole = forger.seal(&both.packet(Transport::Rc));
    let packet = &whole[..whole.len() - ICRC_BYTES];
    let changed = |at: usize, byte: u8| {
        let mut packet = packet.to_vec();
        packet[at] = byte;
        forger.seal_bytes(&packet)
    };
    // All header versions but zero, and the transports that do not exist here.
    let mut all: Vec<_> = (1..16).map(|version| changed(1, packet[1] & 0xf0 | version)).collect();
    all.extend([0x4a, 0x80, 0x82, 0xca, 0xea, 0xff].map(|opcode| changed(0, opcode)));
    both.is_dropped(&forger, &all, Dropped::Malformed);
    both.write(2);
}

/// Rules: PK-14, NET-16
#[test]
fn a_packet_of_another_partition_is_dropped_and_counted() {
    let both = both(IBV_QPT_RC);
    let forger = Forger::at(PEER);
    let of = |pkey| forger.seal(&Packet { pkey, ..both.packet(Transport::Rc) });
    let all = [0, 0x1234, 0x8000, 0x7ffe, 0xfffe].map(of);
    both.is_dropped(&forger, &all, Dropped::OtherPartition);
    both.write(2);
}

/// Rules: NET-12, NET-16
#[test]
fn a_packet_for_a_queue_pair_that_does_not_exist_is_dropped() {
    let both = both(IBV_QPT_RC);
    let forger = Forger::at(PEER);
    let (gone, _) = both.pair.another(IBV_QPT_RC);
    let gone_number = number(gone);
    // SAFETY: it is not used any more.
    assert_eq!(unsafe { ibv_destroy_qp(gone) }, 0);
    let to = |to| forger.seal(&Packet { to, ..both.packet(Transport::Rc) });
    // Who receives these is not said: nobody, the manager of connections, a group.
    [0, 1, 0xff_ffff].iter().for_each(|number| forger.send(&to(*number)));
    let here = number(both.pair.qb);
    let never = (0..4).map(|bit| here ^ 0x1000 << bit);
    both.is_dropped(&forger, &never.map(to).collect::<Vec<_>>(), Dropped::NoQueuePair);
    // The queue pair that has gone was the other end's.
    let before = counters(both.pair.qa).dropped(Dropped::NoQueuePair);
    until("it is counted", || {
        forger.send(&to(gone_number));
        both.is_unchanged();
        (counters(both.pair.qa).dropped(Dropped::NoQueuePair) > before).then_some(())
    });
    both.write(2);
}

/// Rules: NET-10, NET-16, OP-21, OP-33
#[test]
fn what_a_stranger_sends_is_dropped_however_right_it_is() {
    let both = both(IBV_QPT_RC);
    let mut sges = [sge(both.to.0.addr(), LENGTH as u32, both.to.1)];
    recv(both.pair.qb, 9, &mut sges);
    let forger = Forger::at(STRANGER);
    let all: Vec<_> = requests(&both).iter().map(|packet| forger.seal(packet)).collect();
    both.is_dropped(&forger, &all, Dropped::OtherAddress);
    both.write(2);
    post(both.pair.qa, &mut wr(IBV_WR_SEND));
    both.pair.a.expect(IBV_WC_SUCCESS);
    // None of the forged ones has taken the receive.
    let received = both.pair.b.expect(IBV_WC_SUCCESS);
    assert_eq!((received.wr_id, received.byte_len), (9, 0));
}

/// Rules: NET-10, NET-16
#[test]
fn an_answer_from_a_stranger_completes_nothing() {
    let both = both(IBV_QPT_RC);
    let (qa, qb) = (both.pair.qa, both.pair.qb);
    // There is no receive: the SEND is asked for again until there is.
    post(qa, &mut wr(IBV_WR_SEND));
    let forger = Forger::at(STRANGER);
    let bytes = [
        Syndrome::Ack { credits: 0x1f },
        Syndrome::Nak(NakCode::RemoteAccess),
        Syndrome::Nak(NakCode::InvalidRequest),
    ];
    let answers = bytes.map(|syndrome| {
        let aeth = Aeth { byte: syndrome.to_byte(), msn: 2 };
        let operation = Operation::Acknowledge(aeth);
        let packet = both.packet(Transport::Rc);
        forger.seal(&Packet { to: number(qa), operation, payload: &[], ..packet })
    });
    let dropped = || counters(qa).dropped(Dropped::OtherAddress);
    let enough = dropped() + 100;
    until("the answers are counted", || {
        answers.iter().for_each(|answer| forger.send(answer));
        both.pair.a.expect_nothing();
        (dropped() >= enough).then_some(())
    });
    recv(qb, 9, &mut []);
    both.pair.a.expect(IBV_WC_SUCCESS);
    both.pair.b.expect(IBV_WC_SUCCESS);
    both.is_unchanged();
}

/// Rules: OP-32, NET-16
#[test]
fn a_packet_of_another_service_is_dropped_and_counted() {
    let services = [
        (IBV_QPT_RC, Transport::Rc),
        (IBV_QPT_UC, Transport::Uc),
        (IBV_QPT_UD, Transport::Ud { qkey: 0x1111_1111, source: 17 }),
        (IBV_QPT_XRC_RECV, Transport::Xrc { srq: 1 }),
    ];
    let forger = Forger::at(PEER);
    for kind in [IBV_QPT_RC, IBV_QPT_UC] {
        let both = both(kind);
        let others = services.iter().filter(|(other, _)| *other != kind);
        let all: Vec<_> = others
            .map(|(_, transport)| {
                let operation = Operation::SendOnly(Ending::Plain);
                forger.seal(&Packet { operation, ..both.packet(*transport) })
            })
            .collect();
        both.is_dropped(&forger, &all, Dropped::OtherService);
        both.write(2);
    }
}

/// Rules: OP-31, OP-33
#[test]
fn an_opcode_that_means_nothing_ends_a_reliable_connection_only() {
    for (kind, transport) in [(IBV_QPT_UC, Transport::Uc), (IBV_QPT_RC, Transport::Rc)] {
        let both = both(kind);
        let forger = Forger::at(PEER);
        let packet = both.packet(transport);
        let reserved =
            forger.seal(&Packet { operation: Operation::Reserved(0x18), payload: &[], ..packet });
        let received = &counters(both.pair.qb).received;
        forger.send_until_counted(&[reserved], || received.load(Relaxed));
        if kind == IBV_QPT_UC {
            both.is_unchanged();
        } else {
            let fallen = || (state(both.pair.qb) == IBV_QPS_ERR).then_some(());
            until("the queue pair is in error", fallen);
            assert_eq!(state(both.pair.qa), IBV_QPS_RTS);
            assert!(both.to.0.is_all(UNTOUCHED));
        }
    }
}

/// A packet may come from any source port of the peer: a network may change it, and a sender choose
/// another for each flow.
/// Rules: NET-11
#[test]
fn the_source_port_does_not_matter() {
    let both = both(IBV_QPT_RC);
    let next = both.packet(Transport::Rc);
    for ahead in 0..4 {
        // Each forger has a port of its own.
        let forger = Forger::at(PEER);
        let psn = next.psn.plus(ahead);
        let datagram = forger.seal(&Packet { psn, ..next });
        until("it is written", || {
            // One that comes again has no effect.
            forger.send(&datagram);
            both.to.0.read(0, LENGTH).iter().all(|byte| *byte == FORGED).then_some(())
        });
        both.to.0.fill_part(0, LENGTH, UNTOUCHED);
    }
}

/// The peer's own packets come once more, much later.
///
/// Rules: PSN-12, PSN-14, NET-16
#[test]
fn what_is_replayed_has_no_effect() {
    let both = both(IBV_QPT_RC);
    let forger = Forger::at(PEER);
    let last = Psn::new(both.psn().value() - 1);
    recv(both.pair.qb, 9, &mut []);
    let old = requests(&both).into_iter().filter(|packet| packet.operation != Operation::SendFirst);
    let old = old.map(|packet| forger.seal(&Packet { psn: last, ..packet })).collect::<Vec<_>>();
    let received = &counters(both.pair.qb).received;
    (0..10).for_each(|_| forger.send_until_counted(&old, || received.load(Relaxed)));
    both.is_unchanged();
    both.write(2);
}

/// Rules: NET-16, RA-02
#[test]
fn a_flood_of_forged_packets_does_not_stop_honest_traffic() {
    const MOST: usize = 20_000;
    const ROUNDS: u8 = 100;
    let both = both(IBV_QPT_RC);
    let (peer, stranger) = (Forger::at(PEER), Forger::at(STRANGER));
    let packet = both.packet(Transport::Rc);
    let mut damaged = peer.seal(&packet);
    damaged[BTH] ^= 1;
    assert!(peer.is_wrong(&damaged));
    let short = peer.seal_bytes(&peer.seal(&packet)[..BTH]);
    let other = Packet { pkey: 5, ..packet };
    let nobody = Packet { to: packet.to ^ 0x1000, ..packet };
    let of_uc = Packet { transport: Transport::Uc, ..packet };
    let forged = [
        (&peer, damaged, Dropped::WrongIcrc),
        (&peer, short, Dropped::Malformed),
        (&peer, peer.seal(&other), Dropped::OtherPartition),
        (&peer, peer.seal(&nobody), Dropped::NoQueuePair),
        (&peer, peer.seal(&of_uc), Dropped::OtherService),
        (&stranger, stranger.seal(&packet), Dropped::OtherAddress),
    ];
    let (over, counters) = (AtomicBool::new(false), counters(both.pair.qb));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let all = forged.iter().cycle().take(MOST);
            for (forger, datagram, _) in all.take_while(|_| !over.load(Relaxed)) {
                forger.send(datagram);
            }
        });
        let _over = Over(&over);
        (0..ROUNDS).for_each(|round| both.write(round));
        let counted = || forged.iter().all(|(_, _, why)| counters.dropped(*why) > 0);
        until("all are counted", || counted().then_some(()));
    });
    both.is_unchanged();
}

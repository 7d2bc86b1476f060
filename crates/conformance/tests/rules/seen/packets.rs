//! Packets of known number over the wire, and the counts that they make. Each test is alone in a network namespace, so
//! nothing gets lost, and nobody sends anything else.

use std::net::Ipv4Addr;

use transom_abi::*;
use transom_conformance::datagrams::*;
use transom_conformance::forger::*;
use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::{Way, alone, interfaces_up, ip};
use transom_conformance::watching::{Counters, counters, grown};
use transom_host::Options;
use transom_ibverbs::ibv_attach_mcast;
use transom_net::faults::Faults;
use transom_system::addresses::gid;
use transom_wire::Psn;
use transom_wire::packet::{Ending, Operation, Packet, Transport};

/// Waits until a counter has grown so much, and compares others then. What must not come would have come before.
fn expect(before: &Counters, last: (&str, u64), others: &[(&str, u64)]) {
    let grown = || grown(before, &counters());
    let count = |all: &Counters, name: &str| all.get(name).copied().unwrap_or_default();
    until(last.0, || (count(&grown(), last.0) >= last.1).then_some(()));
    let found = grown();
    for (name, expected) in others.iter().chain([&last]) {
        assert_eq!(count(&found, name), *expected, "{name} in {found:?}");
    }
}

/// Packets that nobody takes, each for another reason.
fn dropped() {
    interfaces_up();
    let both = WirePair::new(IBV_QPT_RC, Options::default());
    let (peer, stranger) = (Forger::at(PEER), Forger::at(STRANGER));
    let packet = both.packet(Transport::Rc);
    let before = counters();
    stranger.send(&stranger.seal(&packet));
    expect(&before, ("port_rcv_discards", 1), &[("port_rcv_errors", 0)]);
    peer.send(&peer.seal(&Packet { to: packet.to ^ 0x7ff, ..packet }));
    expect(&before, ("port_rcv_discards", 2), &[("port_rcv_errors", 0)]);
    let mut damaged = peer.seal(&packet);
    damaged[14] ^= 1;
    peer.send(&damaged);
    expect(&before, ("port_rcv_errors", 1), &[("hw/rx_icrc_encapsulated", 1)]);
    // No packet of this kind exists.
    peer.send(&peer.seal_bytes(&[0xff; 12]));
    expect(&before, ("port_rcv_errors", 2), &[("hw/rx_icrc_encapsulated", 1)]);
    peer.send(&peer.seal(&Packet { pkey: 5, ..packet }));
    let others = [("port_rcv_discards", 2), ("port_rcv_errors", 2), ("port_rcv_packets", 0)];
    expect(&before, ("port_rcv_constraint_errors", 1), &others);
    both.is_unchanged();
}

/// Rules: SEE-04
#[test]
fn each_dropped_packet_counts_for_its_reason() {
    alone(path_of!("each_dropped_packet_counts_for_its_reason"), Way::Namespace, dropped);
}

/// Packets that have come before, and packets that come too early.
fn out_of_order() {
    interfaces_up();
    let both = WirePair::new(IBV_QPT_RC, Options::default());
    let forger = Forger::at(PEER);
    let before = counters();
    let again = Packet { psn: Psn::new(both.psn().value() - 1), ..both.packet(Transport::Rc) };
    (0..3).for_each(|_| forger.send(&forger.seal(&again)));
    expect(&before, ("hw/duplicate_request", 3), &[("hw/out_of_sequence", 0)]);
    let early = Packet { psn: both.psn().plus(1), ..both.packet(Transport::Rc) };
    (0..2).for_each(|_| forger.send(&forger.seal(&early)));
    let others =
        [("hw/out_of_seq_request", 2), ("hw/duplicate_request", 3), ("hw/packet_seq_err", 0)];
    expect(&before, ("hw/out_of_sequence", 2), &others);
    both.is_unchanged();
    both.write(2);
}

/// Rules: SEE-04
#[test]
fn packets_out_of_order_count_where_they_come() {
    alone(path_of!("packets_out_of_order_count_where_they_come"), Way::Namespace, out_of_order);
}

/// The first of two requests gets lost. The second one shows it.
fn missed() {
    interfaces_up();
    let faults: Faults = "drop,op=write,nth=1".parse().expect("a fault");
    let faults = Some(&*Box::leak(Box::new(faults)));
    let (a, b) = ends(Link::Wire, Options { faults, ..Options::default() });
    let (qa, qb) = (a.qp(IBV_QPT_RC), b.qp(IBV_QPT_RC));
    let it = MemoryPair::of(Pair { a, b, qa, qb }, 8192);
    connect(qa, qb);
    let before = counters();
    let (at, key) = (it.far.addr(), it.key());
    let mut sges = [it.near_sge(0, 100)];
    let mut second = rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, at, key);
    let mut first = ibv_send_wr { next: &raw mut second, ..second };
    post(qa, &mut first);
    for _ in 0..2 {
        it.pair.a.expect(IBV_WC_SUCCESS);
    }
    let others = [
        ("hw/out_of_sequence", 1),
        ("hw/rcvd_seq_err", 1),
        ("hw/completer_retry_err", 1),
        ("hw/local_ack_timeout_err", 0),
        ("hw/rx_write_requests", 2),
    ];
    expect(&before, ("hw/packet_seq_err", 1), &others);
}

/// Rules: SEE-04
#[test]
fn a_missed_packet_counts_at_both_ends() {
    alone(path_of!("a_missed_packet_counts_at_both_ends"), Way::Namespace, missed);
}

/// A packet that was marked on its way, and notifications from elsewhere.
fn congested() {
    interfaces_up();
    let options = Options { congestion: true, ..Options::default() };
    let both = WirePair::new(IBV_QPT_RC, options);
    let before = counters();
    let marked = Forger::at(PEER).marked(3);
    let again = Packet { psn: Psn::new(both.psn().value() - 1), ..both.packet(Transport::Rc) };
    marked.send(&marked.seal(&again));
    expect(&before, ("hw/rp_cnp_handled", 1), &[("hw/np_cnp_sent", 1)]);
    let notification = Packet {
        operation: Operation::Congestion,
        becn: true,
        ack_request: false,
        psn: Psn::new(0),
        payload: &[],
        ..both.packet(Transport::Rc)
    };
    let forger = Forger::at(PEER);
    (0..4).for_each(|_| forger.send(&forger.seal(&notification)));
    expect(&before, ("hw/rp_cnp_handled", 5), &[("hw/np_cnp_sent", 1)]);
    both.write(2);
}

/// Rules: SEE-04
#[test]
fn congestion_notifications_count_at_both_ends() {
    alone(path_of!("congestion_notifications_count_at_both_ends"), Way::Namespace, congested);
}

/// A datagram to a group comes from elsewhere, and has three members here in one process.
fn to_members() {
    ip("link add near type veth peer name far");
    ip("address add 10.9.0.1/24 dev near");
    ["lo", "near", "far"].iter().for_each(|name| ip(&format!("link set {name} up")));
    let both = DatagramPair::new(Link::Wire);
    let group = Ipv4Addr::new(239, 77, 0, 1);
    let members = [ud_qp(&both.pair.b), ud_qp(&both.pair.b), both.pair.qb];
    for member in members {
        let raw = gid(group.into());
        // SAFETY: a queue pair of this test; its struct stays readable.
        assert_eq!(unsafe { ibv_attach_mcast(member, &ibv_gid { raw }, 0) }, 0);
        (0..2).for_each(|_| recv(member, 2, &mut [sge(both.far.addr(), 200, both.mb)]));
    }
    let forger = Forger::at(Ipv4Addr::new(10, 9, 0, 1)).to_group(group);
    let transport = Transport::Ud { qkey: QKEY, source: 0x77 };
    let operation = Operation::SendOnly(Ending::Plain);
    let datagram = Packet {
        payload: &[FORGED; LENGTH],
        ..Packet::new(transport, operation, 0xff_ffff, Psn::new(0))
    };
    let before = counters();
    for round in 1..=2 {
        forger.send(&forger.seal(&datagram));
        for _ in 0..3 {
            both.pair.b.expect(IBV_WC_SUCCESS);
        }
        let others = [
            ("multicast_rcv_packets", round),
            ("unicast_rcv_packets", 0),
            ("hw/rdma_recvs", 3 * round),
        ];
        expect(&before, ("port_rcv_packets", round), &others);
    }
}

/// Rules: SEE-03
#[test]
fn a_datagram_to_a_group_on_the_wire_is_one_packet() {
    let path = path_of!("a_datagram_to_a_group_on_the_wire_is_one_packet");
    alone(path, Way::Namespace, to_members);
}

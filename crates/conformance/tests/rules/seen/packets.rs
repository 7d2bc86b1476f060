//! Packets of known number over the wire, and the counts that they make. Each test is alone in a network namespace, so
//! nothing gets lost, and nobody sends anything else.

use std::net::Ipv4Addr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use transom_abi::*;
use transom_conformance::datagrams::*;
use transom_conformance::forger::{counters as of_device, *};
use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::{Way, alone, interfaces_up, ip};
use transom_conformance::queues::number;
use transom_conformance::watching::{Counters, counters, grown};
use transom_host::Options;
use transom_ibverbs::ibv_attach_mcast;
use transom_system::addresses::gid;
use transom_system::registry::Dropped;
use transom_wire::packet::{Aeth, Ending, Operation, Packet, Transport};
use transom_wire::{NakCode, Psn, Syndrome};

use super::exporters::metrics_tell_the_counters;
use super::losing::losing_a_write;
use super::metrics::{printed, tells};

/// Waits until a counter has grown so much, and compares others then. What must not come would have come before. The
/// metrics tell the same.
fn expect(before: &Counters, last: (&str, u64), others: &[(&str, u64)]) {
    let grown = || grown(before, &counters());
    let count = |all: &Counters, name: &str| all.get(name).copied().unwrap_or_default();
    until(last.0, || (count(&grown(), last.0) >= last.1).then_some(()));
    let found = grown();
    for (name, expected) in others.iter().chain([&last]) {
        assert_eq!(count(&found, name), *expected, "{name} in {found:?}");
    }
    metrics_tell_the_counters();
}

/// Packets that nobody takes, for each reason one more than for the one before.
fn dropped() {
    interfaces_up();
    let both = WirePair::new(IBV_QPT_RC, Options::default());
    let (peer, stranger) = (Forger::at(PEER), Forger::at(STRANGER));
    let send = |count, datagram: &[u8]| (0..count).for_each(|_| peer.send(datagram));
    let packet = both.packet(Transport::Rc);
    let before = counters();
    stranger.send(&stranger.seal(&packet));
    expect(&before, ("port_rcv_discards", 1), &[("port_rcv_errors", 0)]);
    send(2, &peer.seal(&Packet { to: packet.to ^ 0x7ff, ..packet }));
    expect(&before, ("port_rcv_discards", 3), &[("port_rcv_errors", 0)]);
    let mut damaged = peer.seal(&packet);
    damaged[14] ^= 1;
    send(3, &damaged);
    expect(&before, ("port_rcv_errors", 3), &[("hw/rx_icrc_encapsulated", 3)]);
    // No packet of this kind exists.
    send(4, &peer.seal_bytes(&[0xff; 12]));
    expect(&before, ("port_rcv_errors", 7), &[("hw/rx_icrc_encapsulated", 3)]);
    send(5, &peer.seal(&Packet { pkey: 5, ..packet }));
    let others = [("port_rcv_discards", 3), ("port_rcv_errors", 7), ("port_rcv_packets", 0)];
    expect(&before, ("port_rcv_constraint_errors", 5), &others);
    let operation = Operation::SendOnly(Ending::Plain);
    send(6, &peer.seal(&Packet { operation, ..both.packet(Transport::Uc) }));
    expect(&before, ("port_rcv_discards", 9), &others[1..]);
    // Of a process that is not there.
    send(7, &peer.seal(&Packet { to: packet.to ^ 0x80_0000, ..packet }));
    expect(&before, ("port_rcv_discards", 16), &others[1..]);
    // For the members of a group, by the address of a host.
    let transport = Transport::Ud { qkey: QKEY, source: 17 };
    let to_all = Packet { operation, to: 0xff_ffff, ..both.packet(transport) };
    send(8, &peer.seal(&to_all));
    expect(&before, ("port_rcv_discards", 24), &others[1..]);
    both.is_unchanged();
    let reasons = [
        ("other_address", 1.0),
        ("no_queue_pair", 2.0),
        ("wrong_icrc", 3.0),
        ("malformed", 4.0),
        ("other_partition", 5.0),
        ("other_service", 6.0),
        ("nobody_there", 7.0),
        ("wrong_destination", 8.0),
    ];
    tells(&printed(), "transom_packets_dropped_total", "reason", &[], &reasons);
}

/// Rules: SEE-04, SEE-07, SEE-08
#[test]
fn each_dropped_packet_counts_for_its_reason() {
    alone(path_of!("each_dropped_packet_counts_for_its_reason"), Way::Namespace, dropped);
}

/// More datagrams than the socket has room for. The kernel tells how many it has lost with the next one that it takes.
fn overflowing() {
    interfaces_up();
    let both = WirePair::new(IBV_QPT_RC, Options::default());
    let counted = |why| [both.pair.qa, both.pair.qb].map(|qp| of_device(qp).dropped(why));
    let [lost, damaged] =
        [Dropped::Overflow, Dropped::WrongIcrc].map(|why| move || counted(why).iter().sum::<u64>());
    let (forger, before) = (Forger::at(PEER), counters());
    // Its ICRC takes longer to compute than itself to send.
    let long = [&forger.seal(&both.packet(Transport::Rc))[..], &[0; 60_000]].concat();
    let (mut sent, mut since) = (0, Instant::now());
    until("a full socket", || {
        (0..100).for_each(|_| forger.send(&long));
        sent += 100;
        (lost() > 0).then_some(())
    });
    until("one behind the last lost one", || {
        let all = lost() + damaged();
        if all < sent && since.elapsed() > Duration::from_millis(250) {
            forger.send(&long);
            (sent, since) = (sent + 1, Instant::now());
        }
        (all == sent).then_some(())
    });
    expect(&before, ("port_rcv_errors", damaged()), &[("port_rcv_discards", lost())]);
    let reasons = [("overflow", lost() as f64), ("wrong_icrc", damaged() as f64)];
    tells(&printed(), "transom_packets_dropped_total", "reason", &[], &reasons);
}

/// Rules: SEE-04, SEE-07, SEE-08
#[test]
fn what_the_socket_had_no_room_for_is_told() {
    alone(path_of!("what_the_socket_had_no_room_for_is_told"), Way::Namespace, overflowing);
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

/// Rules: SEE-04, SEE-07
#[test]
fn packets_out_of_order_count_where_they_come() {
    alone(path_of!("packets_out_of_order_count_where_they_come"), Way::Namespace, out_of_order);
}

/// The first of two requests gets lost. The second one shows it.
fn missed() {
    interfaces_up();
    let it = losing_a_write(8192);
    let qa = it.pair.qa;
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

/// Rules: SEE-04, SEE-07
#[test]
fn a_missed_packet_counts_at_both_ends() {
    alone(path_of!("a_missed_packet_counts_at_both_ends"), Way::Namespace, missed);
}

/// A pair whose target hears of nothing, and whose origin has all the time to wait for it.
fn with_a_deaf_target() -> MemoryPair {
    let (a, b) = ends(Link::Wire, Options::default());
    let (qa, qb) = (a.qp(IBV_QPT_RC), b.qp(IBV_QPT_RC));
    assert_eq!(modify(qb, &usual_attr(qa), IBV_QPS_INIT), 0);
    bring_up(qa, &ibv_qp_attr { timeout: 0, ..usual_attr(qb) });
    MemoryPair::of(Pair { a, b, qa, qb }, 4096)
}

/// Answers the origin's request of this number in the target's name.
fn answer(it: &MemoryPair, request: u32, syndrome: Syndrome) {
    let aeth = Aeth { byte: syndrome.to_byte(), msn: request };
    let psn = Psn::new(usual_attr(it.pair.qb).sq_psn + request - 1);
    let answer = Packet::new(Transport::Rc, Operation::Acknowledge(aeth), number(it.pair.qa), psn);
    let forger = Forger::at(PEER);
    forger.send(&forger.seal(&answer));
}

/// A READ and a WRITE wait for their answers.
pub(super) fn without_answers() -> MemoryPair {
    let it = with_a_deaf_target();
    for opcode in [IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE] {
        it.post_op(it.pair.qa, opcode, it.far.addr(), it.key(), 64);
    }
    it
}

/// The answer to that WRITE comes, and that to the READ before it does not.
pub(super) fn answer_the_write(it: &MemoryPair) {
    answer(it, 2, Syndrome::Ack { credits: 0x1f });
}

/// Both.
pub(super) fn an_answer_is_missing() -> MemoryPair {
    let it = without_answers();
    answer_the_write(&it);
    it
}

fn missing() {
    interfaces_up();
    let before = counters();
    let it = an_answer_is_missing();
    let others = [("hw/completer_retry_err", 1), ("hw/local_ack_timeout_err", 0)];
    expect(&before, ("hw/implied_nak_seq_err", 1), &others);
    it.pair.a.expect_nothing();
}

/// Rules: SEE-04, SEE-07
#[test]
fn an_answer_that_shows_that_another_is_missing_counts_once() {
    let path = path_of!("an_answer_that_shows_that_another_is_missing_counts_once");
    alone(path, Way::Namespace, missing);
}

/// A target that is not here refuses.
fn refused() {
    interfaces_up();
    let before = counters();
    for (code, at_origin, at_target) in [
        (NakCode::RemoteAccess, "hw/req_remote_access_errors", "hw/resp_remote_access_errors"),
        (NakCode::InvalidRequest, "hw/req_remote_invalid_request", "hw/resp_local_length_error"),
    ] {
        let it = with_a_deaf_target();
        it.post_op(it.pair.qa, IBV_WR_RDMA_WRITE, it.far.addr(), it.key(), 64);
        answer(&it, 1, Syndrome::Nak(code));
        expect(&before, (at_origin, 1), &[(at_target, 0), ("hw/resp_cqe_error", 0)]);
    }
}

/// Rules: SEE-04, SEE-07
#[test]
fn what_a_target_elsewhere_refuses_counts_at_the_origin_only() {
    let path = path_of!("what_a_target_elsewhere_refuses_counts_at_the_origin_only");
    alone(path, Way::Namespace, refused);
}

/// The network has gone.
fn without_a_way() {
    with_a_network();
    let (a, b) = ends(Link::Wire, Options::default());
    let (qa, qb) = (a.qp(IBV_QPT_RC), b.qp(IBV_QPT_RC));
    let ah_attr = to_gid(gid(Ipv4Addr::new(10, 9, 0, 2).into()));
    bring_up(qa, &ibv_qp_attr { ah_attr, timeout: 10, retry_cnt: 0, ..usual_attr(qb) });
    ip("link set near down");
    let before = counters();
    post(qa, &mut wr(IBV_WR_SEND));
    a.expect(IBV_WC_RETRY_EXC_ERR);
    let others = [("hw/send_err", 1), ("hw/retry_exceeded_err", 1), ("port_xmit_packets", 0)];
    expect(&before, ("port_xmit_discards", 1), &others);
    let reasons = [("unreachable", 1.0)];
    tells(&printed(), "transom_packets_dropped_total", "reason", &[], &reasons);
}

/// Rules: SEE-04, SEE-07
#[test]
fn a_packet_that_has_no_way_out_counts_as_discarded() {
    let path = path_of!("a_packet_that_has_no_way_out_counts_as_discarded");
    alone(path, Way::Namespace, without_a_way);
}

/// What no test of the whole can bring about, as a process counts it: the socket has room when it has room, no datagram
/// is longer than the room for it, and the kernel tells where each came from.
fn as_counted() {
    interfaces_up();
    let both = WirePair::new(IBV_QPT_RC, Options::default());
    let (before, of) = (counters(), of_device(both.pair.qa));
    of.no_room.fetch_add(3, Relaxed);
    of.drop(Dropped::Cut, 2);
    let others = [("port_xmit_discards", 0), ("port_rcv_errors", 2), ("port_rcv_discards", 0)];
    expect(&before, ("port_xmit_wait", 3), &others);
    let reasons = [("cut", 2.0)];
    tells(&printed(), "transom_packets_dropped_total", "reason", &[], &reasons);
}

/// Rules: SEE-04, SEE-07, SEE-08
#[test]
fn packets_that_waited_for_room_and_cut_ones_are_told() {
    let path = path_of!("packets_that_waited_for_room_and_cut_ones_are_told");
    alone(path, Way::Namespace, as_counted);
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
    let others = [("hw/np_cnp_sent", 1), ("hw/np_ecn_marked_roce_packets", 1)];
    expect(&before, ("hw/rp_cnp_handled", 1), &others);
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
    let others = [("hw/np_cnp_sent", 1), ("hw/rp_cnp_ignored", 0)];
    expect(&before, ("hw/rp_cnp_handled", 5), &others);
    both.write(2);
    // Nothing is acknowledged here, so there is nothing to slow down.
    let unreliable = WirePair::new(IBV_QPT_UC, options);
    let to = number(unreliable.pair.qb);
    (0..3).for_each(|_| forger.send(&forger.seal(&Packet { to, ..notification })));
    expect(&before, ("hw/rp_cnp_ignored", 3), &[("hw/rp_cnp_handled", 5)]);
    // Each marked packet counts. How many of them are told depends on the time between them.
    (0..2).for_each(|_| marked.send(&marked.seal(&again)));
    expect(&before, ("hw/np_ecn_marked_roce_packets", 3), &[("hw/rp_cnp_ignored", 3)]);
}

/// Rules: SEE-04, SEE-07
#[test]
fn congestion_notifications_count_at_both_ends() {
    alone(path_of!("congestion_notifications_count_at_both_ends"), Way::Namespace, congested);
}

/// Groups are joined on networks.
fn with_a_network() {
    ip("link add near type veth peer name far");
    ip("address add 10.9.0.1/24 dev near");
    ["lo", "near", "far"].iter().for_each(|name| ip(&format!("link set {name} up")));
}

/// A datagram to a group leaves.
fn to_a_group() {
    with_a_network();
    let mut both = DatagramPair::new(Link::Wire);
    let group = gid(Ipv4Addr::new(239, 77, 0, 1).into());
    both.ah = ah(both.pair.a.pd, &to_gid(group));
    let before = counters();
    both.post_to(wr(IBV_WR_SEND), 100, 0xff_ffff, QKEY);
    both.sent();
    let others = [("port_xmit_packets", 1), ("unicast_xmit_packets", 0), ("hw/rdma_sends", 1)];
    expect(&before, ("multicast_xmit_packets", 1), &others);
}

/// Rules: SEE-03, SEE-07
#[test]
fn a_datagram_that_leaves_for_a_group_is_one_packet() {
    let path = path_of!("a_datagram_that_leaves_for_a_group_is_one_packet");
    alone(path, Way::Namespace, to_a_group);
}

/// A datagram to a group comes from elsewhere, and has three members here in one process.
fn to_members() {
    with_a_network();
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

/// Rules: SEE-03, SEE-07
#[test]
fn a_datagram_to_a_group_on_the_wire_is_one_packet() {
    let path = path_of!("a_datagram_to_a_group_on_the_wire_is_one_packet");
    alone(path, Way::Namespace, to_members);
}

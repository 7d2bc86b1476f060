//! Programs of known traffic, and the counts that they make.

use std::collections::BTreeMap;

use transom_abi::*;
use transom_conformance::datagrams::*;
use transom_conformance::extended_qp::*;
use transom_conformance::harness::*;
use transom_conformance::path_of;
use transom_conformance::processes::{Way, alone, interfaces_up};
use transom_conformance::watching::{Counters, counters, grown};
use transom_ibverbs::ibv_attach_mcast;
use transom_system::port_counters::of_queue_pair;
use transom_system::registry::Registry;
use transom_system::segment::Segment;

use super::exporters::metrics_tell_the_counters;
use super::losing::losing;

/// Carries traffic out between two reads of the counters, and compares how much they have grown: those of the port, and
/// those of all queue pairs together. The metrics tell the same.
fn counts(name: &str, traffic: impl FnOnce(), expected: &[(&str, u64)]) {
    let (before, by_pairs_before) = (counters(), by_queue_pairs());
    traffic();
    let (found, by_pairs) = (grown(&before, &counters()), by_queue_pairs());
    let expected: BTreeMap<_, _> =
        expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    assert_eq!(found, expected, "{name}");
    let of_pairs = |(name, _): &(&String, &u64)| by_pairs.contains_key(*name);
    let expected: Counters =
        expected.iter().filter(of_pairs).map(|(name, count)| (name.clone(), *count)).collect();
    assert_eq!(grown(&by_pairs_before, &by_pairs), expected, "{name}, by queue pair");
    metrics_tell_the_counters();
}

/// What `rdma statistic qp show` tells of the queue pairs here, added up.
fn by_queue_pairs() -> Counters {
    let processes = Registry::open().expect("the registry").processes();
    let segments: Vec<_> = processes.iter().filter(|it| it.alive).filter_map(Segment::of).collect();
    let mut sums = Counters::new();
    for (_, carried) in segments.iter().flat_map(Segment::carried_by_each) {
        for (name, count) in of_queue_pair(carried) {
            *sums.entry(format!("hw/{name}")).or_default() += count;
        }
    }
    sums
}

/// The packets and bytes that leave and come in the host, and what else is counted.
fn within_host<'a>(packets: u64, octets: u64, others: &[(&'a str, u64)]) -> Vec<(&'a str, u64)> {
    let data = octets / 4;
    let mut all = vec![
        ("port_xmit_packets", packets),
        ("port_rcv_packets", packets),
        ("unicast_xmit_packets", packets),
        ("unicast_rcv_packets", packets),
        ("hw/sent_pkts", packets),
        ("hw/rcvd_pkts", packets),
        ("port_xmit_data", data),
        ("port_rcv_data", data),
    ];
    all.extend(others);
    all
}

/// One of each operation, on every link within the host. The path MTU is 1024.
fn messages() {
    for link in [Link::Loopback, Link::Local, Link::Rings] {
        let it = MemoryPair::new(link, 8192);
        let Pair { b, qa, qb, .. } = &it.pair;
        let (at, key) = (it.far.addr(), it.key());
        let op = |opcode, length| {
            assert_eq!(it.op(opcode, at, key, length).status, IBV_WC_SUCCESS);
        };
        // Three packets, with 16 bytes of headers each.
        let written = within_host(3, 3048, &[("hw/rx_write_requests", 1)]);
        counts("a WRITE", || op(IBV_WR_RDMA_WRITE, 3000), &written);
        let written = within_host(1, 16, &[("hw/rx_write_requests", 1)]);
        counts("a WRITE of nothing", || op(IBV_WR_RDMA_WRITE, 0), &written);
        // One packet asks.
        let read = within_host(4, 3064, &[("hw/rx_read_requests", 1)]);
        counts("a READ", || op(IBV_WR_RDMA_READ, 3000), &read);
        let changed = within_host(2, 40, &[("hw/rx_atomic_requests", 1)]);
        counts("an atomic", || op(IBV_WR_ATOMIC_FETCH_AND_ADD, 8), &changed);
        let written = within_host(1, 24, &[("hw/rx_write_requests", 1)]);
        counts("an ATOMIC WRITE", || op(IBV_WR_ATOMIC_WRITE, 8), &written);
        // One packet asks and one answers, and neither brings data.
        counts("a FLUSH", flushing(&it), &within_host(2, 32, &[]));
        let sent = within_host(2, 2080, &[("hw/rdma_sends", 1), ("hw/rdma_recvs", 1)]);
        let send = || {
            it.recv(*qb, 1, 8192);
            op(IBV_WR_SEND, 2048);
            b.expect(IBV_WC_SUCCESS);
        };
        counts("a SEND", send, &sent);
        let many = within_host(1000, 116_000, &[("hw/rx_write_requests", 1000)]);
        let writes = || (0..1000).for_each(|_| op(IBV_WR_RDMA_WRITE, 100));
        counts("many WRITEs", writes, &many);
        let posts = || {
            let mut sges = [it.near_sge(0, 100)];
            let mut wr = rdma_wr(IBV_WR_RDMA_WRITE_WITH_IMM, &mut sges, at, key);
            it.recv(*qb, 1, 0);
            post(*qa, &mut wr);
            it.pair.a.expect(IBV_WC_SUCCESS);
            b.expect(IBV_WC_SUCCESS);
        };
        counts("with immediate", posts, &within_host(1, 116, &[("hw/rx_write_requests", 1)]));
    }
}

/// Carries out a FLUSH at each call, between two queue pairs of its own.
pub(super) fn flushing(it: &MemoryPair) -> impl Fn() {
    let (a, b) = (&it.pair.a, &it.pair.b);
    let [qa, qb] = [a, b].map(|end| qp_ex(end, IBV_QPT_RC, IBV_QP_EX_WITH_FLUSH));
    connect_with(qa, qb, |attr| {
        attr.qp_access_flags |= IBV_ACCESS_FLUSH_GLOBAL;
        // On a busy machine answers are late, and nothing is to go again.
        attr.timeout = 18;
    });
    let mr = b.reg(&it.far, ALL | IBV_ACCESS_FLUSH_GLOBAL as i32);
    let (at, key) = (it.far.addr(), keys(mr).1);
    move || {
        let code =
            Builder::of(qa).batch(|build| build.signaled(1).flush(key, at, 64, 1, IBV_FLUSH_RANGE));
        assert_eq!(code, 0);
        a.expect(IBV_WC_SUCCESS);
    }
}

/// Rules: SEE-01, SEE-03, SEE-07, SEE-22
#[test]
fn each_message_in_the_host_counts_as_an_adapters_packets() {
    let path = path_of!("each_message_in_the_host_counts_as_an_adapters_packets");
    alone(path, Way::Namespace, messages);
}

/// What goes wrong, on every link within the host.
fn failures() {
    for link in [Link::Loopback, Link::Local, Link::Rings] {
        let it = MemoryPair::new(link, 8192);
        let refused = [
            ("hw/req_cqe_error", 1),
            ("hw/req_remote_access_errors", 1),
            ("hw/resp_remote_access_errors", 1),
        ];
        let refuse = || {
            let failed = it.op(IBV_WR_RDMA_WRITE, it.far.addr(), it.key() ^ 0x80, 8);
            assert_eq!(failed.status, IBV_WC_REM_ACCESS_ERR);
        };
        counts("a refused WRITE", refuse, &refused);

        let (qa, qb) = it.pair.another(IBV_QPT_RC);
        it.recv(qb, 1, 8);
        let too_long = [
            ("hw/req_cqe_error", 1),
            ("hw/req_remote_invalid_request", 1),
            ("hw/resp_cqe_error", 1),
            ("hw/resp_local_length_error", 1),
        ];
        let send = || {
            let failed = it.op_on(qa, IBV_WR_SEND, 0, 0, 16);
            assert_eq!(failed.status, IBV_WC_REM_INV_REQ_ERR);
            it.pair.b.expect(IBV_WC_LOC_LEN_ERR);
        };
        counts("a SEND that is too long", send, &too_long);

        let (qa, _) = it.pair.another_with(|attr| attr.rnr_retry = 0, |_| ());
        let not_ready = [
            ("hw/out_of_buffer", 1),
            ("hw/rnr_nak_retry_err", 1),
            ("hw/send_rnr_err", 1),
            ("hw/rcvd_rnr_err", 1),
            ("hw/completer_retry_err", 1),
            ("hw/retry_rnr_exceeded_err", 1),
            ("hw/req_cqe_error", 1),
        ];
        let send = || {
            let failed = it.op_on(qa, IBV_WR_SEND, 0, 0, 16);
            assert_eq!(failed.status, IBV_WC_RNR_RETRY_EXC_ERR);
        };
        counts("a SEND without a receive", send, &not_ready);

        let (qa, qb) = (it.pair.a.qp(IBV_QPT_RC), it.pair.b.qp(IBV_QPT_RC));
        // It hears of nothing yet.
        assert_eq!(modify(qb, &usual_attr(qa), IBV_QPS_INIT), 0);
        bring_up(qa, &ibv_qp_attr { timeout: 8, retry_cnt: 2, ..usual_attr(qb) });
        let unanswered = [
            ("hw/local_ack_timeout_err", 3),
            ("hw/completer_retry_err", 3),
            ("hw/retry_exceeded_err", 1),
            ("hw/req_cqe_error", 1),
        ];
        let send = || {
            let failed = it.op_on(qa, IBV_WR_SEND, 0, 0, 16);
            assert_eq!(failed.status, IBV_WC_RETRY_EXC_ERR);
        };
        counts("a SEND without an answer", send, &unanswered);

        let (qa, qb) = it.pair.another(IBV_QPT_RC);
        it.recv(qb, 1, 8);
        it.recv(qb, 2, 8);
        let flushed = [
            ("hw/resp_cqe_error", 2),
            ("hw/resp_cqe_flush_error", 2),
            ("hw/req_cqe_error", 1),
            ("hw/req_cqe_flush_error", 1),
        ];
        let flush = || {
            for qp in [qa, qb] {
                assert_eq!(set_state(qp, IBV_QPS_ERR), 0);
            }
            it.pair.b.expect(IBV_WC_WR_FLUSH_ERR);
            it.pair.b.expect(IBV_WC_WR_FLUSH_ERR);
            assert_eq!(it.op_on(qa, IBV_WR_SEND, 0, 0, 8).status, IBV_WC_WR_FLUSH_ERR);
        };
        counts("flushed work", flush, &flushed);
    }
}

/// Rules: SEE-04, SEE-07, SEE-22
#[test]
fn each_failure_counts_at_the_end_that_sees_it() {
    alone(path_of!("each_failure_counts_at_the_end_that_sees_it"), Way::Namespace, failures);
}

/// A datagram to a group counts at a member once it is in a receive. Until then nothing has come, so no counter falls.
fn to_groups() {
    let mut group = [0; 16];
    (group[0], group[1], group[15]) = (0xff, 0x01, 0x77);
    for link in [Link::Loopback, Link::Local, Link::Rings] {
        let mut both = DatagramPair::new(link);
        both.recv(1, 200);
        both.send(100);
        both.came(1, 100);
        // SAFETY: a queue pair of this test; its struct stays readable.
        assert_eq!(unsafe { ibv_attach_mcast(both.pair.qb, &ibv_gid { raw: group }, 0) }, 0);
        both.ah = ah(both.pair.a.pd, &to_gid(group));
        let send = || {
            both.post_to(wr(IBV_WR_SEND), 100, 0xff_ffff, QKEY);
            both.sent();
        };
        let names = [
            "multicast_xmit_packets",
            "multicast_rcv_packets",
            "port_rcv_packets",
            "unicast_rcv_packets",
            "hw/rdma_recvs",
            "hw/out_of_buffer",
        ];
        let grown_to = |before: &Counters| {
            let found = grown(before, &counters());
            names.map(|name| found.get(name).copied().unwrap_or_default())
        };
        let before = counters();
        send();
        until("the datagram that finds no receive", || {
            both.pair.b.expect_nothing();
            (grown_to(&before)[5] > 0).then_some(())
        });
        assert_eq!(grown_to(&before), [1, 0, 0, 0, 0, 1], "{names:?}");
        metrics_tell_the_counters();
        both.recv(2, 200);
        let before = counters();
        send();
        both.came(2, 100);
        assert_eq!(grown_to(&before), [1, 1, 1, 0, 1, 0], "{names:?}");
        metrics_tell_the_counters();
    }
}

/// Rules: SEE-02, SEE-03, SEE-07
#[test]
fn a_datagram_to_a_group_counts_where_it_is_received() {
    alone(path_of!("a_datagram_to_a_group_counts_where_it_is_received"), Way::Namespace, to_groups);
}

/// A request that the responder drops is sent again when its time is over.
fn over_the_wire() {
    interfaces_up();
    let it = losing("drop,op=write,nth=2", 8192);
    let (at, key) = (it.far.addr(), it.key());
    let before = counters();
    for _ in 0..2 {
        assert_eq!(it.op(IBV_WR_RDMA_WRITE, at, key, 1000).status, IBV_WC_SUCCESS);
    }
    assert_eq!(it.op(IBV_WR_RDMA_READ, at, key, 3000).status, IBV_WC_SUCCESS);
    let found = grown(&before, &counters());
    for (name, count) in [
        ("hw/rx_write_requests", 2),
        ("hw/rx_read_requests", 1),
        ("hw/local_ack_timeout_err", 1),
        ("hw/completer_retry_err", 1),
    ] {
        assert_eq!(found.get(name), Some(&count), "{name} in {found:?}");
    }
    // Three WRITEs went out, two of them were acknowledged, and a READ has a request and three answers.
    assert_eq!(found["port_xmit_packets"], 3 + 2 + 4, "{found:?}");
    // BTH and ICRC are in each, a RETH in what asks, an AETH in what answers, but for the READ's middle packet.
    let (headers, reth, aeth) = (12 + 4, 16, 4);
    let writes = 3 * (headers + reth + 1000) + 2 * (headers + aeth);
    let read = headers + reth + 3 * headers + 2 * aeth + 3000;
    for name in ["port_xmit_data", "port_rcv_data"] {
        assert_eq!(found[name], (writes + read) / 4, "{name} in {found:?}");
    }
    assert_eq!((found["hw/sent_pkts"], found["hw/rcvd_pkts"]), (9, found["port_rcv_packets"]));
    metrics_tell_the_counters();
}

/// Rules: SEE-01, SEE-03, SEE-04, SEE-07
#[test]
fn packets_on_the_wire_count_as_they_are_sent() {
    alone(path_of!("packets_on_the_wire_count_as_they_are_sent"), Way::Namespace, over_the_wire);
}

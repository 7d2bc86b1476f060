//! Work that comes to nothing although nothing is refused, and the reason that `explain` gives.

use transom_abi::*;
use transom_conformance::datagrams::*;
use transom_conformance::explained::explained;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::queues::*;
use transom_conformance::shared_receive::*;

/// Asserts that one of the sentences has all these words.
fn expect(told: &[String], words: &[&str]) {
    let found = told.iter().any(|sentence| words.iter().all(|word| sentence.contains(word)));
    assert!(found, "{words:?}: {told:#?}");
}

/// Two queue pairs, of which the origin gives up soon; what each is set to may differ from the usual.
fn two(
    pair: &Pair,
    origin: impl FnOnce(&mut ibv_qp_attr),
    target: impl FnOnce(&mut ibv_qp_attr),
) -> (*mut ibv_qp, *mut ibv_qp) {
    let soon = |attr: &mut ibv_qp_attr| {
        (attr.timeout, attr.retry_cnt, attr.rnr_retry) = (8, 1, 1);
        origin(attr);
    };
    pair.another_with(soon, target)
}

/// Sends a message that ends with this status, and answers what is told of it.
fn fails(pair: &Pair, (qa, qb): (u32, u32), origin: *mut ibv_qp, status: u32) -> Vec<String> {
    post(origin, &mut ibv_send_wr { wr_id: 77, ..wr(IBV_WR_SEND) });
    assert_eq!(pair.a.expect(status).wr_id, 77);
    let told = explained(qa, qb);
    expect(&told, &["SEND (wr_id 77) by QP", " ended with IBV_WC_R"]);
    told
}

fn numbers(qa: *mut ibv_qp, qb: *mut ibv_qp) -> (u32, u32) {
    (number(qa), number(qb))
}

on_each_link! {
    /// Asked at the requester: what is wrong at the other end, in its own words; over the wire what could not be seen
    /// from here is told by the other end's device.
    /// Rules: EX-01, EX-02
    fn a_request_that_nobody_answers_is_told_of(link: Link) {
        let pair = Pair::rc(link);
        let far = link == Link::Wire;
        let expect = |told: &[String], near: &[&str], there: &[&str]| {
            expect(told, &["no answer came, though it was sent 2 times, 1.0 ms apart (timeout 8)"]);
            expect(told, if far { &["It went to "] } else { near });
            expect(told, if far { there } else { near });
        };
        let status = IBV_WC_RETRY_EXC_ERR;

        // The other end is in INIT, in RESET, in ERR.
        for (state, name) in
            [(IBV_QPS_RESET, "RESET"), (IBV_QPS_INIT, "INIT"), (IBV_QPS_ERR, "ERR")]
        {
            let (qa, qb) = two(&pair, |_| (), |_| ());
            assert_eq!(set_state(qb, IBV_QPS_RESET), 0);
            if state != IBV_QPS_RESET {
                assert_eq!(modify(qb, &usual_attr(qa), IBV_QPS_INIT), 0);
                assert_eq!(set_state(qb, state), 0);
            }
            let told = fails(&pair, numbers(qa, qb), qa, status);
            expect(&told, &[&format!("queue pair is in {name}")], &[&format!("is in {name}")]);
        }
        // It is destroyed.
        let (qa, qb) = two(&pair, |_| (), |_| ());
        let both = numbers(qa, qb);
        assert_eq!(destroy_qp(qb), 0);
        expect(
            &fails(&pair, both, qa, status),
            &["has destroyed that queue pair"],
            &["It went to"],
        );
        // There has never been one of that number.
        let never = number(pair.qb) ^ 0x7000;
        let (qa, _) = two(&pair, |attr| attr.dest_qp_num = never, |_| ());
        let told = fails(&pair, (number(qa), never), qa, status);
        expect(&told, &["no queue pair of that number"], &["It went to"]);
        // It is another's.
        let (qa, _) = two(&pair, |attr| attr.dest_qp_num = number(pair.qb), |_| ());
        let told = fails(&pair, (number(qa), number(pair.qb)), qa, status);
        let whose = format!("connected to QP {:#x} (its dest_qp_num), not to this one", number(pair.qa));
        // Packets do not say whose they are.
        expect(&told, &[&whose], &["It went to"]);
        // It awaits another PSN.
        let (qa, qb) = two(&pair, |attr| attr.sq_psn = 0x777, |attr| attr.rq_psn = 0x555);
        let told = fails(&pair, numbers(qa, qb), qa, status);
        expect(
            &told,
            &["awaits PSN 0x555 (its rq_psn) first, and this one began with 0x777 (its sq_psn)"],
            &["awaits PSN 0x555 (its rq_psn) first, and 0x777 came"],
        );
    }

    /// Rules: EX-01, EX-02
    fn a_receiver_that_is_not_ready_is_told_of(link: Link) {
        let pair = Pair::rc(link);
        // It is answered, even on a busy machine.
        let (qa, qb) = two(&pair, |origin| origin.timeout = 19, |_| ());
        let told = fails(&pair, numbers(qa, qb), qa, IBV_WC_RNR_RETRY_EXC_ERR);
        let often = "the peer's receive queue was empty each of the 2 times it came";
        expect(&told, &[often, "rnr_retry is 1, and 7 waits for ever"]);
        // Which queue it is, is only seen on this host.
        let mut init = pair.b.init(IBV_QPT_RC);
        init.srq = srq(pair.b.pd, 8);
        let (qa, qb) = (pair.a.qp(IBV_QPT_RC), pair.b.qp_with(&mut init));
        connect_with(qa, qb, |attr| attr.rnr_retry = 0);
        let told = fails(&pair, numbers(qa, qb), qa, IBV_WC_RNR_RETRY_EXC_ERR);
        let queue = if link == Link::Wire { "the peer's receive" } else { "the shared receive" };
        expect(&told, &[queue, "each of the 1 times it came"]);
    }

    /// Rules: EX-01
    fn a_request_that_does_not_fit_is_told_of(link: Link) {
        let it = MemoryPair::new(link, 4096);
        let short = it.connected(|attr| attr.max_rd_atomic = 0, |_| ());
        let atomic = |qa, length| {
            let mut sges = [it.near_sge(0, length)];
            let address = it.far.addr();
            post(qa, &mut atomic_wr(IBV_WR_ATOMIC_FETCH_AND_ADD, &mut sges, address, it.key(), 1, 0));
        };
        atomic(short.0, 8);
        it.pair.a.expect(IBV_WC_LOC_QP_OP_ERR);
        let told = explained(number(short.0), number(short.1));
        expect(&told, &["fetch and add (wr_id ", "IBV_WC_LOC_QP_OP_ERR: max_rd_atomic of the queue pair is 0"]);
        atomic(it.pair.qa, 4);
        it.pair.a.expect(IBV_WC_LOC_LEN_ERR);
        let told = explained(number(it.pair.qa), number(it.pair.qb));
        expect(&told, &["its buffer has 4 bytes, and an atomic works on exactly 8"]);
    }

    /// Rules: EX-01
    fn what_is_flushed_is_told_of_with_why(link: Link) {
        let pair = Pair::rc(link);
        for wr_id in 0..20 {
            recv(pair.qb, wr_id, &mut []);
        }
        assert_eq!(set_state(pair.qb, IBV_QPS_ERR), 0);
        for _ in 0..20 {
            pair.b.expect(IBV_WC_WR_FLUSH_ERR);
        }
        let told = explained(number(pair.qb), number(pair.qa));
        expect(&told, &["20 receive work requests", "IBV_WC_WR_FLUSH_ERR", "its program, or the end"]);
        let (qa, qb) = two(&pair, |_| (), |_| ());
        assert_eq!(destroy_qp(qb), 0);
        post(qa, &mut wr(IBV_WR_SEND));
        post(qa, &mut wr(IBV_WR_SEND));
        pair.a.expect(IBV_WC_RETRY_EXC_ERR);
        pair.a.expect(IBV_WC_WR_FLUSH_ERR);
        let told = explained(number(qa), 0);
        expect(&told, &["1 send work request of QP", "what failed on it before says why"]);
    }

    /// Rules: EX-03
    fn a_completion_queue_that_overruns_is_told_of(link: Link) {
        let pair = Pair::rc(link);
        let cq = try_cq(pair.a.context, 4, std::ptr::null_mut()).expect("a queue");
        let mut init = pair.a.init(IBV_QPT_RC);
        init.send_cq = cq;
        let (qa, qb) = (pair.a.qp_with(&mut init), pair.b.qp(IBV_QPT_RC));
        connect(qa, qb);
        // SAFETY: a live queue.
        let capacity = unsafe { (*cq).cqe };
        for wr_id in 0..=capacity as u64 {
            recv(qb, wr_id, &mut []);
            post(qa, &mut wr(IBV_WR_SEND));
        }
        until("it overruns", || (state(qa) == IBV_QPS_ERR).then_some(()));
        let told = explained(number(qa), number(qb));
        expect(&told, &[&format!("a completion queue with room for {capacity} (4 were asked for) overran")]);
    }

    /// The receiver's device tells what became of a datagram, for its sender has success.
    /// Rules: EX-02, UD-04, UD-05
    fn a_datagram_that_is_dropped_is_told_of(link: Link) {
        // One pair for each, so that what is told is of this one.
        let dropped = |receive: Option<u32>, qkey: u32, to: Option<u32>| {
            let it = DatagramPair::new(link);
            let (qa, qb) = numbers(it.pair.qa, it.pair.qb);
            if let Some(length) = receive {
                recv(it.pair.qb, 1, &mut [sge(it.far.addr(), length, it.mb)]);
            }
            let mut sges = [sge(it.near.addr(), 64, it.ma)];
            let mut send = with_sges(wr(IBV_WR_SEND), &mut sges);
            send.wr.ud = ibv_send_wr_ud { ah: it.ah, remote_qpn: to.map_or(qb, |to| qb ^ to), remote_qkey: qkey };
            post(it.pair.qa, &mut send);
            it.pair.a.expect(IBV_WC_SUCCESS);
            until("it is told", || {
                let told = [explained(qa, qb), explained(qb, qa), explained(qb ^ to.unwrap_or(0), qb)].concat();
                (!told.is_empty()).then_some(told)
            })
        };
        expect(
            &dropped(Some(2048), 0x222, None),
            &["was dropped: it has Q_Key 0x222, and the queue pair's is 0x11111111"],
        );
        expect(&dropped(None, QKEY, None), &["was dropped: no receive was posted"]);
        expect(
            &dropped(Some(103), QKEY, None),
            &["has room for 103 bytes, and it needs 104, with the 40 of the header"],
        );
        expect(&dropped(Some(2048), QKEY, Some(0x6000)), &["no queue pair here has that number"]);
    }

    /// Of many the same is told now and then, and of each reason the first.
    /// Rules: EX-02
    fn datagrams_that_are_dropped_for_two_reasons_at_once_are_told_of(link: Link) {
        let it = DatagramPair::new(link);
        let (qa, qb) = numbers(it.pair.qa, it.pair.qb);
        recv(it.pair.qb, 1, &mut [sge(it.far.addr(), 103, it.mb)]);
        for remote_qkey in [0x222, QKEY, 0x222, QKEY] {
            let mut sges = [sge(it.near.addr(), 64, it.ma)];
            let mut send = with_sges(wr(IBV_WR_SEND), &mut sges);
            send.wr.ud = ibv_send_wr_ud { ah: it.ah, remote_qpn: qb, remote_qkey };
            post(it.pair.qa, &mut send);
            it.pair.a.expect(IBV_WC_SUCCESS);
        }
        let told = until("both are told", || {
            let told = [explained(qa, qb), explained(qb, qa)].concat();
            let has = |words| told.iter().any(|sentence| sentence.contains(words));
            (has("it has Q_Key 0x222") && has("room for 103 bytes")).then_some(told)
        });
        expect(&told, &["was dropped: it has Q_Key 0x222"]);
    }
}

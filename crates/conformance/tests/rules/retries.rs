//! Requests that are not answered or come too early: when they are sent again, how often, and what
//! happens then. Times are lower bounds. What a link cannot show is counted by the
//! tests of `transom-device`.

use std::time::{Duration, Instant};

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::queues::*;

/// Microseconds that a target's `min_rnr_timer` makes an origin wait (`ibv_modify_qp(3)`).
const RNR: [u64; 32] = [
    655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560, 3_840,
    5_120, 7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840,
    245_760, 327_680, 491_520,
];

/// How long a target's timer of this code makes an origin wait.
fn rnr(code: u8) -> Duration {
    Duration::from_micros(RNR[usize::from(code)])
}

/// How long an origin waits for an answer.
fn local_ack_timeout(timeout: u8) -> Duration {
    Duration::from_nanos(4_096 << timeout)
}

fn send(wr_id: u64) -> ibv_send_wr {
    ibv_send_wr { wr_id, ..wr(IBV_WR_SEND) }
}

/// Another two queue pairs, of which the target hears nothing yet: it is in INIT.
fn deaf(pair: &Pair, origin: impl FnOnce(&mut ibv_qp_attr)) -> (*mut ibv_qp, *mut ibv_qp) {
    let (qa, qb) = (pair.a.qp(IBV_QPT_RC), pair.b.qp(IBV_QPT_RC));
    assert_eq!(modify(qb, &usual_attr(qa), IBV_QPS_INIT), 0);
    let mut attr = usual_attr(qb);
    origin(&mut attr);
    bring_up(qa, &attr);
    (qa, qb)
}

/// Does what must be done before a time is over, for what is told of two queue pairs to be so. On a machine that had
/// others run meanwhile it may have come too late: then nothing is told, they have completed nothing, and others are to
/// be tried.
fn in_time(time: Duration, (qa, qb): (*mut ibv_qp, *mut ibv_qp), act: impl FnOnce()) -> Option<()> {
    let start = Instant::now();
    act();
    if start.elapsed() < time {
        return Some(());
    }
    for qp in [qa, qb] {
        assert_eq!(set_state(qp, IBV_QPS_RESET), 0);
    }
    None
}

/// The table of RNR timers, as every code is told to an origin.
/// Rules: RN-16
#[test]
fn rnr_timers_are_those_of_the_table() {
    use transom_device::execution::retry::{Retry, Verdict};
    for (code, microseconds) in RNR.into_iter().enumerate() {
        let timer = transom_wire::RnrTimer::new(code as u8).expect("32 codes");
        let mut retry = Retry::default();
        retry.rnr_count = 1;
        assert_eq!(retry.not_ready(7, timer), Verdict::At(7 + microseconds * 1_000), "code {code}");
    }
    assert_eq!(transom_wire::RnrTimer::new(32), None);
}

on_each_link! {
    /// Without a receive the target tells its own timer, and the origin waits at least that long.
    /// Rules: RN-01, RN-02, RN-16
    fn the_origin_waits_as_the_target_says(link: Link) {
        let pair = Pair::rc(link);
        let far = Buffer::new(4096);
        let mb = pair.b.reg(&far, ALL);
        for code in [1, 5, 12, 16, 19, 20, 21, 22] {
            for opcode in [IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM] {
                let origin = |attr: &mut ibv_qp_attr| (attr.rnr_retry, attr.min_rnr_timer) = (1, 1);
                let (qa, _) = pair.another_with(origin, |attr| attr.min_rnr_timer = code);
                takes_at_least(rnr(code), || {
                    post(qa, &mut rdma_wr(opcode, &mut [], far.addr(), keys(mb).1));
                    pair.a.expect(IBV_WC_RNR_RETRY_EXC_ERR);
                });
            }
        }
        pair.b.expect_nothing();
    }

    /// After `rnr_retry` retries the request fails and the origin with it; the target does not.
    /// Rules: RN-03, WC-13
    fn rnr_retries_are_used_up(link: Link) {
        let pair = Pair::rc(link);
        let follower = Follower::new(&pair.a, &pair.b);
        for count in [0, 1, 3] {
            let origin = |attr: &mut ibv_qp_attr| attr.rnr_retry = count;
            let (qa, qb) = pair.another_with(origin, |attr| attr.min_rnr_timer = 18);
            takes_at_least(rnr(18) * u32::from(count), || {
                post(qa, &mut send(1));
                post(qa, &mut send(2));
                assert_eq!(pair.a.expect(IBV_WC_RNR_RETRY_EXC_ERR).wr_id, 1);
            });
            assert_eq!(pair.a.expect(IBV_WC_WR_FLUSH_ERR).wr_id, 2);
            assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_RTS));
        }
        // With none, a receive that comes after the first attempt comes too late; with one, not.
        for (count, status) in [(0, IBV_WC_RNR_RETRY_EXC_ERR), (1, IBV_WC_SUCCESS)] {
            until("a receive in time", || {
                let origin = |attr: &mut ibv_qp_attr| attr.rnr_retry = count;
                let (qa, qb) = pair.another_with(origin, |attr| attr.min_rnr_timer = 31);
                in_time(rnr(31), (qa, qb), || {
                    post(qa, &mut send(1));
                    follower.follow();
                    recv(qb, 5, &mut []);
                })
            });
            pair.a.expect(status);
            if status == IBV_WC_SUCCESS {
                assert_eq!(pair.b.expect(IBV_WC_SUCCESS).wr_id, 5);
            }
            pair.b.expect_nothing();
        }
    }

    /// `rnr_retry` 7 has no end: others have long given up when the receive comes.
    /// Rules: RN-04
    fn seven_rnr_retries_have_no_end(link: Link) {
        let pair = Pair::rc(link);
        let (qa, qb) = pair.another_with(|attr| attr.rnr_retry = 7, |attr| attr.min_rnr_timer = 1);
        post(qa, &mut send(1));
        for _ in 0..3 {
            let slower = |attr: &mut ibv_qp_attr| attr.min_rnr_timer = 13;
            let (other, _) = pair.another_with(|attr| attr.rnr_retry = 6, slower);
            post(other, &mut send(2));
            assert_eq!(pair.a.expect(IBV_WC_RNR_RETRY_EXC_ERR).wr_id, 2);
        }
        assert_eq!(state(qa), IBV_QPS_RTS);
        recv(qb, 5, &mut []);
        assert_eq!(pair.b.expect(IBV_WC_SUCCESS).wr_id, 5);
        assert_eq!(pair.a.expect(IBV_WC_SUCCESS).wr_id, 1);
    }

    /// Each message has all the RNR retries.
    /// Rules: RN-05
    fn rnr_retries_are_counted_anew_for_each_message(link: Link) {
        let pair = Pair::rc(link);
        let follower = Follower::new(&pair.a, &pair.b);
        until("each receive in time", || {
            let qps = pair.another_with(|attr| attr.rnr_retry = 1, |attr| attr.min_rnr_timer = 29);
            for wr_id in 0..3 {
                takes_at_least(rnr(29), || {
                    in_time(rnr(29), qps, || {
                        post(qps.0, &mut send(wr_id));
                        follower.follow();
                        recv(qps.1, 10 + wr_id, &mut []);
                    })?;
                    assert_eq!(pair.a.expect(IBV_WC_SUCCESS).wr_id, wr_id);
                    Some(())
                })?;
                assert_eq!(pair.b.expect(IBV_WC_SUCCESS).wr_id, 10 + wr_id);
            }
            Some(())
        });
    }

    /// A lost request is sent again after the timeout, as often as `retry_cnt` says, and then given
    /// up, having had its time; seven is a number like the others.
    /// Rules: RN-06, RN-07, WC-12
    fn lost_requests_are_given_up_after_their_retries(link: Link) {
        let pair = Pair::rc(link);
        for (timeout, count) in [(13, 1), (12, 0), (10, 3), (8, 7), (1, 7)] {
            let (qa, _) = deaf(&pair, |attr| (attr.timeout, attr.retry_cnt) = (timeout, count));
            takes_at_least(local_ack_timeout(timeout) * (u32::from(count) + 1), || {
                post(qa, &mut send(1));
                post(qa, &mut send(2));
                assert_eq!(pair.a.expect(IBV_WC_RETRY_EXC_ERR).wr_id, 1);
            });
            assert_eq!(pair.a.expect(IBV_WC_WR_FLUSH_ERR).wr_id, 2);
            assert_eq!(state(qa), IBV_QPS_ERR);
        }
    }

    /// A target that hears only the second attempt takes that, if there is one.
    /// Rules: RN-07
    fn a_retry_finds_a_target_that_woke_up(link: Link) {
        let pair = Pair::rc(link);
        let follower = Follower::new(&pair.a, &pair.b);
        for (timeout, count, status) in [(9, 0, IBV_WC_RETRY_EXC_ERR), (17, 1, IBV_WC_SUCCESS)] {
            until("a target in time", || {
                let (qa, qb) =
                    deaf(&pair, |attr| (attr.timeout, attr.retry_cnt) = (timeout, count));
                recv(qb, 5, &mut []);
                in_time(local_ack_timeout(17), (qa, qb), || {
                    post(qa, &mut send(1));
                    follower.follow();
                    assert_eq!(modify(qb, &usual_attr(qa), IBV_QPS_RTR), 0);
                })
            });
            assert_eq!(pair.a.expect(status).wr_id, 1);
            if status == IBV_WC_SUCCESS {
                assert_eq!(pair.b.expect(IBV_WC_SUCCESS).wr_id, 5);
            }
            pair.b.expect_nothing();
        }
    }

    /// Each message has all the retries, whatever was lost before it.
    /// Rules: RN-08
    fn retries_are_counted_anew_for_each_message(link: Link) {
        let pair = Pair::rc(link);
        let follower = Follower::new(&pair.a, &pair.b);
        let (near, far) = (Buffer::new(4096), Buffer::new(4096));
        let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
        until("a target in time, each time", || {
            let (qa, qb) = deaf(&pair, |attr| (attr.timeout, attr.retry_cnt) = (16, 1));
            for round in 0..3 {
                near.set_word(0, 1 + round);
                let mut word = [sge(near.addr(), 8, ma)];
                let mut attr = usual_attr(qa);
                // A WRITE that goes straight into memory takes no number.
                if matches!(link, Link::Rings | Link::Wire) {
                    attr.rq_psn += round as u32;
                }
                in_time(local_ack_timeout(16), (qa, qb), || {
                    post(qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut word, far.addr(), keys(mb).1));
                    follower.follow();
                    for state in [IBV_QPS_RTR, IBV_QPS_RTS] {
                        assert_eq!(modify(qb, &attr, state), 0);
                    }
                })?;
                pair.a.expect(IBV_WC_SUCCESS);
                assert_eq!(far.word(0), 1 + round);
                assert_eq!(set_state(qb, IBV_QPS_RESET), 0);
                assert_eq!(modify(qb, &usual_attr(qa), IBV_QPS_INIT), 0);
            }
            Some(())
        });
    }

    /// Without a timeout a lost request waits for ever: it is still there when others have failed.
    /// Rules: RN-06
    fn without_a_timeout_nothing_is_given_up(link: Link) {
        let pair = Pair::rc(link);
        let (qa, _) = deaf(&pair, |attr| (attr.timeout, attr.retry_cnt) = (0, 0));
        post(qa, &mut send(1));
        let (other, _) = deaf(&pair, |attr| (attr.timeout, attr.retry_cnt) = (9, 7));
        post(other, &mut send(2));
        assert_eq!(pair.a.expect(IBV_WC_RETRY_EXC_ERR).wr_id, 2);
        assert_eq!(state(qa), IBV_QPS_RTS);
        pair.a.expect_nothing();
        assert_eq!(set_state(qa, IBV_QPS_ERR), 0);
        assert_eq!(pair.a.expect(IBV_WC_WR_FLUSH_ERR).wr_id, 1);
    }

    /// READs beyond what the origin may have under way wait, and what is behind them waits too: a
    /// WRITE cannot change what an earlier READ returns.
    /// Rules: RN-11, RN-14
    fn nothing_passes_a_held_back_read(link: Link) {
        let pair = Pair::rc(link);
        let (near, far) = (Buffer::new(1 << 20), Buffer::new(1 << 20));
        let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
        let key = keys(mb).1;
        for round in 1..=10 {
            let (qa, _) = pair.another_with(|attr| attr.max_rd_atomic = 1, |_| ());
            far.set_word(0, round);
            let mut read = [sge(near.addr() + 4096, 1 << 19, ma)];
            post(qa, &mut rdma_wr(IBV_WR_RDMA_READ, &mut read, far.addr() + 4096, key));
            for at in [0, 8, 16] {
                let mut read = [sge(near.addr() + at, 8, ma)];
                post(qa, &mut rdma_wr(IBV_WR_RDMA_READ, &mut read, far.addr(), key));
            }
            near.set_word(64, 0xffff);
            let mut write = [sge(near.addr() + 64, 8, ma)];
            post(qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut write, far.addr(), key));
            let done = wait_for(pair.a.cq, 5);
            assert!(done.iter().all(|wc| wc.status == IBV_WC_SUCCESS));
            assert_eq!(done[4].opcode, IBV_WC_RDMA_WRITE);
            assert_eq!([0, 8, 16].map(|at| near.word(at)), [round; 3]);
            assert_eq!(far.word(0), 0xffff);
        }
    }

    /// An origin that may have no READ under way cannot read.
    /// Rules: RN-12, WC-02
    fn without_read_credits_a_read_fails(link: Link) {
        let pair = Pair::rc(link);
        let (near, far) = (Buffer::new(4096), Buffer::filled(4096, 1));
        let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
        let (read, add) = (IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD);
        let mut sges = [sge(near.addr(), 8, ma)];
        let key = keys(mb).1;
        for mut wr in [
            rdma_wr(read, &mut sges, far.addr(), key),
            atomic_wr(add, &mut sges, far.addr(), key, 1, 0),
        ] {
            let (qa, qb) = pair.another_with(|attr| attr.max_rd_atomic = 0, |_| ());
            let before = far.word(0);
            post(qa, &mut wr);
            assert_eq!(pair.a.expect(IBV_WC_LOC_QP_OP_ERR).wr_id, 1);
            assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_RTS));
            assert_eq!((near.word(0), far.word(0)), (0, before));
        }
    }

    /// A target serves as many READs and atomics at once as it was set to.
    /// Rules: RN-13
    fn as_many_reads_as_the_target_serves_succeed(link: Link) {
        let pair = Pair::rc(link);
        let (near, far) = (Buffer::new(1 << 20), Buffer::filled(1 << 20, 4));
        let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
        let key = keys(mb).1;
        for serves in [1, 8, 16] {
            let origin = |attr: &mut ibv_qp_attr| attr.max_rd_atomic = serves;
            let (qa, _) = pair.another_with(origin, |attr| attr.max_dest_rd_atomic = serves);
            near.fill(0);
            for at in (0..8).map(|at| at << 16) {
                let mut sges = [sge(near.addr() + at, 1 << 16, ma)];
                post(qa, &mut rdma_wr(IBV_WR_RDMA_READ, &mut sges, far.addr() + at, key));
            }
            let done = wait_for(pair.a.cq, 8);
            assert!(done.iter().all(|wc| (wc.status, wc.byte_len) == (IBV_WC_SUCCESS, 1 << 16)));
            assert!(near.read(0, 8 << 16) == far.read(0, 8 << 16));
        }
    }

    /// UC sends once: what is lost is a success for the sender, and stays lost.
    /// Rules: RN-15
    fn uc_does_not_retry(link: Link) {
        let pair = Pair::unconnected(link, IBV_QPT_UC);
        let follower = Follower::new(&pair.a, &pair.b);
        assert_eq!(modify(pair.qb, &usual_attr(pair.qa), IBV_QPS_INIT), 0);
        bring_up(pair.qa, &usual_attr(pair.qb));
        recv(pair.qb, 5, &mut []);
        post(pair.qa, &mut send(1));
        assert_eq!(pair.a.expect(IBV_WC_SUCCESS).wr_id, 1);
        follower.follow();
        for to in [IBV_QPS_RTR, IBV_QPS_RTS] {
            assert_eq!(modify(pair.qb, &usual_attr(pair.qa), to), 0);
        }
        let mut second = send(2);
        (second.opcode, second.imm.imm_data) = (IBV_WR_SEND_WITH_IMM, 2);
        post(pair.qa, &mut second);
        let wc = pair.b.expect(IBV_WC_SUCCESS);
        assert_eq!((wc.wr_id, wc.wc_flags), (5, IBV_WC_WITH_IMM));
        assert_eq!(pair.a.expect(IBV_WC_SUCCESS).wr_id, 2);
        // Without a receive it is lost as well.
        post(pair.qa, &mut send(3));
        assert_eq!(pair.a.expect(IBV_WC_SUCCESS).wr_id, 3);
        follower.follow();
        recv(pair.qb, 6, &mut []);
        second.wr_id = 4;
        post(pair.qa, &mut second);
        let wc = pair.b.expect(IBV_WC_SUCCESS);
        assert_eq!((wc.wr_id, wc.wc_flags), (6, IBV_WC_WITH_IMM));
    }
}

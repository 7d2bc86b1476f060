//! What a queue pair sends, receives, holds back and flushes in each of its states.

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::queues::*;

/// A SEND of nothing.
fn send(wr_id: u64) -> ibv_send_wr {
    ibv_send_wr { wr_id, ..wr(IBV_WR_SEND) }
}

/// The ids of the completions with this status, in order; all must be of this queue pair.
fn ids(wcs: &[ibv_wc], qp: *mut ibv_qp, status: ibv_wc_status, opcode: ibv_wc_opcode) -> Vec<u64> {
    assert!(wcs.iter().all(|wc| wc.qp_num == number(qp) && wc.status == status), "{wcs:?}");
    wcs.iter().filter(|wc| wc.opcode == opcode).map(|wc| wc.wr_id).collect()
}

/// Brings both ends to RESET and connects them again, with nothing old on its way: that could be
/// taken for new, as the numbers begin anew.
fn reconnect(pair: &Pair, follower: &Follower) {
    assert_eq!((set_state(pair.qa, IBV_QPS_RESET), set_state(pair.qb, IBV_QPS_RESET)), (0, 0));
    follower.follow();
    connect(pair.qa, pair.qb);
}

/// A message from a to b, whose receive has this id.
fn expect_message(pair: &Pair, wr_id: u64) {
    post(pair.qa, &mut send(77));
    let wc = pair.b.expect(IBV_WC_SUCCESS);
    assert_eq!((wc.wr_id, wc.opcode), (wr_id, IBV_WC_RECV));
    assert_eq!(pair.a.expect(IBV_WC_SUCCESS).wr_id, 77);
}

/// Work cannot be posted where it could not even be kept; nothing is left of the attempt.
/// Rules: ST-20, ST-21
#[test]
fn work_is_not_taken_before_its_time() {
    for kind in [IBV_QPT_RC, IBV_QPT_UC] {
        let pair = Pair::unconnected(Link::Loopback, kind);
        let attr = usual_attr(pair.qb);
        assert_eq!(try_recv(pair.qa, 1, &mut []), libc::EINVAL);
        for to in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
            assert_eq!(try_post(pair.qa, &mut send(1)), libc::EINVAL, "before {to}");
            assert_eq!(modify(pair.qa, &attr, to), 0);
            assert_eq!(try_recv(pair.qa, 5, &mut []), 0, "in {to}");
        }
        bring_up(pair.qb, &usual_attr(pair.qa));
        recv(pair.qb, 8, &mut []);
        recv(pair.qb, 9, &mut []);
        expect_message(&pair, 8);
        pair.b.expect_nothing();
        pair.a.expect_nothing();
    }
}

on_each_link! {
    /// Whatever waits when a queue pair is reset is gone without a word, on both queues.
    /// Rules: ST-10, ST-11
    fn reset_empties_both_queues(link: Link) {
        let pair = Pair::rc(link);
        let follower = Follower::new(&pair.a, &pair.b);
        let (near, far) = (Buffer::new(4096), Buffer::filled(4096, 7));
        let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
        for from in [IBV_QPS_RTS, IBV_QPS_SQD] {
            // The sends wait for receives that never come.
            for wr_id in 0..5 {
                post(pair.qa, &mut send(wr_id));
                recv(pair.qa, 10 + wr_id, &mut []);
            }
            assert_eq!(set_state(pair.qa, from), 0);
            reconnect(&pair, &follower);
            // What comes now is the first of each queue.
            recv(pair.qb, 20, &mut []);
            expect_message(&pair, 20);
            recv(pair.qa, 30, &mut []);
            post(pair.qb, &mut send(31));
            assert_eq!(pair.a.expect(IBV_WC_SUCCESS).wr_id, 30);
            assert_eq!(pair.b.expect(IBV_WC_SUCCESS).wr_id, 31);
        }
        // From ERR too, and every operation works again.
        assert_eq!(set_state(pair.qa, IBV_QPS_ERR), 0);
        reconnect(&pair, &follower);
        let mut sges = [sge(near.addr(), 4096, ma)];
        post(pair.qa, &mut rdma_wr(IBV_WR_RDMA_READ, &mut sges, far.addr(), keys(mb).1));
        assert_eq!(pair.a.expect(IBV_WC_SUCCESS).opcode, IBV_WC_RDMA_READ);
        assert_eq!(near.read(0, 4096), far.read(0, 4096));
        pair.b.expect_nothing();
    }

    /// What was sent before both ends were reset is not taken for a message of their new life, though its
    /// number is the same.
    /// Rules: ST-10
    fn messages_of_an_earlier_life_are_gone(link: Link) {
        let pair = Pair::rc(link);
        for round in 0..100 {
            // While the program polls nobody else takes what comes.
            pair.b.expect_nothing();
            post(pair.qa, &mut send(round));
            assert_eq!((set_state(pair.qa, IBV_QPS_RESET), set_state(pair.qb, IBV_QPS_RESET)), (0, 0));
            connect(pair.qa, pair.qb);
            recv(pair.qb, round, &mut []);
            pair.b.expect_nothing();
            expect_message(&pair, round);
        }
    }

    /// In INIT receives are kept and what arrives is dropped; from RTR on the receives are used.
    /// Rules: ST-12, ST-13
    fn init_drops_what_arrives_and_keeps_receives(link: Link) {
        let pair = Pair::unconnected(link, IBV_QPT_RC);
        let attr = usual_attr(pair.qa);
        assert_eq!(modify(pair.qb, &attr, IBV_QPS_INIT), 0);
        recv(pair.qb, 5, &mut []);
        recv(pair.qb, 6, &mut []);
        bring_up(pair.qa, &usual_attr(pair.qb));
        give_up_soon(pair.qa);
        post(pair.qa, &mut send(1));
        assert_eq!(pair.a.expect(IBV_WC_RETRY_EXC_ERR).wr_id, 1);
        assert_eq!((state(pair.qa), state(pair.qb)), (IBV_QPS_ERR, IBV_QPS_INIT));
        assert_eq!(modify(pair.qb, &attr, IBV_QPS_RTR), 0);
        assert_eq!(set_state(pair.qa, IBV_QPS_RESET), 0);
        bring_up(pair.qa, &usual_attr(pair.qb));
        expect_message(&pair, 5);
        expect_message(&pair, 6);
    }

    /// In RTR a queue pair receives and serves; in RTS it sends too; in SQD it still receives.
    /// Rules: ST-14, ST-15
    fn rtr_receives_and_rts_sends_too(link: Link) {
        let pair = Pair::unconnected(link, IBV_QPT_RC);
        let attr = usual_attr(pair.qa);
        for to in [IBV_QPS_INIT, IBV_QPS_RTR] {
            assert_eq!(modify(pair.qb, &attr, to), 0);
        }
        bring_up(pair.qa, &usual_attr(pair.qb));
        recv(pair.qb, 1, &mut []);
        expect_message(&pair, 1);
        assert_eq!(try_post(pair.qb, &mut send(2)), libc::EINVAL);
        assert_eq!(modify(pair.qb, &attr, IBV_QPS_RTS), 0);
        recv(pair.qb, 3, &mut []);
        expect_message(&pair, 3);
        recv(pair.qa, 4, &mut []);
        post(pair.qb, &mut send(5));
        assert_eq!(pair.a.expect(IBV_WC_SUCCESS).wr_id, 4);
        assert_eq!(pair.b.expect(IBV_WC_SUCCESS).wr_id, 5);
        assert_eq!(set_state(pair.qb, IBV_QPS_SQD), 0);
        recv(pair.qb, 6, &mut []);
        expect_message(&pair, 6);
    }

    /// In SQD what has started finishes and nothing new starts; the drained event comes when asked
    /// for, once; only then can the queue pair go on.
    /// Rules: ST-16, ST-17, AE-04
    fn sqd_finishes_what_has_started(link: Link) {
        let pair = Pair::rc(link);
        let follower = Follower::new(&pair.a, &pair.b);
        let notify = |on| ibv_qp_attr {
            qp_state: IBV_QPS_SQD,
            en_sqd_async_notify: on,
            ..ibv_qp_attr::default()
        };
        let mask = IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY;
        // First without the event, then with it.
        for on in [0, 1] {
            // Started, and waiting for a receive.
            post(pair.qa, &mut send(1));
            follower.follow();
            assert_eq!(modify_with(pair.qa, &notify(on), mask), 0);
            post(pair.qa, &mut send(2));
            assert_eq!((state(pair.qa), query(pair.qa).sq_draining), (IBV_QPS_SQD, 1));
            assert_eq!(set_state(pair.qa, IBV_QPS_RTS), libc::EINVAL, "still draining");
            assert_eq!(state(pair.qa), IBV_QPS_SQD);
            assert!(!pair.a.has_event());
            recv(pair.qb, 11, &mut []);
            recv(pair.qb, 12, &mut []);
            assert_eq!(pair.b.expect(IBV_WC_SUCCESS).wr_id, 11);
            assert_eq!(pair.a.expect(IBV_WC_SUCCESS).wr_id, 1);
            assert_eq!(query(pair.qa).sq_draining, 0);
            if on == 1 {
                until("the event", || pair.a.has_event().then_some(()));
                assert_eq!(pair.a.event(), (IBV_EVENT_SQ_DRAINED, pair.qa.cast()));
            }
            // The second one has not started: what left after it is there, and it is not.
            follower.follow();
            pair.b.expect_nothing();
            pair.a.expect_nothing();
            assert_eq!(set_state(pair.qa, IBV_QPS_RTS), 0);
            assert_eq!(pair.b.expect(IBV_WC_SUCCESS).wr_id, 12);
            assert_eq!(pair.a.expect(IBV_WC_SUCCESS).wr_id, 2);
        }
        assert!(!pair.a.has_event(), "one event, and not a second");
        // With nothing under way it has drained at once.
        assert_eq!(modify_with(pair.qa, &notify(1), mask), 0);
        assert_eq!(pair.a.event(), (IBV_EVENT_SQ_DRAINED, pair.qa.cast()));
        // Each modify asks anew.
        for mask in [IBV_QP_STATE, mask] {
            assert_eq!(set_state(pair.qa, IBV_QPS_RTS), 0);
            assert_eq!(modify_with(pair.qa, &notify(0), mask), 0);
            assert!(!pair.a.has_event());
        }
    }

    /// UC's send queue fails alone: what is behind is flushed, receiving goes on, RTS mends it.
    /// Rules: ST-18
    fn a_failed_uc_send_queue_can_be_mended(link: Link) {
        let pair = Pair::new(link, IBV_QPT_UC);
        assert_eq!(set_state(pair.qa, IBV_QPS_SQD), 0);
        let mut bad = [sge(0x1000, 8, std::ptr::null_mut())];
        let mut failing = with_sges(send(1), &mut bad);
        post(pair.qa, &mut failing);
        post(pair.qa, &mut ibv_send_wr { send_flags: 0, ..send(2) });
        post(pair.qa, &mut send(3));
        recv(pair.qa, 4, &mut []);
        recv(pair.qb, 9, &mut []);
        assert_eq!(set_state(pair.qa, IBV_QPS_RTS), 0);
        assert_eq!(pair.a.expect(IBV_WC_LOC_PROT_ERR).wr_id, 1);
        let flushed = wait_for(pair.a.cq, 2);
        let flushed = ids(&flushed, pair.qa, IBV_WC_WR_FLUSH_ERR, IBV_WC_SEND);
        assert_eq!(flushed, [2, 3]);
        assert_eq!(state(pair.qa), IBV_QPS_SQE);
        post(pair.qa, &mut send(5));
        assert_eq!(pair.a.expect(IBV_WC_WR_FLUSH_ERR).wr_id, 5);
        // The receive queue was left alone.
        post(pair.qb, &mut send(6));
        assert_eq!(pair.b.expect(IBV_WC_SUCCESS).wr_id, 6);
        assert_eq!(pair.a.expect(IBV_WC_SUCCESS).wr_id, 4);
        assert_eq!(set_state(pair.qa, IBV_QPS_RTS), 0);
        expect_message(&pair, 9);
        assert_eq!(state(pair.qa), IBV_QPS_RTS);
    }

    /// ERR flushes everything that waits, signaled or not, in order, and what is posted later.
    /// Rules: ST-19, WC-05
    fn error_flushes_both_queues(link: Link) {
        let pair = Pair::rc(link);
        for wr_id in 0..10 {
            let send_flags = if wr_id % 2 == 0 { 0 } else { IBV_SEND_SIGNALED };
            post(pair.qa, &mut ibv_send_wr { send_flags, ..send(wr_id) });
            recv(pair.qa, 100 + wr_id, &mut []);
        }
        pair.a.expect_nothing();
        assert_eq!(set_state(pair.qa, IBV_QPS_ERR), 0);
        let flushed = wait_for(pair.a.cq, 20);
        let of = |opcode| ids(&flushed, pair.qa, IBV_WC_WR_FLUSH_ERR, opcode);
        assert_eq!(of(IBV_WC_SEND), (0..10).collect::<Vec<_>>());
        assert_eq!(of(IBV_WC_RECV), (100..110).collect::<Vec<_>>());
        recv(pair.qa, 111, &mut []);
        post(pair.qa, &mut ibv_send_wr { send_flags: 0, ..send(11) });
        let later = wait_for(pair.a.cq, 2);
        assert_eq!(ids(&later, pair.qa, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV), [111]);
        assert_eq!(ids(&later, pair.qa, IBV_WC_WR_FLUSH_ERR, IBV_WC_SEND), [11]);
        pair.a.expect_nothing();
        assert_eq!(state(pair.qa), IBV_QPS_ERR);
    }

    /// A message that the peer has taken and answered is sent, though nobody has polled since, as where
    /// a program ends a connection whose other end has just done so.
    /// Rules: ST-19
    fn what_is_answered_is_not_flushed(link: Link) {
        let pair = Pair::rc(link);
        let others = (0..20).map(|_| pair.another(IBV_QPT_RC));
        for (qa, qb) in std::iter::once((pair.qa, pair.qb)).chain(others) {
            recv(qb, 1, &mut []);
            post(qa, &mut send(2));
            assert_eq!(pair.b.wait().status, IBV_WC_SUCCESS);
            for qp in [qb, qa] {
                assert_eq!(set_state(qp, IBV_QPS_ERR), 0);
            }
            let sent = pair.a.wait();
            assert_eq!((sent.wr_id, sent.status), (2, IBV_WC_SUCCESS));
        }
    }

    /// Under load too, ERR leaves exactly one completion for each request posted.
    /// Rules: ST-23
    fn every_request_completes_once_when_error_strikes(link: Link) {
        const COUNT: u64 = 1500;
        let pair = Pair::rc(link);
        for wr_id in 0..60 {
            recv(pair.qb, wr_id, &mut []);
        }
        let qa = Across::new(pair.qa);
        let (cqa, cqb) = (pair.a.cq, pair.b.cq);
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for wr_id in 0..COUNT {
                    until("room", || match try_post(qa.get(), &mut send(wr_id)) {
                        0 => Some(()),
                        code => {
                            assert_eq!(code, libc::ENOMEM);
                            None
                        }
                    });
                }
            });
            let mut posted = 60;
            until("all completions", || {
                sent.extend(poll(cqa));
                if let Some(wc) = poll(cqb) {
                    received.push(wc);
                    if posted < 600 {
                        recv(pair.qb, posted, &mut []);
                        posted += 1;
                    }
                }
                if sent.len() == 300 {
                    assert_eq!(set_state(pair.qa, IBV_QPS_ERR), 0);
                }
                (sent.len() as u64 == COUNT).then_some(())
            });
            assert_eq!(set_state(pair.qb, IBV_QPS_ERR), 0);
            until("all receives", || {
                received.extend(poll(cqb));
                (received.len() as u64 == posted).then_some(())
            });
        });
        assert!(poll(cqa).is_none() && poll(cqb).is_none());
        let in_order = |wcs: &[ibv_wc]| wcs.iter().zip(0..).all(|(wc, at)| wc.wr_id == at);
        assert!(in_order(&sent) && in_order(&received));
        let good = |wcs: &[ibv_wc]| {
            let good = wcs.iter().take_while(|wc| wc.status == IBV_WC_SUCCESS).count();
            assert!(wcs[good..].iter().all(|wc| wc.status == IBV_WC_WR_FLUSH_ERR));
            good
        };
        assert!(good(&sent) < sent.len());
        // What was on its way over a wire may have used up the last receive.
        good(&received);
    }

    /// A peer hears nothing of an error until it sends.
    /// Rules: ST-24
    fn the_peer_is_not_told_of_an_error(link: Link) {
        let pair = Pair::rc(link);
        let follower = Follower::new(&pair.a, &pair.b);
        recv(pair.qa, 2, &mut []);
        assert_eq!(set_state(pair.qb, IBV_QPS_ERR), 0);
        follower.follow();
        assert_eq!(state(pair.qa), IBV_QPS_RTS);
        pair.a.expect_nothing();
        assert!(!pair.a.has_event());
        give_up_soon(pair.qa);
        post(pair.qa, &mut send(1));
        assert_eq!(pair.a.expect(IBV_WC_RETRY_EXC_ERR).wr_id, 1);
        assert_eq!(pair.a.expect(IBV_WC_WR_FLUSH_ERR).wr_id, 2);
        assert_eq!(state(pair.qa), IBV_QPS_ERR);
    }

    /// Rights can be taken from a running queue pair, and given to it; without them not even nothing is written.
    /// Rules: ST-26
    fn rights_change_while_it_runs(link: Link) {
        for length in [64, 0] {
            let pair = Pair::rc(link);
            let (near, far) = (Buffer::filled(4096, 1), Buffer::new(4096));
            let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
            let write = |length| {
                let mut sges = [sge(near.addr(), length, ma)];
                post(pair.qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, far.addr(), keys(mb).1));
            };
            let allow = |rights| {
                let attr = ibv_qp_attr {
                    qp_state: IBV_QPS_RTS,
                    qp_access_flags: rights,
                    ..ibv_qp_attr::default()
                };
                assert_eq!(modify_with(pair.qb, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), 0);
            };
            write(64);
            pair.a.expect(IBV_WC_SUCCESS);
            allow(IBV_ACCESS_REMOTE_READ);
            allow(REMOTE);
            for length in [64, length, 64] {
                write(length);
                pair.a.expect(IBV_WC_SUCCESS);
            }
            allow(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
            far.write(0, &[0; 64]);
            write(length);
            pair.a.expect(IBV_WC_REM_INV_REQ_ERR);
            assert_eq!(far.read(0, 64), [0; 64]);
        }
    }

    /// The time a running target tells an origin to wait can be changed.
    /// Rules: ST-26, RN-02
    fn the_rnr_timer_changes_while_it_runs(link: Link) {
        let pair = Pair::unconnected(link, IBV_QPT_RC);
        bring_up(pair.qa, &ibv_qp_attr { rnr_retry: 2, ..usual_attr(pair.qb) });
        bring_up(pair.qb, &usual_attr(pair.qa));
        // Code 20 is 10.24 ms.
        let attr = ibv_qp_attr { min_rnr_timer: 20, ..ibv_qp_attr::default() };
        assert_eq!(modify_with(pair.qb, &attr, IBV_QP_MIN_RNR_TIMER), 0);
        takes_at_least(std::time::Duration::from_micros(2 * 10_240), || {
            post(pair.qa, &mut send(1));
            pair.a.expect(IBV_WC_RNR_RETRY_EXC_ERR);
        });
    }
}

/// What a queue pair completed before RESET is not met after it; what others completed is.
/// Rules: ST-10
#[test]
fn reset_takes_completions_along() {
    let pair = Pair::rc(Link::Loopback);
    let (other, _) = pair.another(IBV_QPT_RC);
    for qp in [pair.qa, other] {
        recv(qp, 8, &mut []);
        assert_eq!(set_state(qp, IBV_QPS_ERR), 0);
        post(qp, &mut send(9));
    }
    assert_eq!(set_state(pair.qa, IBV_QPS_RESET), 0);
    let left = [(); 2].map(|()| pair.a.expect(IBV_WC_WR_FLUSH_ERR));
    assert!(left.iter().all(|wc| wc.qp_num == number(other)), "{left:?}");
    pair.a.expect_nothing();
}

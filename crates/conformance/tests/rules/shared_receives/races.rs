//! Shared receive queues, XRC and datagrams while others change what they use.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

use transom_abi::*;
use transom_conformance::datagrams::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::queues::*;
use transom_conformance::shared_receive::*;
use transom_conformance::xrc::*;

on_each_link! {
    /// The size and the limit change while messages use receives up and others are posted: every
    /// receive completes once, in order.
    /// Rules: SQ-05, SQ-07
    fn the_size_changes_under_load(link: Link) {
        const MESSAGES: u64 = 3_000;
        let pool = Pool::new(link, 4096);
        let done = AtomicBool::new(false);
        let shared = Across::new(pool.srq);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let srq = shared.get();
                for round in 0_u32.. {
                    if done.load(Acquire) {
                        break;
                    }
                    let attr = ibv_srq_attr { max_wr: 64 + round % 200, ..Default::default() };
                    let code = modify_srq(srq, attr, IBV_SRQ_MAX_WR);
                    assert!(code == 0 || code == libc::EINVAL);
                    let code = arm_limit(srq, round % 32);
                    assert!(code == 0 || code == libc::EINVAL);
                    std::thread::yield_now();
                }
            });
            let _over = Over(&done);
            let (mut posted, mut sent) = (0, 0);
            for expected in 0..MESSAGES {
                let mut sges = [sge(pool.far.addr(), 64, pool.mb)];
                while posted < MESSAGES && try_srq_recv(pool.srq, posted, &mut sges) == 0 {
                    posted += 1;
                }
                while sent < posted.min(expected + 32) {
                    pool.post(pool.pair.qa, sent, 0, 8);
                    sent += 1;
                }
                assert_eq!(pool.pair.a.expect(IBV_WC_SUCCESS).wr_id, expected);
                assert_eq!(pool.came(pool.pair.qb), expected);
            }
        });
    }

    /// Queue pairs of one pool fail and start again while others go on: no receive is used twice,
    /// and those that a failing one took come back flushed.
    /// Rules: SQ-07, SQ-09, ST-22, ST-23
    fn queue_pairs_fail_under_load(link: Link) {
        const ROUNDS: u64 = 200;
        let pool = Pool::new(link, 1 << 20);
        let (qa, qb) = pool.another();
        let mut next = 0;
        let mut outstanding = std::collections::BTreeSet::new();
        for round in 0..ROUNDS {
            while outstanding.len() < 16 {
                pool.recv(next, 0, 1 << 20);
                outstanding.insert(next);
                next += 1;
            }
            // Several segments each; one ends at whatever point it has come to.
            pool.post(pool.pair.qa, 1, 0, 300_000);
            pool.post(qa, 2, 0, 300_000);
            for _ in 0..round % 7 {
                std::thread::yield_now();
            }
            assert_eq!(set_state(qb, IBV_QPS_ERR), 0);
            assert_eq!(set_state(qa, IBV_QPS_ERR), 0);
            pool.pair.b.event();
            let (mut ended, mut came) = (0, 0);
            until("both ends of the message that is left", || {
                if let Some(wc) = poll(pool.pair.a.cq) {
                    ended += u32::from(wc.wr_id == 1);
                    assert!(wc.wr_id == 2 || wc.status == IBV_WC_SUCCESS, "{wc:?}");
                }
                if let Some(wc) = poll(pool.pair.b.cq) {
                    assert!(outstanding.remove(&wc.wr_id), "receive {} is used twice", wc.wr_id);
                    let own = wc.qp_num == number(pool.pair.qb);
                    assert!(!own || wc.status == IBV_WC_SUCCESS, "{wc:?}");
                    came += u32::from(own);
                }
                (ended == 1 && came == 1).then_some(())
            });
            // RESET takes completions along that are not polled before.
            while let Some(wc) = poll(pool.pair.b.cq) {
                assert!(outstanding.remove(&wc.wr_id), "receive {} is used twice", wc.wr_id);
            }
            assert_eq!((set_state(qa, IBV_QPS_RESET), set_state(qb, IBV_QPS_RESET)), (0, 0));
            while poll(pool.pair.a.cq).is_some() {}
            connect(qa, qb);
        }
        // All that are left can be used, in order.
        for expected in outstanding {
            pool.post(qa, 1, 0, 8);
            pool.pair.a.expect(IBV_WC_SUCCESS);
            assert_eq!(pool.came(qb), expected);
        }
    }

    /// An XRC queue goes while messages name it: each is either received or an invalid request.
    fn named_queues_come_and_go(link: Link) {
        const ROUNDS: usize = 60;
        let xrc = Xrc::new(link, 4096);
        for round in 0..ROUNDS {
            let (shared, cq) = xrc.another_srq(xrc.pair.b.pd);
            let number = srq_number(shared);
            for wr_id in 0..20 {
                srq_recv(shared, wr_id, &mut [sge(xrc.far.addr(), 64, xrc.mb)]);
            }
            let (qa, qb) = xrc.another();
            let parts = Across::new(shared);
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    for _ in 0..round {
                        std::thread::yield_now();
                    }
                    assert_eq!(destroy_srq(parts.get()), 0);
                });
                for _ in 0..20 {
                    let mut sges = [sge(xrc.near.addr(), 8, xrc.ma)];
                    post(qa, &mut naming(with_sges(wr(IBV_WR_SEND), &mut sges), number));
                }
            });
            let mut failed = false;
            for wc in wait_for(xrc.pair.a.cq, 20) {
                match wc.status {
                    IBV_WC_SUCCESS => assert!(!failed, "success after a failure"),
                    IBV_WC_REM_INV_REQ_ERR => assert!(!std::mem::replace(&mut failed, true)),
                    IBV_WC_WR_FLUSH_ERR => assert!(failed),
                    status => panic!("status {status}"),
                }
            }
            if failed {
                assert_eq!(xrc.pair.b.event(), (IBV_EVENT_QP_REQ_ERR, qb.cast()));
            }
            assert_eq!((destroy_qp(qa), destroy_qp(qb), destroy_cq(cq)), (0, 0, 0));
        }
    }

    /// Recipients come and go while datagrams are on their way: the sender never fails.
    /// Rules: UD-05, RN-15
    fn recipients_come_and_go(link: Link) {
        let both = DatagramPair::new(link);
        let done = AtomicBool::new(false);
        let target = Across::new((both.far.addr(), both.mb));
        let end = &both.pair.b;
        let qp = ud_qp(end);
        let current = AtomicU32::new(number(qp));
        let sent = std::thread::scope(|scope| {
            let (done, current) = (&done, &current);
            let first = Across::new(qp);
            let parts = Across::new((end.pd, end.cq, end.context));
            scope.spawn(move || {
                let _over = Over(done);
                let ((pd, cq, context), mut qp) = (parts.get(), first.get());
                let end = End::of(context, pd, cq);
                for _ in 0..100 {
                    let (addr, mb) = target.get();
                    for wr_id in 0..4 {
                        recv(qp, wr_id, &mut [sge(addr, 200, mb)]);
                    }
                    let fresh = ud_qp(&end);
                    current.store(number(fresh), Release);
                    std::thread::yield_now();
                    assert_eq!(destroy_qp(qp), 0);
                    while poll(cq).is_some() {}
                    qp = fresh;
                }
            });
            let mut sent = 0;
            while !done.load(Acquire) {
                both.post_to(wr(IBV_WR_SEND), 64, current.load(Acquire), QKEY);
                both.sent();
                sent += 1;
            }
            sent
        });
        assert!(sent > 0);
        while poll(end.cq).is_some() {}
        both.recv(9, 200);
        both.send(8);
        both.came(9, 8);
    }
}

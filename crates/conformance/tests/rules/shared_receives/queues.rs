//! Shared receive queues: whose receives they are, who gets them, and what they refuse.

use std::collections::BTreeMap;
use std::ptr::null_mut;

use transom_abi::*;
use transom_conformance::datagrams::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::queues::*;
use transom_conformance::shared_receive::*;
use transom_host::Limits;
use transom_ibverbs::*;

on_each_link! {
    /// The completion is on the queue of the queue pair that received, and names it.
    /// Rules: SQ-08
    fn each_queue_pair_completes_on_its_own_queue(link: Link) {
        let pool = Pool::new(link, 4096);
        let (a, b) = (&pool.pair.a, &pool.pair.b);
        let cq = try_cq(b.context, 16, null_mut()).expect("a queue");
        let mut init = ibv_qp_init_attr { srq: pool.srq, recv_cq: cq, ..b.init(IBV_QPT_RC) };
        let (qa, qb) = (a.qp(IBV_QPT_RC), b.qp_with(&mut init));
        connect(qa, qb);
        for wr_id in 0..4 {
            pool.recv(wr_id, 0, 64);
        }
        pool.post(qa, 1, 0, 8);
        a.expect(IBV_WC_SUCCESS);
        let wc = wait(cq);
        assert_eq!((wc.status, wc.opcode, wc.wr_id), (IBV_WC_SUCCESS, IBV_WC_RECV, 0));
        assert_eq!((wc.qp_num, wc.byte_len), (number(qb), 8));
        b.expect_nothing();
        pool.post(pool.pair.qa, 1, 0, 8);
        a.expect(IBV_WC_SUCCESS);
        assert_eq!(pool.came(pool.pair.qb), 1);
        assert!(poll(cq).is_none());
    }

    /// Receives go out in the order they were posted, to the queue pair that needs one next.
    /// Rules: SQ-07, SQ-08
    fn receives_go_out_in_order(link: Link) {
        let pool = Pool::new(link, 4096);
        let qps = [(pool.pair.qa, pool.pair.qb), pool.another(), pool.another()];
        for wr_id in 0..30 {
            pool.recv(wr_id, wr_id as usize * 64, 64);
        }
        for wr_id in 0..30 {
            let (qa, qb) = qps[wr_id as usize * 7 % 3];
            let at = wr_id as usize * 8;
            pool.post(qa, 1, at, 8);
            pool.pair.a.expect(IBV_WC_SUCCESS);
            assert_eq!(pool.came(qb), wr_id);
            assert!(pool.far.read(wr_id as usize * 64, 8) == pool.near.read(at, 8));
        }
    }

    /// An empty queue lets RC wait, until a receive comes or the retries end.
    /// Rules: SQ-06, RN-01
    fn an_empty_queue_lets_rc_wait(link: Link) {
        let pool = Pool::new(link, 4096);
        pool.post(pool.pair.qa, 1, 0, 8);
        for _ in 0..100 {
            pool.pair.a.expect_nothing();
        }
        pool.recv(5, 0, 64);
        pool.pair.a.expect(IBV_WC_SUCCESS);
        assert_eq!(pool.came(pool.pair.qb), 5);
        let (qa, qb) =
            (pool.pair.a.qp(IBV_QPT_RC), qp_of_srq(&pool.pair.b, IBV_QPT_RC, pool.srq));
        bring_up(qa, &ibv_qp_attr { rnr_retry: 1, ..usual_attr(qb) });
        bring_up(qb, &usual_attr(qa));
        pool.post(qa, 1, 0, 8);
        pool.pair.a.expect(IBV_WC_RNR_RETRY_EXC_ERR);
        assert_eq!(state(qb), IBV_QPS_RTS);
    }

    /// A datagram that finds an empty queue is lost, and so is one for whom the next receive is too
    /// small; the receive stays.
    /// Rules: SQ-06, UD-04
    fn an_empty_queue_loses_datagrams(link: Link) {
        let mut shared = null_mut();
        let both = DatagramPair::with(link, |b, init| {
            shared = srq(b.pd, 16);
            init.srq = shared;
        });
        both.send(8);
        both.nothing_came();
        srq_recv(shared, 7, &mut [sge(both.far.addr(), 60, both.mb)]);
        both.send(21);
        both.nothing_came();
        both.send(20);
        let wc = both.came(7, 20);
        assert_eq!((wc.qp_num, wc.src_qp), (number(both.pair.qb), number(both.pair.qa)));
        assert_eq!(wc.wc_flags, IBV_WC_GRH);
    }

    /// The queue's domain need not be the queue pair's; the receives are judged by the queue's.
    /// Rules: PD-12, PD-13, PD-14
    fn receives_are_of_the_queues_domain(link: Link) {
        let (a, b) = ends(link, Default::default());
        let elsewhere = b.another_pd();
        let shared = srq(elsewhere, 16);
        let (near, far) = (Buffer::filled(4096, 3), Buffer::new(4096));
        let ma = a.reg(&near, ALL);
        let (theirs, ours) = (reg(elsewhere, &far, ALL), b.reg(&far, ALL));
        let send = |qa| {
            let mut sges = [sge(near.addr(), 8, ma)];
            post(qa, &mut with_sges(wr(IBV_WR_SEND), &mut sges));
        };
        let (qa, qb) = (a.qp(IBV_QPT_RC), qp_of_srq(&b, IBV_QPT_RC, shared));
        connect(qa, qb);
        srq_recv(shared, 1, &mut [sge(far.addr(), 8, theirs)]);
        send(qa);
        assert_eq!(b.expect(IBV_WC_SUCCESS).wr_id, 1);
        a.expect(IBV_WC_SUCCESS);
        assert!(far.read(0, 8) == near.read(0, 8));
        far.fill(0);
        srq_recv(shared, 2, &mut [sge(far.addr(), 8, ours)]);
        send(qa);
        assert_eq!(b.expect(IBV_WC_LOC_PROT_ERR).wr_id, 2);
        a.expect(IBV_WC_REM_OP_ERR);
        assert!(far.is_all(0));
        assert_eq!((state(qa), state(qb)), (IBV_QPS_ERR, IBV_QPS_ERR));
    }

    /// The queue pair's domain decides whether a request may use a key, also with a receive of another domain.
    /// Rules: PD-15
    fn targets_are_of_the_queue_pairs_domain(link: Link) {
        let (a, b) = ends(link, Default::default());
        let elsewhere = b.another_pd();
        let shared = srq(elsewhere, 16);
        let (near, far) = (Buffer::filled(4096, 3), Buffer::new(4096));
        let ma = a.reg(&near, ALL);
        let (theirs, ours) = (reg(elsewhere, &far, ALL), b.reg(&far, ALL));
        for (target, at_a, at_b) in [
            (ours, IBV_WC_SUCCESS, IBV_WC_SUCCESS),
            (theirs, IBV_WC_REM_ACCESS_ERR, IBV_WC_LOC_ACCESS_ERR),
        ] {
            far.fill(0);
            let (qa, qb) = (a.qp(IBV_QPT_RC), qp_of_srq(&b, IBV_QPT_RC, shared));
            connect(qa, qb);
            srq_recv(shared, 1, &mut []);
            let mut sges = [sge(near.addr(), 8, ma)];
            let opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
            post(qa, &mut rdma_wr(opcode, &mut sges, far.addr(), keys(target).1));
            a.expect(at_a);
            let wc = b.expect(at_b);
            assert_eq!((wc.wr_id, wc.qp_num), (1, number(qb)));
            assert_eq!(far.read(0, 8) == near.read(0, 8), at_a == IBV_WC_SUCCESS);
        }
    }

    /// SEND_WITH_INV is as without a shared queue: the window ends, and the queue pair's own
    /// completion says so.
    /// Rules: INV-47
    fn windows_are_invalidated_through_it(link: Link) {
        let pool = Pool::new(link, 4096);
        let (qa, qb) = (pool.pair.qa, pool.pair.qb);
        let mw = pool.pair.b.mw(IBV_MW_TYPE_2);
        let range = Range { mr: pool.mb, addr: pool.far.addr(), length: 4096, access: REMOTE };
        let key = bind(&pool.pair.b, qb, mw, range);
        pool.recv(6, 0, 64);
        let mut request = wr(IBV_WR_SEND_WITH_INV);
        request.imm.invalidate_rkey = key;
        post(qa, &mut request);
        pool.pair.a.expect(IBV_WC_SUCCESS);
        let wc = pool.pair.b.expect(IBV_WC_SUCCESS);
        assert_eq!((wc.wr_id, wc.qp_num, wc.wc_flags), (6, number(qb), IBV_WC_WITH_INV));
        // SAFETY: all variants are plain numbers.
        assert_eq!(unsafe { wc.imm.invalidated_rkey }, key);
        // The window is free: its region can go.
        assert_eq!(dereg(pool.mb), 0);
        // A key that cannot be invalidated fails the receive, the others stay.
        srq_recv(pool.srq, 7, &mut []);
        srq_recv(pool.srq, 8, &mut []);
        give_up_soon(qa);
        post(qa, &mut request);
        assert_eq!(pool.pair.b.expect(IBV_WC_MW_BIND_ERR).wr_id, 7);
        pool.pair.a.expect(IBV_WC_RETRY_EXC_ERR);
        pool.pair.b.expect_nothing();
        let (qa, qb) = pool.another();
        post(qa, &mut wr(IBV_WR_SEND));
        pool.pair.a.expect(IBV_WC_SUCCESS);
        assert_eq!(pool.came(qb), 8);
    }

    /// Many queue pairs and senders at once, each message in several segments: every receive
    /// completes once, with the bytes of one message.
    /// Rules: SQ-07
    fn concurrent_senders_use_each_receive_once(link: Link) {
        const QPS: usize = 6;
        const EACH: usize = 24;
        const LENGTH: usize = 100_000;
        let pool = Pool::new(link, QPS * 4096);
        let far = Buffer::new(QPS * EACH * LENGTH);
        let mb = pool.pair.b.reg(&far, ALL);
        let total = QPS * EACH;
        for wr_id in 0..total {
            let at = far.addr() + (wr_id * LENGTH) as u64;
            srq_recv(pool.srq, wr_id as u64, &mut [sge(at, LENGTH as u32, mb)]);
        }
        let mut senders = BTreeMap::new();
        std::thread::scope(|scope| {
            for sender in 0..QPS {
                let (a, b) = (&pool.pair.a, &pool.pair.b);
                let cq = try_cq(a.context, 64, null_mut()).expect("a queue");
                let init = &mut ibv_qp_init_attr { send_cq: cq, ..a.init(IBV_QPT_RC) };
                let (qa, qb) = (a.qp_with(init), qp_of_srq(b, IBV_QPT_RC, pool.srq));
                connect(qa, qb);
                senders.insert(number(qb), sender as u8 + 1);
                let parts = Across::new((qa, cq, a.pd));
                scope.spawn(move || {
                    let (qa, cq, pd) = parts.get();
                    let from = Buffer::new(LENGTH);
                    from.fill(sender as u8 + 1);
                    let mr = reg(pd, &from, ALL);
                    for _ in 0..EACH {
                        let mut sges = [sge(from.addr(), LENGTH as u32, mr)];
                        post(qa, &mut with_sges(wr(IBV_WR_SEND), &mut sges));
                    }
                    for wc in wait_for(cq, EACH) {
                        assert_eq!(wc.status, IBV_WC_SUCCESS);
                    }
                });
            }
        });
        let mut used = vec![false; total];
        for wc in wait_for(pool.pair.b.cq, total) {
            assert_eq!((wc.status, wc.byte_len), (IBV_WC_SUCCESS, LENGTH as u32));
            let at = wc.wr_id as usize;
            assert!(!std::mem::replace(&mut used[at], true), "receive {at} is used twice");
            let bytes = far.read(at * LENGTH, LENGTH);
            let sender = senders[&wc.qp_num];
            assert!(bytes.iter().all(|byte| *byte == sender), "receive {at} holds two messages");
        }
        pool.pair.b.expect_nothing();
    }

    /// Receives are posted from several threads while messages use them up.
    /// Rules: SQ-07
    fn receives_are_posted_from_several_threads(link: Link) {
        const THREADS: u64 = 4;
        const EACH: u64 = 200;
        let pool = Pool::new(link, 4096);
        let shared = Across::new((pool.srq, pool.far.addr(), pool.mb));
        let mut seen = vec![false; (THREADS * EACH) as usize];
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    let (srq, addr, mb) = shared.get();
                    for wr_id in thread * EACH..(thread + 1) * EACH {
                        until("room", || {
                            match try_srq_recv(srq, wr_id, &mut [sge(addr, 8, mb)]) {
                                0 => Some(()),
                                code => {
                                    assert_eq!(code, libc::ENOMEM);
                                    None
                                }
                            }
                        });
                    }
                });
            }
            for _ in 0..THREADS * EACH {
                pool.post(pool.pair.qa, 1, 0, 8);
                pool.pair.a.expect(IBV_WC_SUCCESS);
                let wr_id = pool.came(pool.pair.qb) as usize;
                assert!(!std::mem::replace(&mut seen[wr_id], true), "receive {wr_id} twice");
            }
        });
        pool.post(pool.pair.qa, 1, 0, 8);
        for _ in 0..100 {
            pool.pair.a.expect_nothing();
        }
    }

    /// A message in many segments keeps its receive while others take theirs.
    /// Rules: SQ-07, SQ-08
    fn a_long_message_is_interleaved_with_short_ones(link: Link) {
        const LONG: usize = 1 << 20;
        let pool = Pool::new(link, LONG);
        let (qa, qb) = pool.another();
        for round in 0..4 {
            pool.far.fill(0);
            // The first message takes the first receive: all have room for the long one.
            for wr_id in 0..5 {
                pool.recv(wr_id, 0, LONG as u32);
            }
            pool.post(pool.pair.qa, 1, 0, LONG as u32);
            for _ in 0..4 {
                pool.post(qa, 2, 0, 8);
            }
            let mut seen = [0; 5];
            let mut last = None;
            for wc in wait_for(pool.pair.b.cq, 5) {
                assert_eq!(wc.status, IBV_WC_SUCCESS, "round {round}");
                seen[wc.wr_id as usize] += 1;
                let long = wc.qp_num == number(pool.pair.qb);
                assert_eq!(wc.byte_len as usize, if long { LONG } else { 8 });
                if !long {
                    assert_eq!(wc.qp_num, number(qb));
                    assert!(last < Some(wc.wr_id), "in order on one queue pair");
                    last = Some(wc.wr_id);
                }
            }
            assert_eq!(seen, [1; 5], "round {round}");
            assert!(pool.far.read(0, LONG) == pool.near.read(0, LONG));
            for _ in 0..5 {
                pool.pair.a.expect(IBV_WC_SUCCESS);
            }
        }
    }
}

/// A protection domain is not freed while a shared receive queue is in it.
/// Rules: PD-05
#[test]
fn a_queue_keeps_its_domain() {
    let end = End::new(Default::default());
    let pd = end.another_pd();
    let shared = srq(pd, 4);
    assert_eq!(dealloc_pd(pd), libc::EBUSY);
    assert_eq!(destroy_srq(shared), 0);
    assert_eq!(dealloc_pd(pd), 0);
    assert_eq!(try_srq(pd, 4, 1).unwrap_err(), libc::ENOENT);
}

/// A queue is not destroyed while a queue pair is created with it.
/// Rules: CR-17
#[test]
fn a_queue_with_queue_pairs_is_not_destroyed() {
    let end = End::new(Default::default());
    let shared = srq(end.pd, 4);
    let (rc, ud) = (qp_of_srq(&end, IBV_QPT_RC, shared), qp_of_srq(&end, IBV_QPT_UD, shared));
    assert_eq!(destroy_srq(shared), libc::EBUSY);
    assert_eq!(destroy_qp(rc), 0);
    assert_eq!(destroy_srq(shared), libc::EBUSY);
    assert_eq!(try_srq_recv(shared, 1, &mut []), 0);
    assert_eq!(destroy_qp(ud), 0);
    assert_eq!(destroy_srq(shared), 0);
}

/// Only RC and UD take a shared queue, and only one that is there and not for XRC.
/// Rules: CR-07, CR-06
#[test]
fn only_rc_and_ud_take_a_shared_queue() {
    let end = End::new(Default::default());
    let shared = srq(end.pd, 4);
    let with = |kind, srq| try_qp(end.pd, &mut ibv_qp_init_attr { srq, ..end.init(kind) });
    for kind in [IBV_QPT_UC, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV] {
        assert_eq!(with(kind, shared), Err(libc::EINVAL), "type {kind}");
    }
    for kind in [IBV_QPT_RC, IBV_QPT_UD] {
        assert_eq!(destroy_qp(with(kind, shared).expect("a queue pair")), 0);
    }
    assert_eq!(destroy_srq(shared), 0);
    for kind in [IBV_QPT_RC, IBV_QPT_UD] {
        assert_eq!(with(kind, shared), Err(libc::ENOENT), "type {kind}");
    }
}

/// With a shared queue a queue pair has none of its own: what it asks for is ignored, told as zero,
/// and posting to it is refused.
/// Rules: CR-08, PS-11
#[test]
fn a_queue_pair_has_no_receives_of_its_own() {
    let end = End::new(Default::default());
    let shared = srq(end.pd, 4);
    for kind in [IBV_QPT_RC, IBV_QPT_UD] {
        let mut init = ibv_qp_init_attr { srq: shared, ..end.init(kind) };
        (init.cap.max_recv_wr, init.cap.max_recv_sge) = (u32::MAX, u32::MAX);
        let qp = end.qp_with(&mut init);
        assert_eq!((init.cap.max_recv_wr, init.cap.max_recv_sge), (0, 0));
        let cap = query(qp).cap;
        assert_eq!((cap.max_recv_wr, cap.max_recv_sge, cap.max_send_wr), (0, 0, 64));
        // SAFETY: a live queue pair.
        assert_eq!(unsafe { (*qp).srq }, shared);
        take_to(&end, qp, IBV_QPS_INIT);
        assert_eq!(try_recv(qp, 1, &mut []), libc::EINVAL);
        assert_eq!(set_state(qp, IBV_QPS_ERR), 0);
        assert_eq!(try_recv(qp, 1, &mut []), libc::EINVAL);
        end.expect_nothing();
        assert_eq!(destroy_qp(qp), 0);
    }
}

/// Sizes up to the limits are given, those beyond and none at all are refused.
/// Rules: CR-19
#[test]
fn sizes_have_limits() {
    let end = End::new(Default::default());
    let attr = device_attr(end.context);
    let (most, sges) = (attr.max_srq_wr as u32, attr.max_srq_sge as u32);
    assert!(attr.max_srq > 0 && most > 0 && sges > 0);
    for (size, each) in [(most + 1, 1), (u32::MAX, 1), (0, 1), (4, sges + 1), (4, u32::MAX)] {
        assert_eq!(try_srq(end.pd, size, each), Err(libc::EINVAL), "{size} of {each}");
    }
    for (size, each) in [(most, 1), (1, sges), (1, 0)] {
        let shared = try_srq(end.pd, size, each).expect("a queue");
        let found = query_srq(shared);
        assert!(found.max_wr >= size && found.max_sge >= each && found.srq_limit == 0);
        assert_eq!(destroy_srq(shared), 0);
    }
    assert_eq!(most, Limits::DEVICE.shared_work_requests);
}

/// A full queue refuses more, and a list is posted up to its first bad request.
/// Rules: PS-01, PS-12
#[test]
fn a_full_queue_refuses_more() {
    let pool = Pool::new(Link::Loopback, 4096);
    let small = try_srq(pool.pair.b.pd, 7, 2).expect("a queue");
    let receive = |wr_id| ibv_recv_wr { wr_id, ..ibv_recv_wr::default() };
    let mut three_pieces = [sge(pool.far.addr(), 8, pool.mb); 3];
    let mut bad = receive(9);
    (bad.sg_list, bad.num_sge) = (three_pieces.as_mut_ptr(), 3);
    let mut list = [receive(0), bad, receive(1)];
    assert_eq!(try_srq_recv_list(small, &mut list), Err((libc::EINVAL, 1)));
    let mut list = [1, 2, 3, 4, 5, 6, 7, 8].map(receive);
    assert_eq!(try_srq_recv_list(small, &mut list), Err((libc::ENOMEM, 6)));
    for (count, sg_list) in [(1, null_mut()), (-1, three_pieces.as_mut_ptr())] {
        let mut bad = [ibv_recv_wr { num_sge: count, sg_list, ..receive(9) }];
        assert_eq!(try_srq_recv_list(small, &mut bad), Err((libc::EINVAL, 0)));
    }
    // What was taken is there, in order.
    let (qa, qb) = (pool.pair.a.qp(IBV_QPT_RC), qp_of_srq(&pool.pair.b, IBV_QPT_RC, small));
    connect(qa, qb);
    for wr_id in 0..7 {
        post(qa, &mut wr(IBV_WR_SEND));
        pool.pair.a.expect(IBV_WC_SUCCESS);
        assert_eq!(pool.came(qb), wr_id);
    }
    assert_eq!(try_srq_recv(small, 5, &mut []), 0);
}

/// The size changes while receives wait, which stay in order; it does not go below what waits.
/// Rules: SQ-05
#[test]
fn the_size_can_be_changed() {
    let pool = Pool::new(Link::Loopback, 4096);
    let resize = |max_wr| {
        let attr = ibv_srq_attr { max_wr, ..ibv_srq_attr::default() };
        modify_srq(pool.srq, attr, IBV_SRQ_MAX_WR)
    };
    let size = query_srq(pool.srq).max_wr;
    let message = |wr_id| {
        pool.post(pool.pair.qa, 1, 0, 8);
        pool.pair.a.expect(IBV_WC_SUCCESS);
        assert_eq!(pool.came(pool.pair.qb), wr_id);
    };
    // Not from the beginning of the ring.
    for wr_id in 0..10 {
        pool.recv(wr_id, 0, 64);
        message(wr_id);
    }
    for wr_id in 0..u64::from(size) {
        pool.recv(wr_id, wr_id as usize, 64);
    }
    assert_eq!(try_srq_recv(pool.srq, 0, &mut []), libc::ENOMEM);
    for too_small in [0, 1, size / 2] {
        assert_eq!(resize(too_small), libc::EINVAL);
        assert_eq!(query_srq(pool.srq).max_wr, size);
    }
    assert_eq!(resize(Limits::DEVICE.shared_work_requests + 1), libc::EINVAL);
    assert_eq!(resize(2 * size), 0);
    assert!(query_srq(pool.srq).max_wr >= 2 * size);
    for wr_id in u64::from(size)..u64::from(2 * size) {
        pool.recv(wr_id, 0, 64);
    }
    for wr_id in 0..u64::from(2 * size) - 3 {
        message(wr_id);
    }
    assert_eq!(resize(1), libc::EINVAL);
    assert_eq!(resize(3), 0);
    assert_eq!(try_srq_recv(pool.srq, 0, &mut []), libc::ENOMEM);
    for wr_id in u64::from(2 * size) - 3..u64::from(2 * size) {
        message(wr_id);
    }
    pool.recv(1, 0, 64);
    message(1);
}

/// Nulls, destroyed queues and unknown masks are refused.
#[test]
fn bad_arguments_are_refused() {
    let end = End::new(Default::default());
    let gone = srq(end.pd, 4);
    assert_eq!(destroy_srq(gone), 0);
    assert_eq!(destroy_srq(gone), libc::ENOENT);
    assert_eq!(arm_limit(gone, 1), libc::ENOENT);
    assert_ne!(try_srq_recv(gone, 1, &mut []), 0);
    assert_ne!(destroy_srq(null_mut()), 0);
    assert_ne!(arm_limit(null_mut(), 1), 0);
    let mut init = ibv_srq_init_attr::default();
    init.attr.max_wr = 4;
    // SAFETY: nulls, which are refused, and a queue whose struct stays readable.
    unsafe {
        let mut attr = ibv_srq_attr::default();
        assert_eq!(ibv_query_srq(gone, &mut attr), libc::ENOENT);
        assert_ne!(ibv_query_srq(null_mut(), &mut attr), 0);
        assert!(ibv_create_srq(null_mut(), &mut init).is_null());
        assert!(ibv_create_srq(end.pd, null_mut()).is_null());
        let shared = srq(end.pd, 4);
        assert_eq!(ibv_query_srq(shared, null_mut()), libc::EINVAL);
        assert_eq!(ibv_modify_srq(shared, null_mut(), IBV_SRQ_LIMIT as i32), libc::EINVAL);
        let attr = ibv_srq_attr { max_wr: 8, max_sge: 8, srq_limit: 1 };
        for mask in [4, 1 << 31, IBV_SRQ_LIMIT | 4] {
            assert_eq!(modify_srq(shared, attr, mask), libc::EINVAL);
        }
        assert_eq!(modify_srq(shared, attr, 0), 0);
        let found = query_srq(shared);
        assert_eq!((found.max_wr, found.max_sge, found.srq_limit), (7, 4, 0));
    }
}

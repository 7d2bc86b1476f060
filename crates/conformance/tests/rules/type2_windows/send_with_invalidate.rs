//! SEND_WITH_INV (rules D.4), but for what races it: see `revocation_races.rs`.

use transom_abi::*;
use transom_conformance::access::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::queues::*;

/// A SEND_WITH_INV of these pieces.
fn send_inv_wr(key: u32, sges: &mut [ibv_sge]) -> ibv_send_wr {
    let mut wr = with_sges(wr(IBV_WR_SEND_WITH_INV), sges);
    wr.imm.invalidate_rkey = key;
    wr
}

/// The key that a receive says was invalidated.
fn invalidated(wc: &ibv_wc) -> u32 {
    // SAFETY: all variants are plain numbers.
    unsafe { wc.imm.invalidated_rkey }
}

/// A class J error: the receive tells its program, and its queue pair falls into error with what
/// else is posted; the sender gets no answer until it gives up.
fn class_j(scene: &Scene, qps: Qps, key: u32) {
    recv(qps.1, 41, &mut []);
    recv(qps.1, 42, &mut []);
    give_up_soon(qps.0);
    post(qps.0, &mut send_inv_wr(key, &mut []));
    let wc = scene.pair.b.expect(IBV_WC_MW_BIND_ERR);
    assert_eq!(wc.wr_id, 41, "key {key:#x}");
    let wc = scene.pair.b.expect(IBV_WC_WR_FLUSH_ERR);
    assert_eq!((wc.wr_id, state(qps.1)), (42, IBV_QPS_ERR));
    let wc = scene.pair.a.expect(IBV_WC_RETRY_EXC_ERR);
    assert_eq!((wc.wr_id, state(qps.0)), (1, IBV_QPS_ERR));
    scene.pair.b.expect_nothing();
}

/// The key grants everything on the first eight bytes.
fn still_bound(scene: &Scene, qps: Qps, key: u32) {
    for op in Op::ALL {
        scene.allowed_on(qps, op, scene.far.addr(), 8, key);
    }
    assert_eq!(dereg(scene.far_mr), libc::EBUSY);
}

on_each_link! {
    /// The message arrives, the window is free, and the receive says which key is gone; the peer
    /// knows its SEND as any other.
    /// Rules: INV-30, INV-31
    fn the_message_arrives_and_the_window_ends(link: Link) {
        let scene = Scene::new(link);
        let (qa, qb) = scene.qps();
        for length in [1, 4096, 1_000_000] {
            let range = scene.range(0, 4096, REMOTE);
            let (mw, key) = scene.bound(IBV_MW_TYPE_2, range);
            still_bound(&scene, (qa, qb), key);
            let (from, to) = (Buffer::filled(length, 9), Buffer::new(length));
            let (ma, mb) = (scene.pair.a.reg(&from, 0), scene.pair.b.reg(&to, ALL));
            recv(qb, 40, &mut [sge(to.addr(), to.len() as u32, mb)]);
            let mut sges = [sge(from.addr(), length as u32, ma)];
            post(qa, &mut send_inv_wr(key, &mut sges));
            let wc = scene.pair.b.expect(IBV_WC_SUCCESS);
            assert_eq!((wc.opcode, wc.wr_id), (IBV_WC_RECV, 40));
            assert_eq!((wc.wc_flags, invalidated(&wc)), (IBV_WC_WITH_INV, key));
            assert_eq!(wc.byte_len, length as u32);
            assert!(to.read(0, length) == from.read(0, length));
            let wc = scene.pair.a.expect(IBV_WC_SUCCESS);
            assert_eq!((wc.opcode, wc.wr_id, wc.wc_flags), (IBV_WC_SEND, 1, 0));
            // Free: bound again at once, and its region can go when that is over.
            post(qb, &mut bind2_wr(mw, key, range));
            scene.pair.b.expect(IBV_WC_SUCCESS);
            post(qb, &mut local_inv_wr(key));
            scene.pair.b.expect(IBV_WC_SUCCESS);
            assert_eq!((dealloc_mw(mw), dereg(mb), dereg(ma)), (0, 0, 0));
        }
        assert_eq!(dereg(scene.far_mr), 0);
    }

    /// When the receive completes the key is dead, and already for a request right behind the SEND.
    /// Rules: INV-32
    fn the_key_is_dead_when_the_receive_completes(link: Link) {
        let scene = Scene::new(link);
        let (qa, qb) = scene.qps();
        for op in Op::ALL {
            let (mw, key) = scene.bound(IBV_MW_TYPE_2, scene.range(0, 4096, REMOTE));
            recv(qb, 40, &mut []);
            post(qa, &mut send_inv_wr(key, &mut []));
            assert_eq!(scene.pair.b.expect(IBV_WC_SUCCESS).wr_id, 40);
            let before = scene.far.read(0, 8192);
            let mut sges = [sge(scene.near.addr(), 8, scene.near_mr)];
            post(qa, &mut op_wr(op, &mut sges, scene.far.addr(), key));
            scene.pair.a.expect(IBV_WC_SUCCESS);
            scene.pair.a.expect(IBV_WC_REM_ACCESS_ERR);
            assert!(scene.far.read(0, 8192) == before);
            scene.pair.b.event();
            scene.reconnect((qa, qb));

            let key = bind(&scene.pair.b, qb, mw, scene.range(0, 4096, REMOTE));
            recv(qb, 41, &mut []);
            let mut list =
                [send_inv_wr(key, &mut []), op_wr(op, &mut sges, scene.far.addr(), key)];
            assert_eq!(try_post_list(qa, &mut list), Ok(()));
            scene.pair.a.expect(IBV_WC_SUCCESS);
            scene.pair.a.expect(IBV_WC_REM_ACCESS_ERR);
            assert!(scene.far.read(0, 8192) == before);
            assert_eq!(scene.pair.b.expect(IBV_WC_SUCCESS).wr_id, 41);
            scene.pair.b.event();
            scene.reconnect((qa, qb));
        }
    }

    /// A message of no bytes does it too.
    /// Rules: INV-33
    fn an_empty_message_ends_a_window(link: Link) {
        let scene = Scene::new(link);
        let (_, key) = scene.bound(IBV_MW_TYPE_2, scene.range(0, 4096, REMOTE));
        recv(scene.pair.qb, 40, &mut []);
        post(scene.pair.qa, &mut send_inv_wr(key, &mut []));
        let wc = scene.pair.b.expect(IBV_WC_SUCCESS);
        assert_eq!((wc.wr_id, wc.opcode, wc.byte_len), (40, IBV_WC_RECV, 0));
        assert_eq!((wc.wc_flags, invalidated(&wc)), (IBV_WC_WITH_INV, key));
        scene.pair.a.expect(IBV_WC_SUCCESS);
        assert_eq!(dereg(scene.far_mr), 0);
    }

    /// Without a receive the peer is told to wait, and the window is not touched until one comes.
    /// Rules: INV-34
    fn without_a_receive_nothing_ends(link: Link) {
        let scene = Scene::new(link);
        let qps = (scene.pair.a.qp(IBV_QPT_RC), scene.pair.b.qp(IBV_QPT_RC));
        bring_up(qps.1, &usual_attr(qps.0));
        bring_up(qps.0, &ibv_qp_attr { rnr_retry: 2, ..usual_attr(qps.1) });
        let mw = scene.pair.b.mw(IBV_MW_TYPE_2);
        let key = bind(&scene.pair.b, qps.1, mw, scene.range(0, 4096, REMOTE));
        post(qps.0, &mut send_inv_wr(key, &mut []));
        scene.pair.a.expect(IBV_WC_RNR_RETRY_EXC_ERR);
        assert_eq!((state(qps.0), state(qps.1)), (IBV_QPS_ERR, IBV_QPS_RTS));
        scene.pair.b.expect_nothing();
        scene.reconnect(qps);
        still_bound(&scene, qps, key);
        // Now for ever: the SEND waits until there is a receive.
        post(qps.0, &mut send_inv_wr(key, &mut []));
        recv(qps.1, 40, &mut []);
        assert_eq!(scene.pair.b.expect(IBV_WC_SUCCESS).wr_id, 40);
        scene.pair.a.expect(IBV_WC_SUCCESS);
    }

    /// A key that names nothing, or has another low byte, is a class J error.
    /// Rules: INV-35
    fn a_bad_key_is_a_class_j_error(link: Link) {
        let scene = Scene::new(link);
        let (_, key) = scene.bound(IBV_MW_TYPE_2, scene.range(0, 4096, REMOTE));
        class_j(&scene, scene.qps(), key ^ 1);
        scene.reconnect(scene.qps());
        still_bound(&scene, scene.qps(), key);
        let freed = scene.pair.b.mw(IBV_MW_TYPE_2);
        let gone = rkey(freed);
        assert_eq!(dealloc_mw(freed), 0);
        for key in [gone, 0, 0xdead_beef] {
            class_j(&scene, scene.more(), key);
        }
        still_bound(&scene, scene.qps(), key);
    }

    /// After a class J error the sender is told nothing at all, neither that the message came nor
    /// that it did not: with its timeout off it waits for ever.
    /// Rules: INV-35
    fn the_sender_is_not_told(link: Link) {
        let scene = Scene::new(link);
        let (qa, qb) = (scene.pair.a.qp(IBV_QPT_RC), scene.pair.b.qp(IBV_QPT_RC));
        bring_up(qb, &usual_attr(qa));
        bring_up(qa, &ibv_qp_attr { timeout: 0, ..usual_attr(qb) });
        recv(qb, 41, &mut []);
        post(qa, &mut send_inv_wr(0xdead_beef, &mut []));
        assert_eq!(scene.pair.b.expect(IBV_WC_MW_BIND_ERR).wr_id, 41);
        // An answer would come before that to a message on other queue pairs.
        for _ in 0..10 {
            recv(scene.pair.qb, 42, &mut []);
            post(scene.pair.qa, &mut ibv_send_wr { wr_id: 7, ..wr(IBV_WR_SEND) });
            assert_eq!(scene.pair.a.expect(IBV_WC_SUCCESS).wr_id, 7);
            assert_eq!(scene.pair.b.expect(IBV_WC_SUCCESS).wr_id, 42);
        }
        scene.pair.a.expect_nothing();
        assert_eq!((state(qa), state(qb)), (IBV_QPS_RTS, IBV_QPS_ERR));
        assert!(!scene.pair.b.has_event());
        assert_eq!(set_state(qa, IBV_QPS_ERR), 0);
        assert_eq!(scene.pair.a.expect(IBV_WC_WR_FLUSH_ERR).wr_id, 1);
    }

    /// A window of type 1 is not invalidated.
    /// Rules: INV-36
    fn a_window_of_type_1_stays(link: Link) {
        let scene = Scene::new(link);
        let (_, key) = scene.bound(IBV_MW_TYPE_1, scene.range(0, 4096, REMOTE));
        // Not even through the queue pair that bound it.
        for qps in [scene.more(), scene.qps()] {
            class_j(&scene, qps, key);
            scene.reconnect(qps);
            still_bound(&scene, qps, key);
        }
    }

    /// A window is invalidated through the queue pair that bound it only.
    /// Rules: INV-37
    fn a_window_of_another_queue_pair_stays(link: Link) {
        let scene = Scene::new(link);
        let (_, key) = scene.bound(IBV_MW_TYPE_2, scene.range(0, 4096, REMOTE));
        class_j(&scene, scene.more(), key);
        still_bound(&scene, scene.qps(), key);
        // Nor through one of another domain.
        let b = &scene.pair.b;
        let other = b.with_pd(b.another_pd());
        let qps = (scene.pair.a.qp(IBV_QPT_RC), other.qp(IBV_QPT_RC));
        connect(qps.0, qps.1);
        class_j(&scene, qps, key);
        still_bound(&scene, scene.qps(), key);
    }

    /// An ordinary region is not invalidated.
    /// Rules: INV-38
    fn a_region_stays(link: Link) {
        let scene = Scene::new(link);
        let key = keys(scene.far_mr).1;
        class_j(&scene, scene.more(), key);
        for op in Op::ALL {
            scene.allowed_on(scene.qps(), op, scene.far.addr(), 8, key);
        }
        assert_eq!(dereg(scene.far_mr), 0);
    }

    /// A window that is free, never bound or no longer, has nothing to end; it can be bound
    /// afterwards.
    /// Rules: INV-39
    fn a_free_window_is_a_class_j_error(link: Link) {
        let scene = Scene::new(link);
        let range = scene.range(0, 4096, REMOTE);
        let fresh = scene.pair.b.mw(IBV_MW_TYPE_2);
        class_j(&scene, scene.more(), rkey(fresh));
        let (used, key) = scene.bound(IBV_MW_TYPE_2, range);
        post(scene.pair.qb, &mut local_inv_wr(key));
        scene.pair.b.expect(IBV_WC_SUCCESS);
        class_j(&scene, scene.qps(), key);
        scene.reconnect(scene.qps());
        for mw in [fresh, used] {
            let key = bind(&scene.pair.b, scene.pair.qb, mw, range);
            still_bound(&scene, scene.qps(), key);
        }
    }

    /// What is wrong with the receive's own memory comes first: the window is judged once the
    /// payload is placed, and then not at all. With a bad key the buffer may hold the message or
    /// not, and nothing beyond it is touched.
    /// Rules: INV-42
    fn the_payload_comes_before_the_window(link: Link) {
        let scene = Scene::new(link);
        let (_, key) = scene.bound(IBV_MW_TYPE_2, scene.range(0, 4096, REMOTE));
        let from = |length| [sge(scene.near.addr(), length, scene.near_mr)];
        for key in [key, 0xdead_beef] {
            let mut nowhere = sge(scene.far.addr(), 64, scene.far_mr);
            nowhere.lkey ^= 1;
            recv(scene.pair.qb, 40, &mut [nowhere]);
            post(scene.pair.qa, &mut send_inv_wr(key, &mut from(64)));
            assert_eq!(scene.pair.b.expect(IBV_WC_LOC_PROT_ERR).wr_id, 40);
            scene.pair.a.expect(IBV_WC_REM_OP_ERR);
            scene.reconnect(scene.qps());

            recv(scene.pair.qb, 41, &mut [sge(scene.far.addr(), 64, scene.far_mr)]);
            post(scene.pair.qa, &mut send_inv_wr(key, &mut from(65)));
            assert_eq!(scene.pair.b.expect(IBV_WC_LOC_LEN_ERR).wr_id, 41);
            scene.pair.a.expect(IBV_WC_REM_INV_REQ_ERR);
            scene.reconnect(scene.qps());
        }
        still_bound(&scene, scene.qps(), key);

        let place = |from, length| (from..from + length).map(|at| scene.far.read(at, 1)[0]);
        scene.far.fill(0x11);
        scene.near.fill(0x22);
        recv(scene.pair.qb, 42, &mut [sge(scene.far.addr() + 4096, 64, scene.far_mr)]);
        give_up_soon(scene.pair.qa);
        post(scene.pair.qa, &mut send_inv_wr(0xdead_beef, &mut from(64)));
        assert_eq!(scene.pair.b.expect(IBV_WC_MW_BIND_ERR).wr_id, 42);
        scene.pair.a.expect(IBV_WC_RETRY_EXC_ERR);
        assert!(place(4096, 64).all(|byte| byte == 0x11 || byte == 0x22));
        assert!(place(0, 4096).chain(place(4160, 4032)).all(|byte| byte == 0x11));
    }

    /// It raises an event on a queue that waits for solicited completions if it asks for one, as a
    /// SEND does, and not otherwise.
    /// Rules: INV-45
    fn it_may_be_solicited(link: Link) {
        let scene = Scene::new(link);
        let channel = channel(scene.pair.b.context);
        let b = &scene.pair.b;
        let cq = try_cq(b.context, 64, channel).expect("a queue");
        let heard = End::of(b.context, b.pd, cq);
        let (qa, qb) = (scene.pair.a.qp(IBV_QPT_RC), heard.qp(IBV_QPT_RC));
        connect(qa, qb);
        let mw = heard.mw(IBV_MW_TYPE_2);
        for solicited in [false, true, false, true] {
            let key = bind(&heard, qb, mw, scene.range(0, 64, REMOTE));
            assert_eq!(arm(cq, true), 0);
            recv(qb, 40, &mut []);
            let mut request = send_inv_wr(key, &mut []);
            if solicited {
                request.send_flags |= IBV_SEND_SOLICITED;
            }
            post(qa, &mut request);
            scene.pair.a.expect(IBV_WC_SUCCESS);
            if solicited {
                assert_eq!(cq_event(channel), cq);
            } else {
                assert!(!has_cq_event(channel));
            }
            assert_eq!(heard.expect(IBV_WC_SUCCESS).wc_flags, IBV_WC_WITH_INV);
        }
    }
}

/// The sender does not look at the key: any number is posted and travels.
/// Rules: INV-40
#[test]
fn any_key_can_be_posted() {
    let scene = Scene::new(Link::Local);
    for key in [0, 1, 0xff, 0x100, 0x7fff_ffff, 0xdead_beef, u32::MAX] {
        let qps = scene.more();
        class_j(&scene, qps, key);
    }
    // Nor does it matter that the key names something of its own.
    let mw = scene.pair.a.mw(IBV_MW_TYPE_2);
    let range = Range { mr: scene.near_mr, addr: scene.near.addr(), length: 64, access: REMOTE };
    let key = bind(&scene.pair.a, scene.pair.qa, mw, range);
    class_j(&scene, scene.more(), key);
    assert_eq!(dereg(scene.near_mr), libc::EBUSY);
}

/// UC has no such message.
/// Rules: INV-43
#[test]
fn uc_refuses_it() {
    let scene = Scene::new(Link::Loopback);
    let (qa, qb) = scene.pair.another(IBV_QPT_UC);
    let mw = scene.pair.b.mw(IBV_MW_TYPE_2);
    let key = bind(&scene.pair.b, qb, mw, scene.range(0, 64, REMOTE));
    recv(qb, 40, &mut []);
    assert_eq!(try_post(qa, &mut send_inv_wr(key, &mut [])), libc::EINVAL);
    assert_eq!(state(qa), IBV_QPS_RTS);
    // Nothing was sent: the receive is there for the next message.
    post(qa, &mut wr(IBV_WR_SEND));
    let wc = scene.pair.b.expect(IBV_WC_SUCCESS);
    assert_eq!((wc.wr_id, wc.wc_flags), (40, 0));
    assert_eq!(dereg(scene.far_mr), libc::EBUSY);
}

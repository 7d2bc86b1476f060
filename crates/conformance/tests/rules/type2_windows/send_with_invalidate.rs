//! SEND_WITH_INV (rules D.4), but for what races it: see `revocation_races.rs`.

use transom_abi::*;
use transom_conformance::access::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::queues::*;

/// A SEND_WITH_INV of these SGEs.
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
fn class_j(both: &MemoryPair, qps: Qps, key: u32) {
    recv(qps.1, 41, &mut []);
    recv(qps.1, 42, &mut []);
    give_up_soon(qps.0);
    post(qps.0, &mut send_inv_wr(key, &mut []));
    let wc = both.pair.b.expect(IBV_WC_MW_BIND_ERR);
    assert_eq!(wc.wr_id, 41, "key {key:#x}");
    let wc = both.pair.b.expect(IBV_WC_WR_FLUSH_ERR);
    assert_eq!((wc.wr_id, state(qps.1)), (42, IBV_QPS_ERR));
    let wc = both.pair.a.expect(IBV_WC_RETRY_EXC_ERR);
    assert_eq!((wc.wr_id, state(qps.0)), (1, IBV_QPS_ERR));
    both.pair.b.expect_nothing();
}

/// The key grants everything on the first eight bytes.
fn still_bound(both: &MemoryPair, qps: Qps, key: u32) {
    for op in Op::ALL {
        both.allowed_on(qps, op, both.far.addr(), 8, key);
    }
    assert_eq!(dereg(both.mb), libc::EBUSY);
}

on_each_link! {
    /// The message arrives, the window is free, and the receive says which key is gone; the peer
    /// knows its SEND as any other.
    /// Rules: INV-30, INV-31
    fn the_message_arrives_and_the_window_ends(link: Link) {
        let both = MemoryPair::pages(link);
        let (qa, qb) = both.qps();
        for length in [1, 4096, 1_000_000] {
            let range = both.range(0, 4096, REMOTE);
            let (mw, key) = both.bound(IBV_MW_TYPE_2, range);
            still_bound(&both, (qa, qb), key);
            let (from, to) = (Buffer::filled(length, 9), Buffer::new(length));
            let (ma, mb) = (both.pair.a.reg(&from, 0), both.pair.b.reg(&to, ALL));
            recv(qb, 40, &mut [sge(to.addr(), to.len() as u32, mb)]);
            let mut sges = [sge(from.addr(), length as u32, ma)];
            post(qa, &mut send_inv_wr(key, &mut sges));
            let wc = both.pair.b.expect(IBV_WC_SUCCESS);
            assert_eq!((wc.opcode, wc.wr_id), (IBV_WC_RECV, 40));
            assert_eq!((wc.wc_flags, invalidated(&wc)), (IBV_WC_WITH_INV, key));
            assert_eq!(wc.byte_len, length as u32);
            assert!(to.read(0, length) == from.read(0, length));
            let wc = both.pair.a.expect(IBV_WC_SUCCESS);
            assert_eq!((wc.opcode, wc.wr_id, wc.wc_flags), (IBV_WC_SEND, 1, 0));
            // Free: bound again at once, and its region can go when that is over.
            post(qb, &mut bind2_wr(mw, key, range));
            both.pair.b.expect(IBV_WC_SUCCESS);
            post(qb, &mut local_inv_wr(key));
            both.pair.b.expect(IBV_WC_SUCCESS);
            assert_eq!((dealloc_mw(mw), dereg(mb), dereg(ma)), (0, 0, 0));
        }
        assert_eq!(dereg(both.mb), 0);
    }

    /// When the receive completes the key is dead, and already for a request right behind the SEND.
    /// Rules: INV-32
    fn the_key_is_dead_when_the_receive_completes(link: Link) {
        let both = MemoryPair::pages(link);
        let (qa, qb) = both.qps();
        for op in Op::ALL {
            let (mw, key) = both.bound(IBV_MW_TYPE_2, both.range(0, 4096, REMOTE));
            recv(qb, 40, &mut []);
            post(qa, &mut send_inv_wr(key, &mut []));
            assert_eq!(both.pair.b.expect(IBV_WC_SUCCESS).wr_id, 40);
            let before = both.far.read(0, 8192);
            let mut sges = [sge(both.near.addr(), 8, both.ma)];
            post(qa, &mut op_wr(op, &mut sges, both.far.addr(), key));
            both.pair.a.expect(IBV_WC_SUCCESS);
            both.pair.a.expect(IBV_WC_REM_ACCESS_ERR);
            assert!(both.far.read(0, 8192) == before);
            both.pair.b.event();
            both.reconnect((qa, qb));

            let key = bind(&both.pair.b, qb, mw, both.range(0, 4096, REMOTE));
            recv(qb, 41, &mut []);
            let mut list =
                [send_inv_wr(key, &mut []), op_wr(op, &mut sges, both.far.addr(), key)];
            assert_eq!(try_post_list(qa, &mut list), Ok(()));
            both.pair.a.expect(IBV_WC_SUCCESS);
            both.pair.a.expect(IBV_WC_REM_ACCESS_ERR);
            assert!(both.far.read(0, 8192) == before);
            assert_eq!(both.pair.b.expect(IBV_WC_SUCCESS).wr_id, 41);
            both.pair.b.event();
            both.reconnect((qa, qb));
        }
    }

    /// A message of no bytes does it too.
    /// Rules: INV-33
    fn an_empty_message_ends_a_window(link: Link) {
        let both = MemoryPair::pages(link);
        let (_, key) = both.bound(IBV_MW_TYPE_2, both.range(0, 4096, REMOTE));
        recv(both.pair.qb, 40, &mut []);
        post(both.pair.qa, &mut send_inv_wr(key, &mut []));
        let wc = both.pair.b.expect(IBV_WC_SUCCESS);
        assert_eq!((wc.wr_id, wc.opcode, wc.byte_len), (40, IBV_WC_RECV, 0));
        assert_eq!((wc.wc_flags, invalidated(&wc)), (IBV_WC_WITH_INV, key));
        both.pair.a.expect(IBV_WC_SUCCESS);
        assert_eq!(dereg(both.mb), 0);
    }

    /// Without a receive the peer is told to wait, and the window is not touched until one comes.
    /// Rules: INV-34
    fn without_a_receive_nothing_ends(link: Link) {
        let both = MemoryPair::pages(link);
        let qps = (both.pair.a.qp(IBV_QPT_RC), both.pair.b.qp(IBV_QPT_RC));
        bring_up(qps.1, &usual_attr(qps.0));
        bring_up(qps.0, &ibv_qp_attr { rnr_retry: 2, ..usual_attr(qps.1) });
        let mw = both.pair.b.mw(IBV_MW_TYPE_2);
        let key = bind(&both.pair.b, qps.1, mw, both.range(0, 4096, REMOTE));
        post(qps.0, &mut send_inv_wr(key, &mut []));
        both.pair.a.expect(IBV_WC_RNR_RETRY_EXC_ERR);
        assert_eq!((state(qps.0), state(qps.1)), (IBV_QPS_ERR, IBV_QPS_RTS));
        both.pair.b.expect_nothing();
        both.reconnect(qps);
        still_bound(&both, qps, key);
        // Now for ever: the SEND waits until there is a receive.
        post(qps.0, &mut send_inv_wr(key, &mut []));
        recv(qps.1, 40, &mut []);
        assert_eq!(both.pair.b.expect(IBV_WC_SUCCESS).wr_id, 40);
        both.pair.a.expect(IBV_WC_SUCCESS);
    }

    /// A key that names nothing, or has another low byte, is a class J error.
    /// Rules: INV-35
    fn a_bad_key_is_a_class_j_error(link: Link) {
        let both = MemoryPair::pages(link);
        let (_, key) = both.bound(IBV_MW_TYPE_2, both.range(0, 4096, REMOTE));
        class_j(&both, both.qps(), key ^ 1);
        both.reconnect(both.qps());
        still_bound(&both, both.qps(), key);
        let freed = both.pair.b.mw(IBV_MW_TYPE_2);
        let gone = rkey(freed);
        assert_eq!(dealloc_mw(freed), 0);
        for key in [gone, 0, 0xdead_beef] {
            class_j(&both, both.more(), key);
        }
        still_bound(&both, both.qps(), key);
    }

    /// After a class J error the sender is told nothing at all, neither that the message came nor
    /// that it did not: with its timeout off it waits for ever.
    /// Rules: INV-35
    fn the_sender_is_not_told(link: Link) {
        let both = MemoryPair::pages(link);
        let (qa, qb) = (both.pair.a.qp(IBV_QPT_RC), both.pair.b.qp(IBV_QPT_RC));
        bring_up(qb, &usual_attr(qa));
        bring_up(qa, &ibv_qp_attr { timeout: 0, ..usual_attr(qb) });
        recv(qb, 41, &mut []);
        post(qa, &mut send_inv_wr(0xdead_beef, &mut []));
        assert_eq!(both.pair.b.expect(IBV_WC_MW_BIND_ERR).wr_id, 41);
        // An answer would come before that to a message on other queue pairs.
        for _ in 0..10 {
            recv(both.pair.qb, 42, &mut []);
            post(both.pair.qa, &mut ibv_send_wr { wr_id: 7, ..wr(IBV_WR_SEND) });
            assert_eq!(both.pair.a.expect(IBV_WC_SUCCESS).wr_id, 7);
            assert_eq!(both.pair.b.expect(IBV_WC_SUCCESS).wr_id, 42);
        }
        both.pair.a.expect_nothing();
        assert_eq!((state(qa), state(qb)), (IBV_QPS_RTS, IBV_QPS_ERR));
        assert!(!both.pair.b.has_event());
        assert_eq!(set_state(qa, IBV_QPS_ERR), 0);
        assert_eq!(both.pair.a.expect(IBV_WC_WR_FLUSH_ERR).wr_id, 1);
    }

    /// A window of type 1 is not invalidated.
    /// Rules: INV-36
    fn a_window_of_type_1_stays(link: Link) {
        let both = MemoryPair::pages(link);
        let (_, key) = both.bound(IBV_MW_TYPE_1, both.range(0, 4096, REMOTE));
        // Not even through the queue pair that bound it.
        for qps in [both.more(), both.qps()] {
            class_j(&both, qps, key);
            both.reconnect(qps);
            still_bound(&both, qps, key);
        }
    }

    /// A window is invalidated through the queue pair that bound it only.
    /// Rules: INV-37
    fn a_window_of_another_queue_pair_stays(link: Link) {
        let both = MemoryPair::pages(link);
        let (_, key) = both.bound(IBV_MW_TYPE_2, both.range(0, 4096, REMOTE));
        class_j(&both, both.more(), key);
        still_bound(&both, both.qps(), key);
        // Nor through one of another domain.
        let b = &both.pair.b;
        let other = b.with_pd(b.another_pd());
        let qps = (both.pair.a.qp(IBV_QPT_RC), other.qp(IBV_QPT_RC));
        connect(qps.0, qps.1);
        class_j(&both, qps, key);
        still_bound(&both, both.qps(), key);
    }

    /// An ordinary region is not invalidated.
    /// Rules: INV-38
    fn a_region_stays(link: Link) {
        let both = MemoryPair::pages(link);
        let key = keys(both.mb).1;
        class_j(&both, both.more(), key);
        for op in Op::ALL {
            both.allowed_on(both.qps(), op, both.far.addr(), 8, key);
        }
        assert_eq!(dereg(both.mb), 0);
    }

    /// A window that is free, never bound or no longer, has nothing to end; it can be bound
    /// afterwards.
    /// Rules: INV-39
    fn a_free_window_is_a_class_j_error(link: Link) {
        let both = MemoryPair::pages(link);
        let range = both.range(0, 4096, REMOTE);
        let fresh = both.pair.b.mw(IBV_MW_TYPE_2);
        class_j(&both, both.more(), rkey(fresh));
        let (used, key) = both.bound(IBV_MW_TYPE_2, range);
        post(both.pair.qb, &mut local_inv_wr(key));
        both.pair.b.expect(IBV_WC_SUCCESS);
        class_j(&both, both.qps(), key);
        both.reconnect(both.qps());
        for mw in [fresh, used] {
            let key = bind(&both.pair.b, both.pair.qb, mw, range);
            still_bound(&both, both.qps(), key);
        }
    }

    /// What is wrong with the receive's own memory comes first: the window is judged once the
    /// payload is placed, and then not at all. With a bad key the buffer may hold the message or
    /// not, and nothing beyond it is touched.
    /// Rules: INV-42
    fn the_payload_comes_before_the_window(link: Link) {
        let both = MemoryPair::pages(link);
        let (_, key) = both.bound(IBV_MW_TYPE_2, both.range(0, 4096, REMOTE));
        let from = |length| [sge(both.near.addr(), length, both.ma)];
        for key in [key, 0xdead_beef] {
            let mut nowhere = sge(both.far.addr(), 64, both.mb);
            nowhere.lkey ^= 1;
            recv(both.pair.qb, 40, &mut [nowhere]);
            post(both.pair.qa, &mut send_inv_wr(key, &mut from(64)));
            assert_eq!(both.pair.b.expect(IBV_WC_LOC_PROT_ERR).wr_id, 40);
            both.pair.a.expect(IBV_WC_REM_OP_ERR);
            both.reconnect(both.qps());

            recv(both.pair.qb, 41, &mut [sge(both.far.addr(), 64, both.mb)]);
            post(both.pair.qa, &mut send_inv_wr(key, &mut from(65)));
            assert_eq!(both.pair.b.expect(IBV_WC_LOC_LEN_ERR).wr_id, 41);
            both.pair.a.expect(IBV_WC_REM_INV_REQ_ERR);
            both.reconnect(both.qps());
        }
        still_bound(&both, both.qps(), key);

        let place = |from, length| (from..from + length).map(|at| both.far.read(at, 1)[0]);
        both.far.fill(0x11);
        both.near.fill(0x22);
        recv(both.pair.qb, 42, &mut [sge(both.far.addr() + 4096, 64, both.mb)]);
        give_up_soon(both.pair.qa);
        post(both.pair.qa, &mut send_inv_wr(0xdead_beef, &mut from(64)));
        assert_eq!(both.pair.b.expect(IBV_WC_MW_BIND_ERR).wr_id, 42);
        both.pair.a.expect(IBV_WC_RETRY_EXC_ERR);
        assert!(place(4096, 64).all(|byte| byte == 0x11 || byte == 0x22));
        assert!(place(0, 4096).chain(place(4160, 4032)).all(|byte| byte == 0x11));
    }

    /// It raises an event on a queue that waits for solicited completions if it asks for one, as a
    /// SEND does, and not otherwise.
    /// Rules: INV-45
    fn it_may_be_solicited(link: Link) {
        let both = MemoryPair::pages(link);
        let channel = channel(both.pair.b.context);
        let b = &both.pair.b;
        let cq = try_cq(b.context, 64, channel).expect("a queue");
        let heard = End::of(b.context, b.pd, cq);
        let (qa, qb) = (both.pair.a.qp(IBV_QPT_RC), heard.qp(IBV_QPT_RC));
        connect(qa, qb);
        let mw = heard.mw(IBV_MW_TYPE_2);
        for solicited in [false, true, false, true] {
            let key = bind(&heard, qb, mw, both.range(0, 64, REMOTE));
            assert_eq!(arm(cq, true), 0);
            recv(qb, 40, &mut []);
            let mut request = send_inv_wr(key, &mut []);
            if solicited {
                request.send_flags |= IBV_SEND_SOLICITED;
            }
            post(qa, &mut request);
            both.pair.a.expect(IBV_WC_SUCCESS);
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
    let both = MemoryPair::pages(Link::Local);
    for key in [0, 1, 0xff, 0x100, 0x7fff_ffff, 0xdead_beef, u32::MAX] {
        let qps = both.more();
        class_j(&both, qps, key);
    }
    // Nor does it matter that the key names something of its own.
    let mw = both.pair.a.mw(IBV_MW_TYPE_2);
    let range = Range { mr: both.ma, addr: both.near.addr(), length: 64, access: REMOTE };
    let key = bind(&both.pair.a, both.pair.qa, mw, range);
    class_j(&both, both.more(), key);
    assert_eq!(dereg(both.ma), libc::EBUSY);
}

/// UC has no such message.
/// Rules: INV-43
#[test]
fn uc_refuses_it() {
    let both = MemoryPair::pages(Link::Loopback);
    let (qa, qb) = both.pair.another(IBV_QPT_UC);
    let mw = both.pair.b.mw(IBV_MW_TYPE_2);
    let key = bind(&both.pair.b, qb, mw, both.range(0, 64, REMOTE));
    recv(qb, 40, &mut []);
    assert_eq!(try_post(qa, &mut send_inv_wr(key, &mut [])), libc::EINVAL);
    assert_eq!(state(qa), IBV_QPS_RTS);
    // Nothing was sent: the receive is there for the next message.
    post(qa, &mut wr(IBV_WR_SEND));
    let wc = both.pair.b.expect(IBV_WC_SUCCESS);
    assert_eq!((wc.wr_id, wc.wc_flags), (40, 0));
    assert_eq!(dereg(both.mb), libc::EBUSY);
}

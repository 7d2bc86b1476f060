//! What a bind of a type 1 window does (rules C.3).

use std::sync::mpsc::channel;
use std::thread;

use transom_abi::*;
use transom_conformance::access::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;

/// An end whose queue pairs and objects are in another domain of the same context.
fn other_domain(end: &End) -> End {
    end.with_pd(end.another_pd())
}

/// A queue pair of the target's that the window's key shall be tried through, in any domain.
fn pair_with(both: &MemoryPair, target: &End) -> Qps {
    let qps = (both.pair.a.qp(IBV_QPT_RC), target.qp(IBV_QPT_RC));
    connect(qps.0, qps.1);
    qps
}

/// Success is reported if asked for: with the request's number, the queue pair, and what it was.
/// Nothing is reported otherwise. On UC as on RC.
/// Rules: T1-40, T1-41
#[test]
fn success_is_reported_if_asked_for() {
    let both = MemoryPair::pages(Link::Loopback);
    let b = &both.pair.b;
    for kind in [IBV_QPT_RC, IBV_QPT_UC] {
        let (_, qb) = both.pair.another(kind);
        let mw = b.mw(IBV_MW_TYPE_1);
        for range in [both.range(0, 64, REMOTE), both.range(64, 64, 0), NOTHING] {
            assert_eq!(bind1(qb, mw, 30, 0, range), 0);
            assert_eq!(bind1(qb, mw, 0xfeed_0000_0000_0031, IBV_SEND_SIGNALED, range), 0);
            let wc = b.expect(IBV_WC_SUCCESS);
            assert_eq!((wc.wr_id, wc.opcode), (0xfeed_0000_0000_0031, IBV_WC_BIND_MW));
            // SAFETY: a live queue pair.
            assert_eq!(wc.qp_num, unsafe { (*qb).qp_num });
            b.expect_nothing();
        }
    }
}

/// Rules: T1-42
#[test]
fn sq_sig_all_reports_every_bind() {
    let both = MemoryPair::pages(Link::Loopback);
    let b = &both.pair.b;
    let qb = b.qp_with(&mut ibv_qp_init_attr { sq_sig_all: 1, ..b.init(IBV_QPT_RC) });
    connect(both.pair.a.qp(IBV_QPT_RC), qb);
    let mw = b.mw(IBV_MW_TYPE_1);
    for (wr_id, range) in [(4, both.range(0, 64, REMOTE)), (5, NOTHING)] {
        assert_eq!(bind1(qb, mw, wr_id, 0, range), 0);
        let wc = b.expect(IBV_WC_SUCCESS);
        assert_eq!((wc.wr_id, wc.opcode), (wr_id, IBV_WC_BIND_MW));
    }
}

/// An unbind looks at nothing: no region, one that forbids binding, one of no length, a range
/// outside, a window not bound.
/// Rules: T1-46, T1-47, T1-49
#[test]
fn an_unbind_looks_at_nothing_but_the_window() {
    let both = MemoryPair::pages(Link::Loopback);
    let (b, qb) = (&both.pair.b, both.pair.qb);
    let forbids = b.reg(&both.far, 0);
    let outside = both.far.addr() + (1 << 40);
    for range in [
        NOTHING,
        both.range(0, 0, 0),
        Range { mr: forbids, ..both.range(0, 0, REMOTE) },
        Range { addr: outside, ..both.range(0, 0, REMOTE) },
        Range { mr: forbids, addr: u64::MAX, length: 0, access: REMOTE },
    ] {
        let (mw, bound) = both.bound(IBV_MW_TYPE_1, both.range(0, 64, REMOTE));
        let unbound = bind(b, qb, mw, range);
        both.refused(Op::Read, both.far.addr(), 8, bound);
        both.refused(Op::Read, both.far.addr(), 8, unbound);
        // And once more, now that it is not bound.
        assert_ne!(bind(b, qb, mw, range), unbound);
        assert_eq!(dealloc_mw(mw), 0);
    }
    let never_bound = b.mw(IBV_MW_TYPE_1);
    bind(b, qb, never_bound, NOTHING);
    assert_eq!((dereg(forbids), dereg(both.mb)), (0, 0));
}

on_each_link! {
    /// A bound window grants its rights in its range through every queue pair of its domain, and
    /// through none of another.
    /// Rules: T1-43, T1-44, RA-26
    fn the_domain_decides_who_may_use_a_window(link: Link) {
        let both = MemoryPair::pages(link);
        let rights = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        let (_, key) = both.bound(IBV_MW_TYPE_1, both.range(64, 64, rights));
        let addr = both.far.addr() + 64;
        for qps in [both.qps(), both.more(), both.more()] {
            both.allowed_on(qps, Op::Read, addr, 64, key);
            both.allowed_on(qps, Op::Add, addr + 56, 8, key);
        }
        both.refused(Op::Write, addr, 8, key);
        both.refused(Op::Read, addr - 1, 64, key);
        both.refused(Op::Read, addr + 1, 64, key);
        both.refused(Op::Add, addr + 64, 8, key);
        let other = other_domain(&both.pair.b);
        for op in [Op::Read, Op::Add] {
            both.refused_on(pair_with(&both, &other), op, addr, 8, key);
        }
    }

    /// A bind of length zero unbinds; the key it gives is fresh, and good for nothing.
    /// Rules: T1-45, T1-48
    fn a_bind_of_no_length_unbinds(link: Link) {
        let both = MemoryPair::pages(link);
        let (mw, old) = both.bound(IBV_MW_TYPE_1, both.range(0, 64, REMOTE));
        both.allowed(Op::Write, both.far.addr(), 64, old);
        assert_eq!(dereg(both.mb), libc::EBUSY);
        let new = bind(&both.pair.b, both.pair.qb, mw, both.range(0, 0, REMOTE));
        assert_ne!(new, old);
        both.all_refused(both.far.addr(), old);
        both.all_refused(both.far.addr(), new);
        assert_eq!(dereg(both.mb), 0);
    }

    /// A bound window is bound anew at any time, to another range, with other rights, to another
    /// region, by any queue pair of the domain; it lets go of what it was bound to.
    /// Rules: T1-50, T1-51
    fn a_window_can_be_bound_anew(link: Link) {
        let both = MemoryPair::pages(link);
        let b = &both.pair.b;
        let (mw, first) = both.bound(IBV_MW_TYPE_1, both.range(0, 64, REMOTE));
        let (addr, another) = (both.far.addr(), both.more());
        let second = bind(b, another.1, mw, both.range(64, 64, REMOTE));
        both.refused(Op::Read, addr, 8, first);
        both.refused(Op::Read, addr, 8, second);
        both.allowed(Op::Write, addr + 64, 64, second);
        let third = bind(b, both.pair.qb, mw, both.range(64, 64, IBV_ACCESS_REMOTE_READ));
        both.refused(Op::Write, addr + 64, 8, third);
        both.refused(Op::Read, addr + 64, 8, second);
        both.allowed(Op::Read, addr + 64, 64, third);
        let mr = try_reg(b.pd, addr + 4096, 4096, ALL).expect("another region");
        let range = Range { mr, ..both.range(4096, 64, REMOTE) };
        let fourth = bind(b, another.1, mw, range);
        both.refused(Op::Read, addr + 64, 8, third);
        both.allowed(Op::Write, addr + 4096, 64, fourth);
        assert_eq!(dereg(both.mb), 0);
        assert_eq!(dereg(mr), libc::EBUSY);
    }

    /// What becomes of the queue pair that carried out the bind does not matter to the window.
    /// Rules: T1-52, T1-53
    fn a_window_outlives_the_queue_pair_that_bound_it(link: Link) {
        let both = MemoryPair::pages(link);
        let ends: [fn(*mut ibv_qp); 3] = [
            |qp| assert_eq!(set_state(qp, IBV_QPS_ERR), 0),
            |qp| assert_eq!(set_state(qp, IBV_QPS_RESET), 0),
            end_qp,
        ];
        for end in ends {
            let (_, qb) = both.more();
            let mw = both.pair.b.mw(IBV_MW_TYPE_1);
            let key = bind(&both.pair.b, qb, mw, both.range(0, 64, REMOTE));
            end(qb);
            for op in Op::ALL {
                both.allowed(op, both.far.addr(), 8, key);
            }
            // It can be bound anew by another, and freed.
            let key = bind(&both.pair.b, both.pair.qb, mw, both.range(64, 64, REMOTE));
            both.allowed(Op::Read, both.far.addr() + 64, 8, key);
            assert_eq!(dealloc_mw(mw), 0);
        }
        assert_eq!(dereg(both.mb), 0);
    }

    /// Peers address a window as its region is addressed: by virtual address, or from the iova on.
    /// Rules: T1-54
    fn addresses_are_those_of_the_region(link: Link) {
        const IOVA: u64 = 0x7000_0000_0000;
        let both = MemoryPair::pages(link);
        let b = &both.pair.b;
        let (_, key) = both.bound(IBV_MW_TYPE_1, both.range(100, 300, REMOTE));
        both.allowed(Op::Read, both.far.addr() + 150, 250, key);
        both.refused(Op::Read, 50, 8, key);
        let (from, length) = (both.far.addr() as *mut _, both.far.len());
        // SAFETY: registering touches no memory.
        let mr = unsafe { transom_ibverbs::ibv_reg_mr_iova(b.pd, from, length, IOVA, ALL) };
        assert!(!mr.is_null());
        let range = Range { mr, addr: IOVA + 100, length: 300, access: REMOTE };
        let key = bind(b, both.pair.qb, b.mw(IBV_MW_TYPE_1), range);
        let status = both.attempt(both.qps(), Op::Read, IOVA + 150, 250, key);
        assert_eq!(status, IBV_WC_SUCCESS);
        assert!(both.near.read(0, 250) == both.far.read(150, 250));
        both.refused(Op::Read, both.far.addr() + 150, 8, key);
        both.refused(Op::Read, IOVA + 99, 8, key);
        both.refused(Op::Read, IOVA + 393, 8, key);
    }

    /// A bind needs no peer: it succeeds when there is none any more, and after it a peer that is in
    /// error hears nothing.
    /// Rules: T1-55
    fn a_bind_needs_no_peer(link: Link) {
        let both = MemoryPair::pages(link);
        let ((_, alone), (silent, qb)) = (both.more(), both.more());
        // SAFETY: a live queue pair.
        let gone = unsafe { (*both.pair.b.qp(IBV_QPT_RC)).qp_num } ^ 0x7fff;
        assert_eq!(set_state(alone, IBV_QPS_RESET), 0);
        bring_up(alone, &ibv_qp_attr { dest_qp_num: gone, ..usual_attr(alone) });
        assert_eq!(set_state(silent, IBV_QPS_ERR), 0);
        for qp in [alone, qb] {
            let mw = both.pair.b.mw(IBV_MW_TYPE_1);
            for at in [0, 64] {
                let key = bind(&both.pair.b, qp, mw, both.range(at, 64, REMOTE));
                both.allowed(Op::Write, both.far.addr() + at as u64, 64, key);
            }
            bind(&both.pair.b, qp, mw, NOTHING);
            assert_eq!(state(qp), IBV_QPS_RTS);
        }
        assert!(!both.pair.a.has_event());
        both.pair.a.expect_nothing();
    }

    /// The key may be sent as soon as the bind is posted, if on the same queue pair: the peer that
    /// receives it can use it.
    /// Rules: T1-56
    fn a_key_sent_behind_its_bind_is_good(link: Link) {
        let both = MemoryPair::pages(link);
        let (b, (qa, qb)) = (&both.pair.b, both.qps());
        let (from, to) = (Buffer::new(4096), Buffer::new(4096));
        let (from_mr, to_mr) = (b.reg(&from, ALL), both.pair.a.reg(&to, ALL));
        let mw = b.mw(IBV_MW_TYPE_1);
        for n in 0..1000 {
            recv(qa, n, &mut [sge(to.addr(), 8, to_mr)]);
            assert_eq!(bind1(qb, mw, n, 0, both.range(n as usize, 64, REMOTE)), 0);
            from.set_word(0, u64::from(rkey(mw)));
            let mut sges = [sge(from.addr(), 8, from_mr)];
            post(qb, &mut with_sges(wr(IBV_WR_SEND), &mut sges));
            assert_eq!(both.pair.a.expect(IBV_WC_SUCCESS).wr_id, n);
            // After the peer has the key, so that the places are free again.
            b.expect(IBV_WC_SUCCESS);
            let (key, addr) = (to.word(0) as u32, both.far.addr() + n);
            assert_eq!(both.attempt((qa, qb), Op::Read, addr, 64, key), IBV_WC_SUCCESS);
        }
        both.pair.b.expect_nothing();
    }

    /// Once the bind has completed the key may go by any way, here from thread to thread: it is
    /// good through any queue pair.
    /// Rules: T1-57
    fn a_key_told_after_the_completion_is_good(link: Link) {
        let both = MemoryPair::pages(link);
        let (b, mw, user) = (&both.pair.b, both.pair.b.mw(IBV_MW_TYPE_1), both.more());
        let (origin, cq) = (user.0 as usize, both.pair.a.cq as usize);
        let element = sge(both.near.addr(), 64, both.ma);
        let (tell, told) = channel::<(u64, u32)>();
        let (answer, answered) = channel();
        let peer = thread::spawn(move || {
            for (addr, key) in told {
                let mut sges = [element];
                post(origin as *mut ibv_qp, &mut op_wr(Op::Read, &mut sges, addr, key));
                let _ = answer.send(wait(cq as *mut ibv_cq).status);
            }
        });
        for n in 0..500 {
            let key = bind(b, both.pair.qb, mw, both.range(n, 64, REMOTE));
            tell.send((both.far.addr() + n as u64, key)).expect("the peer listens");
            assert_eq!(answered.recv(), Ok(IBV_WC_SUCCESS));
        }
        drop(tell);
        peer.join().expect("the peer ends");
    }

    /// A bind with FENCE waits for the READs before it: its window, over what a READ brings, is
    /// not there before the data is.
    /// Rules: T1-60
    fn a_fenced_bind_waits_for_reads(link: Link) {
        let both = MemoryPair::pages(link);
        let (b, (qa, qb)) = (&both.pair.b, both.more());
        let mw = b.mw(IBV_MW_TYPE_1);
        both.near.write(0, &[0x77; 64]);
        hold_back(qb);
        let mut sges = [sge(both.far.addr(), 64, both.mb)];
        let (near, key) = (both.near.addr(), keys(both.ma).1);
        post(qb, &mut ibv_send_wr { wr_id: 20, ..op_wr(Op::Read, &mut sges, near, key) });
        let flags = IBV_SEND_FENCE | IBV_SEND_SIGNALED;
        assert_eq!(bind1(qb, mw, 21, flags, both.range(0, 64, REMOTE)), 0);
        both.all_refused(both.far.addr(), rkey(mw));
        both.near.write(0, &[0x78; 64]);
        release(qa, &both.pair.a);
        assert_eq!([0; 2].map(|_| b.expect(IBV_WC_SUCCESS).wr_id), [20, 21]);
        assert_eq!(both.far.read(0, 64), [0x78; 64]);
        both.allowed(Op::Read, both.far.addr(), 64, rkey(mw));
    }
}

/// A READ through a window and a fenced unbind of it behind, on one queue pair of one device: the
/// READ is served first.
/// Rules: T1-60
#[test]
fn a_fenced_unbind_comes_after_the_read_that_uses_the_window() {
    let both = MemoryPair::pages(Link::Loopback);
    // Both ends are in the window's domain, or the READ would be refused for that.
    let b = &both.pair.b;
    let (there, qb) = (b.qp(IBV_QPT_RC), b.qp(IBV_QPT_RC));
    connect(there, qb);
    for round in 0..50 {
        let (mw, key) = both.bound(IBV_MW_TYPE_1, both.range(64, 64, REMOTE));
        hold_back(qb);
        let mut sges = [sge(both.far.addr() + 4096, 64, both.mb)];
        let read = rdma_wr(IBV_WR_RDMA_READ, &mut sges, both.far.addr() + 64, key);
        post(qb, &mut ibv_send_wr { wr_id: 2 * round, ..read });
        let flags = IBV_SEND_FENCE | IBV_SEND_SIGNALED;
        assert_eq!(bind1(qb, mw, 2 * round + 1, flags, NOTHING), 0);
        release(there, b);
        let done = [0; 2].map(|_| b.expect(IBV_WC_SUCCESS).wr_id);
        assert_eq!(done, [2 * round, 2 * round + 1]);
        assert_eq!(dealloc_mw(mw), 0);
    }
}

//! ATOMIC WRITE: eight bytes in one step, by the right to write.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use transom_abi::*;
use transom_conformance::access::*;
use transom_conformance::extended_qp::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_conformance::queues::*;

/// An ATOMIC WRITE of these SGEs.
fn write_wr(sges: &mut [ibv_sge], addr: u64, key: u32) -> ibv_send_wr {
    rdma_wr(IBV_WR_ATOMIC_WRITE, sges, addr, key)
}

/// One on queue pairs of its own, of the origin's first eight bytes; how it completes. The target
/// changes only by success.
fn attempt(both: &MemoryPair, qps: Qps, addr: u64, key: u32) -> ibv_wc {
    let before = both.far.read(0, both.far.len());
    let mut sges = [sge(both.near.addr(), 8, both.ma)];
    post(qps.0, &mut write_wr(&mut sges, addr, key));
    let wc = both.pair.a.wait();
    both.pair.b.expect_nothing();
    let mut expected = before;
    if wc.status == IBV_WC_SUCCESS {
        let at = (addr - both.far.addr()) as usize;
        expected[at..at + 8].copy_from_slice(&both.near.read(0, 8));
    } else {
        assert_eq!((state(qps.0), state(qps.1)), (IBV_QPS_ERR, IBV_QPS_ERR));
    }
    assert!(both.far.read(0, both.far.len()) == expected, "{wc:?}");
    wc
}

/// The completion of one that is refused remotely, and the target's event.
fn refused(both: &MemoryPair, addr: u64, key: u32, status: ibv_wc_status) {
    let qps = both.more();
    assert_eq!(attempt(both, qps, addr, key).status, status);
    let event = match status {
        IBV_WC_REM_ACCESS_ERR => IBV_EVENT_QP_ACCESS_ERR,
        _ => IBV_EVENT_QP_REQ_ERR,
    };
    assert_eq!(both.pair.b.event(), (event, qps.1.cast()));
    end_qps(qps);
}

on_each_link! {
    /// The eight bytes arrive, from SGEs or inline, and the completion says what it was.
    /// Rules: PS-06
    fn eight_bytes_arrive(link: Link) {
        let both = MemoryPair::pages(link);
        let (qa, _) = both.qps();
        let key = keys(both.mb).1;
        for at in [0, 8, 4088, 8184] {
            both.near.set_word(0, 0x0102_0304_0506_0708 + at);
            let wc = attempt(&both, both.qps(), both.far.addr() + at, key);
            assert_eq!((wc.status, wc.wr_id, wc.opcode), (IBV_WC_SUCCESS, 1, IBV_WC_ATOMIC_WRITE));
        }
        let near = both.near.addr();
        let mut sges = [
            sge(near + 16, 3, both.ma),
            sge(near + 19, 0, both.ma),
            sge(near + 19, 5, both.ma),
        ];
        for inline in [0, IBV_SEND_INLINE] {
            both.near.set_word(16, 77 + u64::from(inline));
            let mut request = write_wr(&mut sges, both.far.addr() + 64, key);
            request.send_flags |= inline;
            post(qa, &mut request);
            both.pair.a.expect(IBV_WC_SUCCESS);
            assert_eq!(both.far.word(64), 77 + u64::from(inline));
        }
    }

    /// The right to write is needed, of the key and of the queue pair; that to atomics is not.
    /// Rules: RA-06, AT-15
    fn the_right_is_that_to_write(link: Link) {
        let both = MemoryPair::pages(link);
        let far = both.far.addr();
        let local = IBV_ACCESS_LOCAL_WRITE;
        for (access, allowed) in [
            (IBV_ACCESS_REMOTE_WRITE, true),
            (IBV_ACCESS_REMOTE_READ, false),
            (IBV_ACCESS_REMOTE_ATOMIC, false),
            (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC, false),
            (0, false),
        ] {
            let mr = both.pair.b.reg(&both.far, (local | access) as i32);
            if allowed {
                let wc = attempt(&both, both.qps(), far, keys(mr).1);
                assert_eq!(wc.status, IBV_WC_SUCCESS);
            } else {
                refused(&both, far, keys(mr).1, IBV_WC_REM_ACCESS_ERR);
            }
            let qps = (both.pair.a.qp(IBV_QPT_RC), both.pair.b.qp(IBV_QPT_RC));
            bring_up(qps.0, &usual_attr(qps.1));
            bring_up(qps.1, &ibv_qp_attr { qp_access_flags: access, ..usual_attr(qps.0) });
            let wc = attempt(&both, qps, far, keys(both.mb).1);
            let without = IBV_WC_REM_INV_REQ_ERR;
            assert_eq!(wc.status, if allowed { IBV_WC_SUCCESS } else { without }, "{access:#x}");
            if !allowed {
                assert_eq!(both.pair.b.event(), (IBV_EVENT_QP_REQ_ERR, qps.1.cast()));
            }
        }
    }

    /// The address is a multiple of eight, before any key is looked at.
    /// Rules: AT-01, AT-02, AT-16
    fn the_address_is_aligned(link: Link) {
        let both = MemoryPair::pages(link);
        let key = keys(both.mb).1;
        for off in 1..8 {
            refused(&both, both.far.addr() + off, key, IBV_WC_REM_INV_REQ_ERR);
        }
        refused(&both, both.far.addr() + 4, 0x1234_5678, IBV_WC_REM_INV_REQ_ERR);
    }

    /// Outside of the region, and with no key, it is refused.
    /// Rules: AT-12
    fn the_key_is_checked(link: Link) {
        let both = MemoryPair::pages(link);
        let key = keys(both.mb).1;
        for (addr, key) in [
            (both.far.addr() + 8192, key),
            (both.far.addr() - 8, key),
            (0, key),
            (!7, key),
            (both.far.addr(), 0x1234_5678),
            (both.far.addr(), keys(both.ma).0 ^ 1),
        ] {
            refused(&both, addr, key, IBV_WC_REM_ACCESS_ERR);
        }
    }

    /// A window grants it as it grants a WRITE.
    fn a_window_grants_it(link: Link) {
        let both = MemoryPair::pages(link);
        for kind in [IBV_MW_TYPE_1, IBV_MW_TYPE_2] {
            let (_, key) = both.bound(kind, both.range(64, 64, IBV_ACCESS_REMOTE_WRITE));
            for at in [64, 120] {
                let wc = attempt(&both, both.qps(), both.far.addr() + at, key);
                assert_eq!(wc.status, IBV_WC_SUCCESS);
            }
            if kind == IBV_MW_TYPE_1 {
                refused(&both, both.far.addr() + 56, key, IBV_WC_REM_ACCESS_ERR);
                refused(&both, both.far.addr() + 128, key, IBV_WC_REM_ACCESS_ERR);
            }
            let range = both.range(64, 64, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
            let (_, key) = both.bound(kind, range);
            let (qps, addr) = (both.qps(), both.far.addr() + 64);
            assert_eq!(attempt(&both, qps, addr, key).status, IBV_WC_REM_ACCESS_ERR);
            both.pair.b.event();
            both.reconnect(qps);
        }
    }

    /// Anything but eight bytes fails at the origin.
    /// Rules: AT-08, AT-17
    fn other_lengths_fail_at_the_origin(link: Link) {
        let both = MemoryPair::pages(link);
        let before = both.far.read(0, 64);
        for (length, flags) in
            [(0, 0), (1, 0), (4, 0), (7, 0), (9, 0), (16, 0), (4096, 0), (4, IBV_SEND_INLINE)]
        {
            let qps = both.more();
            let mut sges = [sge(both.near.addr(), length, both.ma)];
            let sges = if length == 0 { &mut [][..] } else { &mut sges };
            let mut request = write_wr(sges, both.far.addr(), keys(both.mb).1);
            request.send_flags |= flags;
            post(qps.0, &mut request);
            both.pair.a.expect(IBV_WC_LOC_LEN_ERR);
            assert_eq!((state(qps.0), state(qps.1)), (IBV_QPS_ERR, IBV_QPS_RTS));
            assert!(both.far.read(0, 64) == before && !both.pair.b.has_event());
        }
    }

    /// What it writes is read by the local key.
    /// Rules: LA-19
    fn the_local_key_is_checked(link: Link) {
        let both = MemoryPair::pages(link);
        let before = both.far.read(0, 64);
        for wrong in [
            ibv_sge { lkey: 0x1234_5678, ..sge(both.near.addr(), 8, both.ma) },
            sge(both.near.addr() + 8190, 8, both.ma),
        ] {
            let (qa, _) = both.more();
            post(qa, &mut write_wr(&mut [wrong], both.far.addr(), keys(both.mb).1));
            both.pair.a.expect(IBV_WC_LOC_PROT_ERR);
            assert!(both.far.read(0, 64) == before);
        }
    }

    /// With a fence it waits for the READs before it, and what is fenced behind it waits for it.
    /// Rules: ORD-10
    fn a_fence_waits_both_ways(link: Link) {
        const LENGTH: usize = 1 << 20;
        let both = MemoryPair::granting(link, LENGTH, ALL);
        let (qa, _) = both.qps();
        let (near, far, key) = (both.near.addr(), both.far.addr(), keys(both.mb).1);
        let last = LENGTH as u64 - 8;
        for round in 1..6 {
            both.far.fill(round);
            let mut all = [sge(near, LENGTH as u32, both.ma)];
            let mut end = [sge(near + last, 8, both.ma)];
            let mut start = [sge(near, 8, both.ma)];
            let read = rdma_wr(IBV_WR_RDMA_READ, &mut all, far, key);
            // What the READ brings last is what is written first; and is read back.
            let mut write = write_wr(&mut end, far + 64, key);
            both.far.set_word(LENGTH - 8, 1000 + u64::from(round));
            let mut back = rdma_wr(IBV_WR_RDMA_READ, &mut start, far + 64, key);
            write.send_flags |= IBV_SEND_FENCE;
            back.send_flags |= IBV_SEND_FENCE;
            assert_eq!(try_post_list(qa, &mut [read, write, back]), Ok(()));
            for opcode in [IBV_WC_RDMA_READ, IBV_WC_ATOMIC_WRITE, IBV_WC_RDMA_READ] {
                assert_eq!(both.pair.a.expect(IBV_WC_SUCCESS).opcode, opcode);
            }
            assert_eq!(both.far.word(64), 1000 + u64::from(round));
            assert_eq!(both.near.word(0), 1000 + u64::from(round));
        }
    }

    /// On UC it fails in its turn, and nothing is written.
    /// Rules: PS-06, AT-19
    fn unreliable_connections_have_none(link: Link) {
        let both = MemoryPair::pages(link);
        let (qa, qb) = both.pair.another(IBV_QPT_UC);
        let before = both.far.read(0, 64);
        let mut sges = [sge(both.near.addr(), 8, both.ma)];
        post(qa, &mut write_wr(&mut sges, both.far.addr(), keys(both.mb).1));
        both.pair.a.expect(IBV_WC_LOC_QP_OP_ERR);
        Follower::new(&both.pair.a, &both.pair.b).follow();
        assert!(both.far.read(0, 64) == before);
        assert_eq!((state(qa), state(qb)), (IBV_QPS_SQE, IBV_QPS_RTS));
    }

    /// Without resources to ask for answers it fails in its turn, as a READ does.
    /// Rules: RN-12, AT-19
    fn it_needs_read_resources(link: Link) {
        let both = MemoryPair::pages(link);
        let (qa, qb) = (both.pair.a.qp(IBV_QPT_RC), both.pair.b.qp(IBV_QPT_RC));
        bring_up(qa, &ibv_qp_attr { max_rd_atomic: 0, ..usual_attr(qb) });
        bring_up(qb, &usual_attr(qa));
        let mut sges = [sge(both.near.addr(), 8, both.ma)];
        post(qa, &mut write_wr(&mut sges, both.far.addr(), keys(both.mb).1));
        both.pair.a.expect(IBV_WC_LOC_QP_OP_ERR);
        assert!(!both.pair.b.has_event());
    }

    /// The eight bytes change in one step: who looks sees one value or another, never a part of
    /// each; and an atomic in between is not lost.
    /// Rules: AT-09, AT-18
    fn nobody_sees_half_of_it(link: Link) {
        const ROUNDS: u64 = 2_000;
        let both = MemoryPair::pages(link);
        let key = keys(both.mb).1;
        both.far.set_word(0, 0);
        let done = AtomicBool::new(false);
        // SAFETY: aligned memory of the test, which others change in one step.
        let word = unsafe { &*(both.far.addr() as *const AtomicU64) };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _over = Over(&done);
                while !done.load(Acquire) {
                    let seen = word.load(Relaxed);
                    let byte = seen & 0xff;
                    let whole = byte * 0x0101_0101_0101_0101;
                    assert_eq!(seen, whole, "half of one and half of another");
                }
            });
            let _over = Over(&done);
            for round in 0..ROUNDS {
                both.near.set_word(0, (round & 0xff) * 0x0101_0101_0101_0101);
                let mut sges = [sge(both.near.addr(), 8, both.ma)];
                post(both.pair.qa, &mut write_wr(&mut sges, both.far.addr(), key));
                assert_eq!(both.pair.a.wait().status, IBV_WC_SUCCESS);
            }
        });
    }
}

/// Built call by call it is the same; only RC and XRC can be created for it.
/// Rules: PS-06
#[test]
fn only_reliable_queue_pairs_build_it() {
    let both = MemoryPair::pages(Link::Loopback);
    let (a, b) = (&both.pair.a, &both.pair.b);
    for kind in [IBV_QPT_UC, IBV_QPT_UD] {
        let mut init = init_ex(a, kind, IBV_QP_EX_WITH_ATOMIC_WRITE);
        assert_eq!(try_qp_ex(a, &mut init), Err(libc::EOPNOTSUPP));
    }
    let (qa, qb) = (qp_ex(a, IBV_QPT_RC, IBV_QP_EX_WITH_ATOMIC_WRITE), b.qp(IBV_QPT_RC));
    connect(qa, qb);
    let (word, key) = (0x1122_3344_5566_7788_u64, keys(both.mb).1);
    let build = Builder::of(qa);
    let write = |addr| {
        let pointer = (&raw const word).cast();
        build.batch(|build| build.signaled(4).atomic_write(key, addr, pointer))
    };
    assert_eq!(write(both.far.addr() + 8), 0);
    let wc = a.expect(IBV_WC_SUCCESS);
    assert_eq!((wc.wr_id, wc.opcode, both.far.word(8)), (4, IBV_WC_ATOMIC_WRITE, word));
    assert_eq!(write(both.far.addr() + 4), 0);
    a.expect(IBV_WC_REM_INV_REQ_ERR);
}

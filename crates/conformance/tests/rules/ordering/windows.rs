//! Binds and invalidations among other work: what they wait for, and what waits for them (rules F).
//!
//! What has to wait is made to wait by a SEND without a receive, as in `requests.rs`; there are no
//! races here, those are in `stress.rs`.

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;

/// Long enough for many segments over every link.
const LONG: u32 = 1 << 20;

/// Posts a SEND of nothing, which waits for a receive.
fn stall(qp: *mut ibv_qp) {
    post(qp, &mut wr(IBV_WR_SEND));
}

/// A type 2 window of all of the target's buffer, bound by `qb`.
fn window(both: &MemoryPair, qb: *mut ibv_qp) -> u32 {
    let (addr, length) = (both.far.addr(), both.far.len() as u64);
    let range = Range { mr: both.mb, addr, length, access: REMOTE };
    bind(&both.pair.b, qb, both.pair.b.mw(IBV_MW_TYPE_2), range)
}

on_each_link! {
    /// A fenced bind waits for the READ before it: while the READ gets no answer, the window is not
    /// bound. Without the fence it may go first or wait.
    /// Rules: ORD-13
    fn a_fenced_bind_waits_for_reads(link: Link) {
        for fence in [IBV_SEND_FENCE, 0] {
            let both = MemoryPair::new(link, 4096);
            let b = &both.pair.b;
            // The binder READs from a queue pair that is not ready, and has a long timeout.
            let (qa, qb) = (both.pair.a.qp(IBV_QPT_RC), b.qp(IBV_QPT_RC));
            bring_up(qb, &ibv_qp_attr { timeout: 15, retry_cnt: 7, ..usual_attr(qa) });
            let mut sges = [sge(both.far.addr(), 8, both.mb)];
            let (remote, key) = (both.near.addr(), keys(both.ma).1);
            post(qb, &mut rdma_wr(IBV_WR_RDMA_READ, &mut sges, remote, key));
            let mw = b.mw(IBV_MW_TYPE_1);
            let range =
                Range { mr: both.mb, addr: both.far.addr(), length: 64, access: REMOTE };
            assert_eq!(bind1(qb, mw, 2, IBV_SEND_SIGNALED | fence, range), 0);
            if fence != 0 {
                let (witness, _) = both.pair.another(IBV_QPT_RC);
                let wc = both.op_on(witness, IBV_WR_RDMA_READ, both.far.addr(), rkey(mw), 8);
                assert_eq!(wc.status, IBV_WC_REM_ACCESS_ERR);
            }
            bring_up(qa, &usual_attr(qb));
            for opcode in [IBV_WC_RDMA_READ, IBV_WC_BIND_MW] {
                assert_eq!(b.expect(IBV_WC_SUCCESS).opcode, opcode);
            }
            let (witness, _) = both.pair.another(IBV_QPT_RC);
            let wc = both.op_on(witness, IBV_WR_RDMA_READ, both.far.addr(), rkey(mw), 8);
            assert_eq!(wc.status, IBV_WC_SUCCESS);
        }
    }

    /// When the message after a LOCAL_INV arrives, the key is dead.
    /// Rules: ORD-15
    fn a_local_invalidate_is_done_before_the_next_send(link: Link) {
        let both = MemoryPair::new(link, 4096);
        for round in 0..20 {
            let (qa, qb) = both.pair.another(IBV_QPT_RC);
            let key = window(&both, qb);
            let wc = both.op_on(qa, IBV_WR_RDMA_READ, both.far.addr(), key, 8);
            assert_eq!(wc.status, IBV_WC_SUCCESS);
            recv(qa, 6, &mut []);
            post(qb, &mut ibv_send_wr { send_flags: 0, ..local_inv_wr(key) });
            stall(qb);
            assert_eq!(both.pair.a.expect(IBV_WC_SUCCESS).wr_id, 6);
            let (_, before) = both.bytes();
            let opcode = if round % 2 == 0 { IBV_WR_RDMA_WRITE } else { IBV_WR_RDMA_READ };
            let wc = both.op_on(qa, opcode, both.far.addr(), key, 8);
            assert_eq!(wc.status, IBV_WC_REM_ACCESS_ERR, "round {round}");
            assert!(both.bytes().1 == before);
            both.pair.b.expect(IBV_WC_SUCCESS);
        }
    }

    /// A LOCAL_INV, fenced or not, waits for everything before it in its queue: until then, the key
    /// serves the peer.
    /// Rules: ORD-16
    fn a_local_invalidate_waits_for_what_came_before(link: Link) {
        let both = MemoryPair::new(link, 4096);
        for flags in [IBV_SEND_FENCE, 0] {
            let (qa, qb) = both.pair.another(IBV_QPT_RC);
            let key = window(&both, qb);
            stall(qb);
            let mut wr = local_inv_wr(key);
            wr.send_flags |= flags;
            post(qb, &mut wr);
            for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD] {
                let wc = both.op_on(qa, opcode, both.far.addr(), key, 8);
                assert_eq!(wc.status, IBV_WC_SUCCESS, "{opcode}");
            }
            both.pair.b.expect_nothing();
            recv(qa, 6, &mut []);
            for opcode in [IBV_WC_SEND, IBV_WC_LOCAL_INV] {
                assert_eq!(both.pair.b.expect(IBV_WC_SUCCESS).opcode, opcode);
            }
            assert_eq!(both.pair.a.expect(IBV_WC_SUCCESS).wr_id, 6);
            let wc = both.op_on(qa, IBV_WR_RDMA_READ, both.far.addr(), key, 8);
            assert_eq!(wc.status, IBV_WC_REM_ACCESS_ERR);
        }
    }

    /// What the origin asked for before its SEND_WITH_INV is done before the window goes: a WRITE
    /// has arrived, a long READ has its data, an atomic its answer.
    /// Rules: ORD-18, ORD-19
    fn a_remote_invalidate_waits_for_what_came_before(link: Link) {
        let both = MemoryPair::new(link, LONG as usize);
        let (qa, qb) = (both.pair.qa, both.pair.qb);
        for round in 0..12_u8 {
            for (opcode, length) in [
                (IBV_WR_RDMA_WRITE, LONG),
                (IBV_WR_RDMA_READ, LONG),
                (IBV_WR_ATOMIC_FETCH_AND_ADD, 8),
            ] {
                let key = window(&both, qb);
                // Straight after each other, or both held up and then let go together.
                if round % 2 == 0 {
                    stall(qa);
                }
                both.post_op(qa, opcode, both.far.addr(), key, length);
                let mut wr = wr(IBV_WR_SEND_WITH_INV);
                wr.imm.invalidate_rkey = key;
                post(qa, &mut wr);
                let messages = if round % 2 == 0 { 2 } else { 1 };
                for _ in 0..messages {
                    recv(qb, 1, &mut []);
                }
                for _ in 0..messages + 1 {
                    both.pair.a.expect(IBV_WC_SUCCESS);
                }
                for last in (0..messages).rev() {
                    let wc = both.pair.b.expect(IBV_WC_SUCCESS);
                    let expected = if last == 0 { IBV_WC_WITH_INV } else { 0 };
                    assert_eq!(wc.wc_flags, expected);
                }
                if opcode != IBV_WR_ATOMIC_FETCH_AND_ADD {
                    let (near, far) = both.bytes();
                    assert!(near == far);
                    both.near.write(0, &[round; 4096]);
                }
            }
        }
    }

    /// What the origin asks for after its SEND_WITH_INV finds the window gone, even if all of it
    /// was posted before any of it could start.
    /// Rules: ORD-20
    fn after_a_remote_invalidate_the_window_is_gone(link: Link) {
        let both = MemoryPair::new(link, 4096);
        for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD] {
            let (qa, qb) = both.pair.another(IBV_QPT_RC);
            let key = window(&both, qb);
            let before = both.bytes();
            let mut wr = wr(IBV_WR_SEND_WITH_INV);
            wr.imm.invalidate_rkey = key;
            post(qa, &mut wr);
            both.post_op(qa, opcode, both.far.addr(), key, 8);
            recv(qb, 1, &mut []);
            assert_eq!(both.pair.a.expect(IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
            both.pair.a.expect(IBV_WC_REM_ACCESS_ERR);
            assert_eq!(both.pair.b.expect(IBV_WC_SUCCESS).wc_flags, IBV_WC_WITH_INV);
            assert!(both.bytes() == before);
        }
    }

    /// A type 2 bind that fails takes the queue pair down that should have owned the window, so
    /// whatever the peer asks of it then fails, and no byte moves.
    /// Rules: ORD-22
    fn a_failed_bind_fails_the_peers_requests(link: Link) {
        let both = MemoryPair::new(link, 4096);
        let b = &both.pair.b;
        for opcode in [IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE] {
            let (qa, qb) = both.pair.another_with(|origin| origin.retry_cnt = 1, |_| {});
            let key = window(&both, qb);
            let mw = b.mw(IBV_MW_TYPE_2);
            // One byte longer than the region.
            let range = Range {
                mr: both.mb,
                addr: both.far.addr(),
                length: both.far.len() as u64 + 1,
                access: REMOTE,
            };
            let before = both.bytes();
            // The peer's request waits behind a SEND that the target cannot take yet.
            stall(qa);
            both.post_op(qa, opcode, both.far.addr(), key, 8);
            post(qb, &mut bind2_wr(mw, rkey(mw).wrapping_add(1), range));
            b.expect(IBV_WC_MW_BIND_ERR);
            assert_eq!(state(qb), IBV_QPS_ERR);
            let failed = [IBV_WC_REM_ACCESS_ERR, IBV_WC_RETRY_EXC_ERR];
            let wc = both.pair.a.wait();
            assert!(failed.contains(&wc.status), "{wc:?}");
            both.pair.a.expect(IBV_WC_WR_FLUSH_ERR);

            // Posted afterwards, by an origin that has not noticed.
            let (qa, qb) = both.pair.another_with(|origin| origin.retry_cnt = 1, |_| {});
            post(qb, &mut bind2_wr(mw, rkey(mw).wrapping_add(1), range));
            b.expect(IBV_WC_MW_BIND_ERR);
            for key in [rkey(mw), both.key()] {
                let wc = both.op_on(qa, opcode, both.far.addr(), key, 8);
                let flushed = key == both.key() && wc.status == IBV_WC_WR_FLUSH_ERR;
                assert!(failed.contains(&wc.status) || flushed, "{wc:?}");
            }
            assert!(both.bytes() == before);
        }
    }
}

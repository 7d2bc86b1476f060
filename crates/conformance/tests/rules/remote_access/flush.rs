//! FLUSH: what was written to a remote range can be seen there, if the region and the queue pair let
//! the peer ask.

use transom_abi::*;
use transom_conformance::extended_qp::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;

const GLOBAL: u8 = 1;
const PERSISTENT: u8 = 2;
const OPERATIONS: u32 = IBV_QP_EX_WITH_FLUSH | IBV_QP_EX_WITH_RDMA_WRITE;
/// What completions of FLUSH are called by headers after that of rdma-core 44.
const WC_FLUSH: u32 = 8;

/// Connected queue pairs whose target grants these rights beside the usual ones.
fn connected(pair: &Pair, rights: u32) -> Builder {
    let qa = qp_ex(&pair.a, IBV_QPT_RC, OPERATIONS);
    let qb = qp_ex(&pair.b, IBV_QPT_RC, OPERATIONS);
    bring_up(qa, &usual_attr(qb));
    let usual = usual_attr(qa);
    bring_up(qb, &ibv_qp_attr { qp_access_flags: usual.qp_access_flags | rights, ..usual });
    Builder::of(qa)
}

on_each_link! {
    /// A FLUSH after a WRITE completes after it, for a range or the whole region.
    /// Rules: FL-04, FL-07, FL-08
    fn a_flush_follows_what_was_written(link: Link) {
        let pair = Pair::unconnected(link, IBV_QPT_RC);
        let (near, far) = (Buffer::new(4096), Buffer::new(4096));
        let near_mr = pair.a.reg(&near, ALL);
        let far_mr = pair.b.reg(&far, ALL | IBV_ACCESS_FLUSH_GLOBAL as i32);
        let (key, at) = (keys(far_mr).1, far.addr());
        let build = connected(&pair, IBV_ACCESS_FLUSH_GLOBAL);
        near.write(0, b"seen");
        let code = build.batch(|build| {
            build.signaled(1).rdma_write(key, at + 8);
            build.sge(sge(near.addr(), 4, near_mr));
            build.signaled(2).flush(key, at + 8, 4, GLOBAL, IBV_FLUSH_RANGE);
            build.signaled(3).flush(key, 0, 0, GLOBAL, IBV_FLUSH_MR);
        });
        assert_eq!(code, 0);
        assert_eq!(pair.a.expect(IBV_WC_SUCCESS).wr_id, 1);
        for wr_id in [2, 3] {
            let wc = pair.a.expect(IBV_WC_SUCCESS);
            assert_eq!((wc.wr_id, wc.opcode), (wr_id, WC_FLUSH));
        }
        assert_eq!(far.read(8, 4), b"seen");
    }

    /// Region and queue pair must both grant it, the range must be the region's, and nobody is
    /// promised that memory survives a loss of power, by whatever key.
    /// Rules: FL-01, FL-02, FL-03, FL-04, FL-05
    fn a_flush_needs_its_rights(link: Link) {
        let pair = Pair::unconnected(link, IBV_QPT_RC);
        let far = Buffer::new(4096);
        let granting = pair.b.reg(&far, ALL | IBV_ACCESS_FLUSH_GLOBAL as i32);
        let plain = pair.b.reg(&far, ALL);
        let flush_key = |rights, key, at, length, kind| {
            let build = connected(&pair, rights);
            let code = build.batch(|build| {
                build.signaled(1).flush(key, at, length, kind, IBV_FLUSH_RANGE);
            });
            assert_eq!(code, 0);
            pair.a.wait().status
        };
        let flush = |rights, mr, at, kind| flush_key(rights, keys(mr).1, at, 16, kind);
        let (global, at) = (IBV_ACCESS_FLUSH_GLOBAL, far.addr());
        assert_eq!(flush(global, granting, at, GLOBAL), IBV_WC_SUCCESS);
        assert_eq!(flush(global, plain, at, GLOBAL), IBV_WC_REM_ACCESS_ERR);
        assert_eq!(flush(global, granting, at + 4090, GLOBAL), IBV_WC_REM_ACCESS_ERR);
        assert_eq!(flush(0, granting, at, GLOBAL), IBV_WC_REM_INV_REQ_ERR);
        for kind in [PERSISTENT, GLOBAL | PERSISTENT] {
            assert_eq!(flush(global, granting, at, kind), IBV_WC_REM_ACCESS_ERR);
            assert_eq!(flush(0, granting, at, kind), IBV_WC_REM_INV_REQ_ERR);
        }
        let junk = 0x1234_5678;
        for length in [0, 16] {
            assert_eq!(flush_key(global, junk, at, length, GLOBAL), IBV_WC_REM_ACCESS_ERR);
            assert_eq!(flush_key(0, junk, at, length, GLOBAL), IBV_WC_REM_INV_REQ_ERR);
        }
    }
}

/// What no FLUSH can mean fails its batch.
/// Rules: FL-09, FL-10
#[test]
fn senseless_flushes_are_refused() {
    let pair = Pair::unconnected(Link::Loopback, IBV_QPT_RC);
    let build = connected(&pair, IBV_ACCESS_FLUSH_GLOBAL);
    for (length, kind, level) in
        [(1, 0, IBV_FLUSH_RANGE), (1, 4, IBV_FLUSH_RANGE), (1, GLOBAL, 2), (1 << 32, GLOBAL, 0)]
    {
        let code = build.batch(|build| build.signaled(1).flush(1, 0, length, kind, level));
        assert_eq!(code, libc::EINVAL, "{length} {kind} {level}");
    }
    pair.a.expect_nothing();
    let uc = try_qp_ex(&pair.a, &mut init_ex(&pair.a, IBV_QPT_UC, IBV_QP_EX_WITH_FLUSH));
    assert_eq!(uc, Err(libc::EOPNOTSUPP));
}

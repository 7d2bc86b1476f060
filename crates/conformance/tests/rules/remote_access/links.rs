//! The three links carry the same operations: a first look at each.

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;
use transom_device::protection::Reason;

on_each_link! {
    /// A SEND reaches a posted receive, whatever its length.
    /// Rules: LA-01, LA-03
    fn send_arrives(link: Link) {
        let pair = Pair::rc(link);
        for length in [1, 8, 4096, 100_000, 1 << 20] {
            let (from, to) = (Buffer::filled(length, 3), Buffer::new(length));
            let (ma, mb) = (pair.a.reg(&from, 0), pair.b.reg(&to, IBV_ACCESS_LOCAL_WRITE as i32));
            recv(pair.qb, 9, &mut [sge(to.addr(), length as u32, mb)]);
            let mut sges = [sge(from.addr(), length as u32, ma)];
            post(pair.qa, &mut with_sges(wr(IBV_WR_SEND), &mut sges));
            let wc = until("the receive", || {
                assert!(poll(pair.a.cq).is_none_or(|wc| wc.status == IBV_WC_SUCCESS));
                poll(pair.b.cq)
            });
            assert_eq!((wc.status, wc.wr_id, wc.byte_len), (IBV_WC_SUCCESS, 9, length as u32));
            assert!(to.read(0, length) == from.read(0, length));
        }
    }

    /// WRITE and READ move bytes without the target doing anything.
    fn write_and_read(link: Link) {
        let pair = Pair::rc(link);
        let (near, far) = (Buffer::filled(1 << 20, 5), Buffer::new(1 << 20));
        let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
        for length in [1, 8, 5000, 1 << 20] {
            let mut sges = [sge(near.addr(), length, ma)];
            post(pair.qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, far.addr(), keys(mb).1));
            assert_eq!(wait_both(&pair).status, IBV_WC_SUCCESS);
            assert!(far.read(0, length as usize) == near.read(0, length as usize));
        }
        far.write(100, b"from the other side");
        let mut sges = [sge(near.addr(), 19, ma)];
        post(pair.qa, &mut rdma_wr(IBV_WR_RDMA_READ, &mut sges, far.addr() + 100, keys(mb).1));
        let wc = wait_both(&pair);
        assert_eq!((wc.status, wc.byte_len), (IBV_WC_SUCCESS, 19));
        assert_eq!(near.read(0, 19), b"from the other side");
    }

    /// A window grants its range, and nothing once it is invalidated.
    fn window_lives_and_dies(link: Link) {
        let pair = Pair::rc(link);
        let (near, far) = (Buffer::new(4096), Buffer::filled(8192, 1));
        let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
        let mw = pair.b.mw(IBV_MW_TYPE_2);
        let range = Range { mr: mb, addr: far.addr() + 100, length: 64, access: REMOTE };
        let key = bind(&pair.b, pair.qb, mw, range);
        let mut sges = [sge(near.addr(), 64, ma)];
        post(pair.qa, &mut rdma_wr(IBV_WR_RDMA_READ, &mut sges, far.addr() + 100, key));
        assert_eq!(wait_both(&pair).status, IBV_WC_SUCCESS);
        assert_eq!(near.read(0, 64), far.read(100, 64));
        post(pair.qb, &mut local_inv_wr(key));
        assert_eq!(pair.b.expect(IBV_WC_SUCCESS).opcode, IBV_WC_LOCAL_INV);
        post(pair.qa, &mut rdma_wr(IBV_WR_RDMA_READ, &mut sges, far.addr() + 100, key));
        let wc = wait_both(&pair);
        assert_eq!(wc.status, IBV_WC_REM_ACCESS_ERR);
        // The origin, too, is told why, if not by a packet, which has no room for it.
        let told = if link == Link::Wire { 0 } else { Reason::FreeWindow.code() };
        assert_eq!(wc.vendor_err, u32::from(told));
        assert_eq!((state(pair.qa), state(pair.qb)), (IBV_QPS_ERR, IBV_QPS_ERR));
        assert_eq!(pair.b.event().0, IBV_EVENT_QP_ACCESS_ERR);
    }
}

/// The origin's next completion; the target's end is polled too, as a busy program would.
fn wait_both(pair: &Pair) -> ibv_wc {
    until("a completion", || {
        assert!(poll(pair.b.cq).is_none());
        poll(pair.a.cq)
    })
}

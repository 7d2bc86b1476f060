//! What is special about unreliable connected queue pairs (rules G.7, UC).

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;

on_each_link! {
    /// A SEND without a receive is dropped: the origin does not learn of it, the target goes on.
    /// Rules: UC-03
    fn a_send_without_a_receive_is_dropped(link: Link) {
        let pair = Pair::new(link, IBV_QPT_UC);
        let (from, to) = (Buffer::filled(64, 1), Buffer::new(64));
        let (ma, mb) = (pair.a.reg(&from, 0), pair.b.reg(&to, ALL));
        let mut lost = [sge(from.addr(), 8, ma)];
        post(pair.qa, &mut with_sges(wr(IBV_WR_SEND), &mut lost));
        pair.a.expect(IBV_WC_SUCCESS);
        // The lost one has been judged when this WRITE, which comes after it, has landed.
        let mut marker = [sge(from.addr() + 63, 1, ma)];
        let place = to.addr() + 63;
        post(pair.qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut marker, place, keys(mb).1));
        pair.a.expect(IBV_WC_SUCCESS);
        until("the marker", || (to.read(63, 1) == from.read(63, 1)).then_some(()));
        pair.b.expect_nothing();
        recv(pair.qb, 5, &mut [sge(to.addr(), 32, mb)]);
        let mut received = [sge(from.addr() + 8, 8, ma)];
        post(pair.qa, &mut with_sges(wr(IBV_WR_SEND), &mut received));
        pair.a.expect(IBV_WC_SUCCESS);
        let wc = pair.b.expect(IBV_WC_SUCCESS);
        assert_eq!((wc.wr_id, wc.byte_len), (5, 8));
        assert_eq!(to.read(0, 8), from.read(8, 8));
        assert_eq!((state(pair.qa), state(pair.qb)), (IBV_QPS_RTS, IBV_QPS_RTS));
    }

    /// A window bound on a UC queue pair lets the peer's UC WRITEs in, and nobody's once it is
    /// invalidated.
    /// Rules: UC-04, INV-19
    fn windows_are_bound_and_used_on_uc(link: Link) {
        for kind in [IBV_MW_TYPE_1, IBV_MW_TYPE_2] {
            let pair = Pair::new(link, IBV_QPT_UC);
            let (from, to) = (Buffer::filled(64, 9), Buffer::new(64));
            let (ma, mb) = (pair.a.reg(&from, 0), pair.b.reg(&to, ALL));
            let mw = pair.b.mw(kind);
            let access = IBV_ACCESS_REMOTE_WRITE;
            let range = Range { mr: mb, addr: to.addr(), length: 32, access };
            let key = bind(&pair.b, pair.qb, mw, range);
            let mut sges = [sge(from.addr(), 32, ma)];
            post(pair.qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut sges, to.addr(), key));
            pair.a.expect(IBV_WC_SUCCESS);
            until("the data", || (to.read(0, 32) == from.read(0, 32)).then_some(()));
            if kind == IBV_MW_TYPE_1 {
                let nothing = Range { mr: std::ptr::null_mut(), addr: 0, length: 0, access: 0 };
                bind(&pair.b, pair.qb, mw, nothing);
            } else {
                post(pair.qb, &mut local_inv_wr(key));
                assert_eq!(pair.b.expect(IBV_WC_SUCCESS).opcode, IBV_WC_LOCAL_INV);
            }
            let mut stale = [sge(from.addr() + 32, 16, ma)];
            post(pair.qa, &mut rdma_wr(IBV_WR_RDMA_WRITE, &mut stale, to.addr(), key));
            pair.a.expect(IBV_WC_SUCCESS);
            // Judged in order: when the SEND behind it has arrived, the WRITE has been refused.
            recv(pair.qb, 6, &mut []);
            post(pair.qa, &mut wr(IBV_WR_SEND));
            pair.b.expect(IBV_WC_SUCCESS);
            assert_eq!(to.read(0, 32), from.read(0, 32), "a stale key wrote");
            assert_eq!(state(pair.qb), IBV_QPS_RTS);
        }
    }
}

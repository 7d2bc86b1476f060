//! Local pieces: how each L_Key is judged, when, and what a bad one brings about (rules A.4).

use std::ffi::c_int;

use transom_abi::*;
use transom_conformance::harness::*;
use transom_conformance::on_each_link;

const LOCAL_WRITE: c_int = IBV_ACCESS_LOCAL_WRITE as c_int;
const REMOTE_READ: c_int = IBV_ACCESS_REMOTE_READ as c_int;
const MW_BIND: c_int = IBV_ACCESS_MW_BIND as c_int;

const WELL: (ibv_wc_status, ibv_wc_status) = (IBV_WC_SUCCESS, IBV_WC_SUCCESS);
/// What each end sees of a message whose receive may not be written.
const NO_PLACE: (ibv_wc_status, ibv_wc_status) = (IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);
/// A key of nothing: index zero is as likely as any, the byte is wrong then.
const JUNK: u32 = 0xdead_beef;

/// A pair with a page of all rights at each end.
struct Bench {
    pair: Pair,
    near: Buffer,
    ma: *mut ibv_mr,
    far: Buffer,
    mb: *mut ibv_mr,
}

impl Bench {
    fn new(link: Link) -> Self {
        let pair = Pair::rc(link);
        let (near, far) = (Buffer::filled(4096, 3), Buffer::filled(4096, 99));
        let (ma, mb) = (pair.a.reg(&near, ALL), pair.b.reg(&far, ALL));
        Self { pair, near, ma, far, mb }
    }

    fn good_near(&self, length: u32) -> ibv_sge {
        sge(self.near.addr(), length, self.ma)
    }

    fn good_far(&self, length: u32) -> ibv_sge {
        sge(self.far.addr(), length, self.mb)
    }

    /// A request with these local pieces to the start of the target's page.
    fn request(&self, opcode: ibv_wr_opcode, sges: &mut [ibv_sge]) -> ibv_wc_status {
        self.request_with(opcode, sges, keys(self.mb).1)
    }

    fn request_with(
        &self,
        opcode: ibv_wr_opcode,
        sges: &mut [ibv_sge],
        rkey: u32,
    ) -> ibv_wc_status {
        let (_, qb) = self.pair.another(IBV_QPT_RC);
        self.on(qb, opcode, sges, rkey).0
    }

    /// The same on queue pairs that are known; the status and both states afterwards.
    fn on(
        &self,
        qb: *mut ibv_qp,
        opcode: ibv_wr_opcode,
        sges: &mut [ibv_sge],
        rkey: u32,
    ) -> (ibv_wc_status, ibv_qp_state, ibv_qp_state) {
        let qa = self.pair.a.qp(IBV_QPT_RC);
        connect_anew(qa, qb);
        let addr = self.far.addr();
        let mut wr = match opcode {
            IBV_WR_ATOMIC_FETCH_AND_ADD => atomic_wr(opcode, sges, addr, rkey, 1, 0),
            IBV_WR_ATOMIC_CMP_AND_SWP => {
                atomic_wr(opcode, sges, addr, rkey, self.far.word(0), self.far.word(0) + 1)
            }
            _ => rdma_wr(opcode, sges, addr, rkey),
        };
        post(qa, &mut wr);
        let status = self.pair.a.wait().status;
        (status, state(qa), state(qb))
    }
}

//! Helpers for the tests of XRC: domains, shared receive queues in them, and both ends of a connection.

use std::ffi::c_int;
use std::ptr::null_mut;

use transom_abi::*;

use crate::extended::verbs;
use crate::harness::*;
use crate::queues::*;

/// Opens the domain of a file, or a private domain for -1. The error is the errno.
pub fn try_xrcd(context: *mut ibv_context, fd: c_int, oflags: c_int) -> Result<*mut ibv_xrcd, i32> {
    let comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    let mut init = ibv_xrcd_init_attr { comp_mask, fd, oflags };
    // SAFETY: an open context.
    let xrcd = unsafe { verbs(context).open_xrcd.expect("never null")(context, &mut init) };
    if xrcd.is_null() { Err(errno()) } else { Ok(xrcd) }
}

/// A private domain.
pub fn xrcd(context: *mut ibv_context) -> *mut ibv_xrcd {
    try_xrcd(context, -1, libc::O_CREAT).expect("an XRC domain")
}

/// Closes a domain. Returns zero or an errno.
pub fn close_xrcd(context: *mut ibv_context, xrcd: *mut ibv_xrcd) -> c_int {
    // SAFETY: null or a domain of this test; its struct stays readable.
    unsafe { verbs(context).close_xrcd.expect("never null")(xrcd) }
}

/// The creation attributes of a shared receive queue for XRC.
pub fn xrc_srq_init(pd: *mut ibv_pd, xrcd: *mut ibv_xrcd, cq: *mut ibv_cq) -> ibv_srq_init_attr_ex {
    ibv_srq_init_attr_ex {
        attr: ibv_srq_attr { max_wr: 64, max_sge: 4, srq_limit: 0 },
        comp_mask: IBV_SRQ_INIT_ATTR_TYPE
            | IBV_SRQ_INIT_ATTR_PD
            | IBV_SRQ_INIT_ATTR_XRCD
            | IBV_SRQ_INIT_ATTR_CQ,
        srq_type: IBV_SRQT_XRC,
        pd,
        xrcd,
        cq,
        ..ibv_srq_init_attr_ex::default()
    }
}

/// Makes a shared receive queue with extended attributes. The error is the errno.
pub fn try_srq_ex(
    context: *mut ibv_context,
    init: &ibv_srq_init_attr_ex,
) -> Result<*mut ibv_srq, i32> {
    let mut init = *init;
    // SAFETY: an open context. The objects are null or of this test.
    let srq = unsafe { verbs(context).create_srq_ex.expect("never null")(context, &mut init) };
    if srq.is_null() { Err(errno()) } else { Ok(srq) }
}

/// The number that messages name a shared receive queue by. The error is the errno.
pub fn try_srq_number(srq: *mut ibv_srq) -> Result<u32, c_int> {
    let mut number = 0;
    // SAFETY: a queue of this test; its struct stays readable.
    let code = unsafe { verbs((*srq).context).get_srq_num.expect("set")(srq, &mut number) };
    if code == 0 { Ok(number) } else { Err(code) }
}

/// The number that messages name a shared receive queue by.
pub fn srq_number(srq: *mut ibv_srq) -> u32 {
    try_srq_number(srq).expect("an XRC queue")
}

/// The receiving end of a connection, in RESET. The error is the errno.
pub fn try_xrc_target(context: *mut ibv_context, xrcd: *mut ibv_xrcd) -> Result<*mut ibv_qp, i32> {
    let mut init = ibv_qp_init_attr_ex {
        qp_type: IBV_QPT_XRC_RECV,
        comp_mask: IBV_QP_INIT_ATTR_XRCD,
        xrcd,
        ..ibv_qp_init_attr_ex::default()
    };
    // SAFETY: an open context. The domain is null or of this test.
    let qp = unsafe { verbs(context).create_qp_ex.expect("never null")(context, &mut init) };
    if qp.is_null() { Err(errno()) } else { Ok(qp) }
}

/// The receiving end of a connection, in RESET.
pub fn xrc_target(context: *mut ibv_context, xrcd: *mut ibv_xrcd) -> *mut ibv_qp {
    try_xrc_target(context, xrcd).expect("a receiving end")
}

/// Opens the receiving end with this number once more. The error is the errno.
pub fn try_open_qp(
    context: *mut ibv_context,
    xrcd: *mut ibv_xrcd,
    qp_num: u32,
) -> Result<*mut ibv_qp, i32> {
    let mut attr = ibv_qp_open_attr {
        comp_mask: IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
        qp_num,
        xrcd,
        qp_type: IBV_QPT_XRC_RECV,
        ..ibv_qp_open_attr::default()
    };
    // SAFETY: an open context. The domain is null or of this test.
    let qp = unsafe { verbs(context).open_qp.expect("never null")(context, &mut attr) };
    if qp.is_null() { Err(errno()) } else { Ok(qp) }
}

/// Sets the shared receive queue that a work request names.
pub fn naming(mut wr: ibv_send_wr, srqn: u32) -> ibv_send_wr {
    wr.qp_type.xrc.remote_srqn = srqn;
    wr
}

/// An XRC connection: `qa` sends, `qb` receives into the shared queues of one domain.
pub struct Xrc {
    /// The ends and both queue pairs.
    pub pair: Pair,
    /// The target's XRC domain.
    pub xrcd: *mut ibv_xrcd,
    /// A shared receive queue in it. It completes into the target's queue.
    pub srq: *mut ibv_srq,
    /// The origin's buffer.
    pub near: Buffer,
    /// The target's buffer.
    pub far: Buffer,
    /// The region over all of `near`.
    pub ma: *mut ibv_mr,
    /// The region over all of `far`, in the domain of `srq`.
    pub mb: *mut ibv_mr,
}

impl Xrc {
    /// Two ends over a link.
    pub fn new(link: Link, length: usize) -> Self {
        let (a, b) = ends(link, Default::default());
        let xrcd = xrcd(b.context);
        let srq = try_srq_ex(b.context, &xrc_srq_init(b.pd, xrcd, b.cq)).expect("a queue");
        let (qa, qb) = (a.qp(IBV_QPT_XRC_SEND), xrc_target(b.context, xrcd));
        connect(qa, qb);
        let (near, far) = (Buffer::filled(length, 3), Buffer::filled(length, 101));
        let (ma, mb) = (a.reg(&near, ALL), b.reg(&far, ALL));
        Self { pair: Pair { a, b, qa, qb }, xrcd, srq, near, far, ma, mb }
    }

    /// Another connection into the same domain.
    pub fn another(&self) -> (*mut ibv_qp, *mut ibv_qp) {
        let target = xrc_target(self.pair.b.context, self.xrcd);
        let qps = (self.pair.a.qp(IBV_QPT_XRC_SEND), target);
        connect(qps.0, qps.1);
        qps
    }

    /// Another shared receive queue in the domain, with a completion queue of its own.
    pub fn another_srq(&self, pd: *mut ibv_pd) -> (*mut ibv_srq, *mut ibv_cq) {
        let cq = try_cq(self.pair.b.context, 64, null_mut()).expect("a queue");
        let init = xrc_srq_init(pd, self.xrcd, cq);
        (try_srq_ex(self.pair.b.context, &init).expect("a queue"), cq)
    }

    /// One operation on the first 8 bytes of both buffers, on a connection of its own. A shared queue's domain decides
    /// about it. Returns the status of its completion.
    pub fn op(&self, opcode: ibv_wr_opcode, srqn: u32, key: u32) -> ibv_wc_status {
        let (qa, qb) = self.another();
        let mut sges = [sge(self.near.addr(), 8, self.ma)];
        let request = match opcode {
            IBV_WR_ATOMIC_FETCH_AND_ADD | IBV_WR_ATOMIC_CMP_AND_SWP => {
                atomic_wr(opcode, &mut sges, self.far.addr(), key, 1, 0)
            }
            _ => rdma_wr(opcode, &mut sges, self.far.addr(), key),
        };
        post(qa, &mut naming(request, srqn));
        let status = self.pair.a.wait().status;
        assert_eq!((destroy_qp(qa), destroy_qp(qb)), (0, 0));
        status
    }
}

//! Helpers for the tests of shared receive queues.

use std::ffi::c_int;
use std::ptr::null_mut;

use transom_abi::*;
use transom_ibverbs::*;

use crate::harness::*;
use crate::queues::*;

/// Makes a shared receive queue for this many receives of this many SGEs. The error is the errno.
pub fn try_srq(pd: *mut ibv_pd, max_wr: u32, max_sge: u32) -> Result<*mut ibv_srq, i32> {
    let attr = ibv_srq_attr { max_wr, max_sge, srq_limit: 0 };
    let mut init = ibv_srq_init_attr { attr, ..ibv_srq_init_attr::default() };
    // SAFETY: null or a domain of this test.
    let srq = unsafe { ibv_create_srq(pd, &mut init) };
    if srq.is_null() { Err(errno()) } else { Ok(srq) }
}

/// Makes a shared receive queue for this many receives.
pub fn srq(pd: *mut ibv_pd, max_wr: u32) -> *mut ibv_srq {
    try_srq(pd, max_wr, 4).expect("a shared receive queue")
}

/// Destroys a shared receive queue. Returns zero or an errno.
pub fn destroy_srq(srq: *mut ibv_srq) -> c_int {
    // SAFETY: null or a queue of this test; its struct stays readable.
    unsafe { ibv_destroy_srq(srq) }
}

/// Posts receives as one list. The error is the errno and the index of the bad one.
pub fn try_srq_recv_list(srq: *mut ibv_srq, wrs: &mut [ibv_recv_wr]) -> Result<(), (c_int, usize)> {
    let first = wrs.as_mut_ptr();
    for at in 1..wrs.len() {
        wrs[at - 1].next = first.wrapping_add(at);
    }
    let mut bad = null_mut();
    // SAFETY: a live queue; the list ends with a null.
    match unsafe { (*(*srq).context).ops.post_srq_recv.expect("never null")(srq, first, &mut bad) }
    {
        0 => Ok(()),
        // SAFETY: the provider returns an element of the list.
        errno => Err((errno, unsafe { bad.offset_from(first) } as usize)),
    }
}

/// Posts a receive. Returns zero or an errno.
pub fn try_srq_recv(srq: *mut ibv_srq, wr_id: u64, sges: &mut [ibv_sge]) -> c_int {
    let mut wr = [ibv_recv_wr {
        wr_id,
        next: null_mut(),
        sg_list: sges.as_mut_ptr(),
        num_sge: sges.len() as c_int,
    }];
    try_srq_recv_list(srq, &mut wr).err().map_or(0, |(errno, _)| errno)
}

/// Posts a receive that must be accepted.
pub fn srq_recv(srq: *mut ibv_srq, wr_id: u64, sges: &mut [ibv_sge]) {
    assert_eq!(try_srq_recv(srq, wr_id, sges), 0, "ibv_post_srq_recv");
}

/// Arms the limit. Returns zero or an errno.
pub fn arm_limit(srq: *mut ibv_srq, srq_limit: u32) -> c_int {
    let attr = ibv_srq_attr { srq_limit, ..ibv_srq_attr::default() };
    modify_srq(srq, attr, IBV_SRQ_LIMIT)
}

/// Changes the attributes in the mask. Returns zero or an errno.
pub fn modify_srq(srq: *mut ibv_srq, mut attr: ibv_srq_attr, mask: u32) -> c_int {
    // SAFETY: null or a queue of this test.
    unsafe { ibv_modify_srq(srq, &mut attr, mask as c_int) }
}

/// Its present attributes.
pub fn query_srq(srq: *mut ibv_srq) -> ibv_srq_attr {
    let mut attr = ibv_srq_attr::default();
    // SAFETY: a live queue.
    assert_eq!(unsafe { ibv_query_srq(srq, &mut attr) }, 0);
    attr
}

/// A queue pair in RESET that takes its receives from a shared queue.
pub fn qp_of_srq(end: &End, kind: ibv_qp_type, srq: *mut ibv_srq) -> *mut ibv_qp {
    end.qp_with(&mut ibv_qp_init_attr { srq, ..end.init(kind) })
}

/// A target whose queue pairs share their receives, and origins that send to it.
pub struct Pool {
    /// The ends, and a first pair of RC queue pairs. The target's one uses the shared queue.
    pub pair: Pair,
    /// The shared queue.
    pub srq: *mut ibv_srq,
    /// The origin's buffer.
    pub near: Buffer,
    /// The target's buffer.
    pub far: Buffer,
    /// The region over all of `near`.
    pub ma: *mut ibv_mr,
    /// The region over all of `far`.
    pub mb: *mut ibv_mr,
}

impl Pool {
    /// Two ends over a link, with buffers of at least `length` bytes.
    pub fn new(link: Link, length: usize) -> Self {
        let (a, b) = ends(link, Default::default());
        let srq = srq(b.pd, 256);
        let (qa, qb) = (a.qp(IBV_QPT_RC), qp_of_srq(&b, IBV_QPT_RC, srq));
        connect(qa, qb);
        let (near, far) = (Buffer::filled(length, 3), Buffer::new(length));
        let (ma, mb) = (a.reg(&near, ALL), b.reg(&far, ALL));
        Self { pair: Pair { a, b, qa, qb }, srq, near, far, ma, mb }
    }

    /// One more pair of RC queue pairs. The target's one uses the shared queue.
    pub fn another(&self) -> (*mut ibv_qp, *mut ibv_qp) {
        let qps = (self.pair.a.qp(IBV_QPT_RC), qp_of_srq(&self.pair.b, IBV_QPT_RC, self.srq));
        connect(qps.0, qps.1);
        qps
    }

    /// Posts a receive into part of the target's buffer.
    pub fn recv(&self, wr_id: u64, at: usize, room: u32) {
        srq_recv(self.srq, wr_id, &mut [sge(self.far.addr() + at as u64, room, self.mb)]);
    }

    /// Posts a SEND of part of the origin's buffer.
    pub fn post(&self, qa: *mut ibv_qp, wr_id: u64, at: usize, length: u32) {
        let mut sges = [sge(self.near.addr() + at as u64, length, self.ma)];
        post(qa, &mut with_sges(ibv_send_wr { wr_id, ..wr(IBV_WR_SEND) }, &mut sges));
    }

    /// The target's next completion is a successful receive on this queue pair. Returns its `wr_id`.
    pub fn came(&self, qb: *mut ibv_qp) -> u64 {
        let wc = self.pair.b.expect(IBV_WC_SUCCESS);
        assert_eq!((wc.opcode, wc.qp_num), (IBV_WC_RECV, number(qb)));
        wc.wr_id
    }
}

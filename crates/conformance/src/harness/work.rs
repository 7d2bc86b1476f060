//! Makes and posts work requests.

use std::ffi::c_int;
use std::ptr::null_mut;

use transom_abi::*;

/// A signaled work request with `wr_id` 1 and nothing else.
pub fn wr(opcode: ibv_wr_opcode) -> ibv_send_wr {
    ibv_send_wr { wr_id: 1, opcode, send_flags: IBV_SEND_SIGNALED, ..ibv_send_wr::default() }
}

/// An SGE of a registered buffer.
pub fn sge(addr: u64, length: u32, mr: *mut ibv_mr) -> ibv_sge {
    // SAFETY: a live region, or null for a key of zero.
    let lkey = unsafe { mr.as_ref() }.map_or(0, |mr| mr.lkey);
    ibv_sge { addr, length, lkey }
}

/// Puts SGEs into a work request. They must live as long as it is posted.
pub fn with_sges(mut wr: ibv_send_wr, sges: &mut [ibv_sge]) -> ibv_send_wr {
    wr.sg_list = sges.as_mut_ptr();
    wr.num_sge = sges.len() as c_int;
    wr
}

/// A SEND, WRITE, READ or atomic of one SGE to or from a remote place.
pub fn rdma_wr(opcode: ibv_wr_opcode, sges: &mut [ibv_sge], remote: u64, key: u32) -> ibv_send_wr {
    let mut wr = with_sges(wr(opcode), sges);
    wr.wr.rdma = ibv_send_wr_rdma { remote_addr: remote, rkey: key };
    wr
}

/// A compare-and-swap or fetch-and-add.
pub fn atomic_wr(
    opcode: ibv_wr_opcode,
    sges: &mut [ibv_sge],
    remote: u64,
    key: u32,
    compare_add: u64,
    swap: u64,
) -> ibv_send_wr {
    let mut wr = with_sges(wr(opcode), sges);
    wr.wr.atomic = ibv_send_wr_atomic { remote_addr: remote, compare_add, swap, rkey: key };
    wr
}

/// Posts a send work request. Returns zero or an errno.
pub fn try_post(qp: *mut ibv_qp, wr: &mut ibv_send_wr) -> c_int {
    let mut bad = null_mut();
    // SAFETY: the queue pair is live, and the request is valid unless the test wants otherwise.
    unsafe { (*(*qp).context).ops.post_send.expect("never null")(qp, wr, &mut bad) }
}

/// Posts a send work request that must be accepted.
pub fn post(qp: *mut ibv_qp, wr: &mut ibv_send_wr) {
    assert_eq!(try_post(qp, wr), 0, "ibv_post_send of opcode {}", wr.opcode);
}

/// Posts a receive. Returns zero or an errno.
pub fn try_recv(qp: *mut ibv_qp, wr_id: u64, sges: &mut [ibv_sge]) -> c_int {
    let mut wr = ibv_recv_wr {
        wr_id,
        next: null_mut(),
        sg_list: sges.as_mut_ptr(),
        num_sge: sges.len() as c_int,
    };
    let mut bad = null_mut();
    // SAFETY: as in `try_post`.
    unsafe { (*(*qp).context).ops.post_recv.expect("never null")(qp, &mut wr, &mut bad) }
}

/// Posts a receive that must be accepted.
pub fn recv(qp: *mut ibv_qp, wr_id: u64, sges: &mut [ibv_sge]) {
    assert_eq!(try_recv(qp, wr_id, sges), 0, "ibv_post_recv");
}

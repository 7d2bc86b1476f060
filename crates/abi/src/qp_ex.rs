//! The queue pair whose send requests are built call by call.

use crate::{ibv_ah, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp, ibv_sge};
use core::ffi::{c_int, c_uint, c_void};

/// An extended QP, see `ibv_qp_to_qp_ex(3)` and `ibv_wr_post(3)`.
///
/// Between `wr_start` and `wr_complete`, an operation begins a request with the current `wr_id`
/// and `wr_flags`, and the setters that follow fill it in.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ibv_qp_ex {
    /// The plain QP.
    pub qp_base: ibv_qp,
    /// No bits are defined: 0.
    pub comp_mask: u64,
    /// Identifier for the next operation's completion.
    pub wr_id: u64,
    /// Bits of `ibv_send_flags` for the next operation.
    pub wr_flags: c_uint,
    /// Begins a compare and swap.
    pub wr_atomic_cmp_swp: Option<
        unsafe extern "C" fn(
            qp: *mut ibv_qp_ex,
            rkey: u32,
            remote_addr: u64,
            compare: u64,
            swap: u64,
        ),
    >,
    /// Begins a fetch and add.
    pub wr_atomic_fetch_add:
        Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, add: u64)>,
    /// Begins the bind of a type 2 memory window.
    pub wr_bind_mw: Option<
        unsafe extern "C" fn(
            qp: *mut ibv_qp_ex,
            mw: *mut ibv_mw,
            rkey: u32,
            bind_info: *const ibv_mw_bind_info,
        ),
    >,
    /// Begins a local invalidation.
    pub wr_local_inv: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, invalidate_rkey: u32)>,
    /// Begins an RDMA read.
    pub wr_rdma_read: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64)>,
    /// Begins an RDMA write.
    pub wr_rdma_write:
        Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64)>,
    /// Begins an RDMA write with immediate data (network byte order).
    pub wr_rdma_write_imm: Option<
        unsafe extern "C" fn(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, imm_data: u32),
    >,
    /// Begins a send.
    pub wr_send: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex)>,
    /// Begins a send with immediate data (network byte order).
    pub wr_send_imm: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, imm_data: u32)>,
    /// Begins a send with invalidation.
    pub wr_send_inv: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, invalidate_rkey: u32)>,
    /// Begins a segmented TCP send.
    pub wr_send_tso:
        Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, hdr: *mut c_void, hdr_sz: u16, mss: u16)>,
    /// Sets the destination of a datagram.
    pub wr_set_ud_addr: Option<
        unsafe extern "C" fn(
            qp: *mut ibv_qp_ex,
            ah: *mut ibv_ah,
            remote_qpn: u32,
            remote_qkey: u32,
        ),
    >,
    /// Sets the remote shared receive queue of an XRC request.
    pub wr_set_xrc_srqn: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, remote_srqn: u32)>,
    /// Copies one buffer in.
    pub wr_set_inline_data:
        Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize)>,
    /// Copies several buffers in.
    pub wr_set_inline_data_list: Option<
        unsafe extern "C" fn(qp: *mut ibv_qp_ex, num_buf: usize, buf_list: *const ibv_data_buf),
    >,
    /// Sets one local buffer.
    pub wr_set_sge:
        Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32)>,
    /// Sets several local buffers.
    pub wr_set_sge_list:
        Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, num_sge: usize, sg_list: *const ibv_sge)>,
    /// Begins a batch.
    pub wr_start: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex)>,
    /// Posts the batch; returns 0 or an errno value.
    pub wr_complete: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex) -> c_int>,
    /// Drops the batch.
    pub wr_abort: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex)>,
    /// Begins an atomic write of the 8 bytes at `atomic_wr`.
    pub wr_atomic_write: Option<
        unsafe extern "C" fn(
            qp: *mut ibv_qp_ex,
            rkey: u32,
            remote_addr: u64,
            atomic_wr: *const c_void,
        ),
    >,
}

//! Work requests: what is posted to a queue.

use crate::{ibv_ah, ibv_mw, ibv_mw_bind_info};
use core::ffi::{c_int, c_uint, c_void};

c_enum! {
    /// The operation of an [`ibv_send_wr`].
    ibv_wr_opcode: c_uint {
        /// RDMA write.
        IBV_WR_RDMA_WRITE = 0,
        /// RDMA write that also consumes a receive request and delivers immediate data.
        IBV_WR_RDMA_WRITE_WITH_IMM = 1,
        /// Send.
        IBV_WR_SEND = 2,
        /// Send with immediate data.
        IBV_WR_SEND_WITH_IMM = 3,
        /// RDMA read.
        IBV_WR_RDMA_READ = 4,
        /// Atomic compare and swap of 8 bytes.
        IBV_WR_ATOMIC_CMP_AND_SWP = 5,
        /// Atomic fetch and add of 8 bytes.
        IBV_WR_ATOMIC_FETCH_AND_ADD = 6,
        /// Invalidate a local key.
        IBV_WR_LOCAL_INV = 7,
        /// Bind a type 2 memory window.
        IBV_WR_BIND_MW = 8,
        /// Send that invalidates a key of the other side.
        IBV_WR_SEND_WITH_INV = 9,
        /// Send that is segmented as TCP.
        IBV_WR_TSO = 10,
        /// Left to the driver.
        IBV_WR_DRIVER1 = 11,
        /// Atomic write of 8 bytes.
        IBV_WR_ATOMIC_WRITE = 15,
    }
}

c_enum! {
    /// Bits of [`ibv_send_wr::send_flags`].
    ibv_send_flags: c_uint {
        /// Wait for earlier reads and atomics.
        IBV_SEND_FENCE = 1 << 0,
        /// Produce a completion.
        IBV_SEND_SIGNALED = 1 << 1,
        /// Raise a solicited event at the receiver.
        IBV_SEND_SOLICITED = 1 << 2,
        /// Copy the data while posting; no local keys are needed.
        IBV_SEND_INLINE = 1 << 3,
        /// Compute IP and transport checksums.
        IBV_SEND_IP_CSUM = 1 << 4,
    }
}

/// A buffer of inline data, see `ibv_wr_set_inline_data_list(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_data_buf {
    /// Its first byte.
    pub addr: *mut c_void,
    /// Its bytes.
    pub length: usize,
}

/// A scatter/gather entry: part of a memory region.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ibv_sge {
    /// Its first byte.
    pub addr: u64,
    /// Its bytes.
    pub length: u32,
    /// Local key of the region.
    pub lkey: u32,
}

/// Immediate data or key to invalidate of an [`ibv_send_wr`]; its opcode says which.
#[repr(C)]
#[derive(Clone, Copy)]
pub union ibv_send_wr_imm {
    /// Immediate data, network byte order.
    pub imm_data: u32,
    /// Key to invalidate, host byte order.
    pub invalidate_rkey: u32,
}
plain_union!(ibv_send_wr_imm, imm_data = 0);

/// Target of an RDMA operation.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_send_wr_rdma {
    /// First byte of the remote buffer.
    pub remote_addr: u64,
    /// Remote key of its region or window.
    pub rkey: u32,
}

/// Target and operands of an atomic operation.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_send_wr_atomic {
    /// Address of the remote word, a multiple of 8.
    pub remote_addr: u64,
    /// Value to compare with, or to add.
    pub compare_add: u64,
    /// Value to store if the comparison holds.
    pub swap: u64,
    /// Remote key of the word's region or window.
    pub rkey: u32,
}

/// Destination of a datagram.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_send_wr_ud {
    /// Address handle.
    pub ah: *mut ibv_ah,
    /// Destination QP.
    pub remote_qpn: u32,
    /// Queue key; with the top bit set, the QP's own is used.
    pub remote_qkey: u32,
}

/// The member `wr` of [`ibv_send_wr`]; opcode and QP type say which is valid.
#[repr(C)]
#[derive(Clone, Copy)]
pub union ibv_send_wr_wr {
    /// For RDMA reads and writes.
    pub rdma: ibv_send_wr_rdma,
    /// For atomic operations.
    pub atomic: ibv_send_wr_atomic,
    /// For UD QPs.
    pub ud: ibv_send_wr_ud,
}
plain_union!(ibv_send_wr_wr, atomic = ibv_send_wr_atomic::default());

/// Destination of a request on an XRC QP.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_send_wr_xrc {
    /// Shared receive queue at the other side.
    pub remote_srqn: u32,
}

/// The member `qp_type` of [`ibv_send_wr`].
#[repr(C)]
#[derive(Clone, Copy)]
pub union ibv_send_wr_qp_type {
    /// For XRC QPs.
    pub xrc: ibv_send_wr_xrc,
}
plain_union!(ibv_send_wr_qp_type, xrc = ibv_send_wr_xrc::default());

/// The bind of a type 2 memory window.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_send_wr_bind_mw {
    /// The window.
    pub mw: *mut ibv_mw,
    /// Its new remote key.
    pub rkey: u32,
    /// What to bind it to.
    pub bind_info: ibv_mw_bind_info,
}

/// Headers of a segmented TCP send.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_send_wr_tso {
    /// The headers, put before each segment.
    pub hdr: *mut c_void,
    /// Bytes of the headers.
    pub hdr_sz: u16,
    /// Payload bytes of a segment.
    pub mss: u16,
}

/// The last, in C anonymous, member of [`ibv_send_wr`]; the opcode says which is valid.
#[repr(C)]
#[derive(Clone, Copy)]
pub union ibv_send_wr_op {
    /// For [`IBV_WR_BIND_MW`].
    pub bind_mw: ibv_send_wr_bind_mw,
    /// For [`IBV_WR_TSO`].
    pub tso: ibv_send_wr_tso,
}
plain_union!(ibv_send_wr_op, bind_mw = ibv_send_wr_bind_mw::default());

/// A request for a send queue, see `ibv_post_send(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_send_wr {
    /// Identifier for the completion.
    pub wr_id: u64,
    /// The next request of the list, or null.
    pub next: *mut ibv_send_wr,
    /// Local buffers.
    pub sg_list: *mut ibv_sge,
    /// Number of local buffers.
    pub num_sge: c_int,
    /// The operation.
    pub opcode: ibv_wr_opcode,
    /// Bits of [`ibv_send_flags`].
    pub send_flags: c_uint,
    /// Immediate data or key to invalidate (anonymous in C).
    pub imm: ibv_send_wr_imm,
    /// Where it goes.
    pub wr: ibv_send_wr_wr,
    /// What the QP type needs beside.
    pub qp_type: ibv_send_wr_qp_type,
    /// What some operations need beside (anonymous in C).
    pub op: ibv_send_wr_op,
}

/// A request for a receive queue, see `ibv_post_recv(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_recv_wr {
    /// Identifier for the completion.
    pub wr_id: u64,
    /// The next request of the list, or null.
    pub next: *mut ibv_recv_wr,
    /// Local buffers.
    pub sg_list: *mut ibv_sge,
    /// Number of local buffers.
    pub num_sge: c_int,
}

c_enum! {
    /// The operation of an [`ibv_ops_wr`].
    ibv_ops_wr_opcode: c_uint {
        /// Add a tagged buffer.
        IBV_WR_TAG_ADD = 0,
        /// Remove a tagged buffer.
        IBV_WR_TAG_DEL = 1,
        /// Synchronise the list.
        IBV_WR_TAG_SYNC = 2,
    }
}

c_enum! {
    /// Bits of [`ibv_ops_wr::flags`].
    ibv_ops_flags: c_uint {
        /// Produce a completion.
        IBV_OPS_SIGNALED = 1 << 0,
        /// The count of unexpected messages is valid.
        IBV_OPS_TM_SYNC = 1 << 1,
    }
}

/// A tagged buffer to add.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_ops_wr_tm_add {
    /// Identifier for the completion of the receive.
    pub recv_wr_id: u64,
    /// Local buffers.
    pub sg_list: *mut ibv_sge,
    /// Number of local buffers.
    pub num_sge: c_int,
    /// The tag.
    pub tag: u64,
    /// The bits of the tag that must match.
    pub mask: u64,
}

/// The member `tm` of [`ibv_ops_wr`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_ops_wr_tm {
    /// Unexpected messages the software has handled.
    pub unexpected_cnt: u32,
    /// Handle of the buffer: set by an addition, taken by a removal.
    pub handle: u32,
    /// The buffer to add.
    pub add: ibv_ops_wr_tm_add,
}

/// A request on the matching list of a shared receive queue, see `ibv_post_srq_ops(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_ops_wr {
    /// Identifier for the completion.
    pub wr_id: u64,
    /// The next request of the list, or null.
    pub next: *mut ibv_ops_wr,
    /// The operation.
    pub opcode: ibv_ops_wr_opcode,
    /// Bits of [`ibv_ops_flags`].
    pub flags: c_int,
    /// Its operands.
    pub tm: ibv_ops_wr_tm,
}

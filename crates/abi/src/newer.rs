//! What headers of rdma-core after version 44 have and this one lacks: FLUSH and its kin, extended
//! registration, buffers, completion counters. Nothing here can be compared with the packaged header;
//! sizes and values are those of version 65, checked in every build.

use core::ffi::{c_int, c_void};
use core::mem::{offset_of, size_of};

use crate::{
    ibv_access_flags, ibv_parent_domain_init_attr_mask, ibv_qp_create_send_ops_flags, ibv_qp_ex,
};

/// An extended QP as rdma-core after version 44 knows it: one operation more behind [`ibv_qp_ex`].
/// Programs built against an older header do not look there.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ibv_qp_ex_flush {
    /// What all versions have.
    pub base: ibv_qp_ex,
    /// Begins a flush of `len` bytes; `type` has bits of `enum ibv_placement_type`, `level` is an
    /// `enum ibv_selectivity_level`.
    pub wr_flush: Option<
        unsafe extern "C" fn(
            qp: *mut ibv_qp_ex,
            rkey: u32,
            remote_addr: u64,
            len: usize,
            type_: u8,
            level: u8,
        ),
    >,
}

/// `ibv_selectivity_level`: the range that is named.
pub const IBV_FLUSH_RANGE: u8 = 0;
/// `ibv_selectivity_level`: the whole region or window, whatever the range.
pub const IBV_FLUSH_MR: u8 = 1;

/// Flush, of rdma-core after version 44; another bit of [`ibv_qp_create_send_ops_flags`].
pub const IBV_QP_EX_WITH_FLUSH: ibv_qp_create_send_ops_flags = 1 << 11;

/// Peers may flush to global visibility; another bit of [`ibv_access_flags`], of rdma-core after
/// version 44.
pub const IBV_ACCESS_FLUSH_GLOBAL: ibv_access_flags = 1 << 8;
/// Peers may flush to persistence, likewise.
pub const IBV_ACCESS_FLUSH_PERSISTENT: ibv_access_flags = 1 << 9;

/// In [`device_cap_flags_ex`](crate::ibv_device_attr_ex::device_cap_flags_ex): FLUSH to global visibility.
pub const IBV_DEVICE_FLUSH_GLOBAL: u64 = 1 << 38;
/// In [`device_cap_flags_ex`](crate::ibv_device_attr_ex::device_cap_flags_ex): ATOMIC WRITE.
pub const IBV_DEVICE_ATOMIC_WRITE: u64 = 1 << 40;

/// What `ibv_reg_mr_ex(3)` registers; all that versions 59 to 63 know.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_mr_init_attr {
    /// Bytes.
    pub length: usize,
    /// Access rights.
    pub access: c_int,
    /// Which of the fields below are set: `IBV_REG_MR_MASK_*`.
    pub comp_mask: u64,
    /// First address under which keys reach the region; `addr` if it is not set.
    pub iova: u64,
    /// Memory of the program.
    pub addr: *mut c_void,
    /// A dma-buf.
    pub fd: c_int,
    /// Where in the dma-buf the region starts.
    pub fd_offset: u64,
    /// A DMA handle.
    pub dmah: *mut c_void,
}

/// The same as version 64 knows it. Programs built against an older header end before the last field.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_mr_init_attr_buf {
    /// What all versions have.
    pub base: ibv_mr_init_attr,
    /// A buffer of `ibv_alloc_buf(3)`; only there with [`IBV_REG_MR_MASK_BUF`].
    pub buf: *mut ibv_buf,
}

const _: () = assert!(size_of::<ibv_mr_init_attr>() == 64);
const _: () = assert!(offset_of!(ibv_mr_init_attr_buf, buf) == 64);

/// `iova` is set.
pub const IBV_REG_MR_MASK_IOVA: u64 = 1 << 0;
/// `addr` is set.
pub const IBV_REG_MR_MASK_ADDR: u64 = 1 << 1;
/// `fd` is set.
pub const IBV_REG_MR_MASK_FD: u64 = 1 << 2;
/// `fd_offset` is set.
pub const IBV_REG_MR_MASK_FD_OFFSET: u64 = 1 << 3;
/// `dmah` is set.
pub const IBV_REG_MR_MASK_DMAH: u64 = 1 << 4;
/// `buf` is set.
pub const IBV_REG_MR_MASK_BUF: u64 = 1 << 5;

/// A buffer of `ibv_alloc_buf(3)`. What is in it is the library's own affair.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ibv_buf {
    /// Names the buffer.
    pub handle: u32,
}

/// Memory that a confidential guest shares with its host may be allocated for the domain; another bit
/// of [`ibv_parent_domain_init_attr_mask`], of version 64.
pub const IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC: ibv_parent_domain_init_attr_mask =
    1 << 2;

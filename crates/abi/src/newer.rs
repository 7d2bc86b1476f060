//! What headers of rdma-core after version 44 have and this one lacks: FLUSH and its kin. Nothing here
//! can be compared with the packaged header; sizes and values are those of version 64.

use crate::{ibv_access_flags, ibv_qp_create_send_ops_flags, ibv_qp_ex};

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

//! What headers of rdma-core after version 44 have and this one lacks: FLUSH and its kin, extended
//! registration, buffers, completion counters. Nothing here can be compared with the packaged header;
//! sizes and values are those of version 65, checked in every build.

use core::ffi::{c_int, c_uint, c_void};
use core::mem::{offset_of, size_of};

use crate::{
    ibv_access_flags, ibv_context, ibv_odp_transport_cap_bits, ibv_parent_domain_init_attr_mask,
    ibv_qp_create_send_ops_flags, ibv_qp_ex, rdma_cm_event_type, rdma_ucm_conn_param,
    rdma_ucm_ud_param,
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

/// FLUSH to memory that is paged on demand; another bit of [`ibv_odp_transport_cap_bits`], of rdma-core
/// after version 44.
pub const IBV_ODP_SUPPORT_FLUSH: ibv_odp_transport_cap_bits = 1 << 6;
/// ATOMIC WRITE to such memory, likewise.
pub const IBV_ODP_SUPPORT_ATOMIC_WRITE: ibv_odp_transport_cap_bits = 1 << 7;

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

c_enum! {
    /// What a completion counter may count of a queue pair, see `ibv_qp_attach_comp_cntr(3)`; of version 65.
    ibv_qp_attach_comp_cntr_op: c_uint {
        /// SENDs posted to it.
        IBV_QP_ATTACH_COMP_CNTR_OP_SEND = 1 << 0,
        /// Messages it receives.
        IBV_QP_ATTACH_COMP_CNTR_OP_RECV = 1 << 1,
        /// READs posted to it.
        IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ = 1 << 2,
        /// READs of its peer.
        IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ = 1 << 3,
        /// WRITEs posted to it.
        IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE = 1 << 4,
        /// WRITEs of its peer.
        IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE = 1 << 5,
    }
}

c_enum! {
    /// What a completion counter adds.
    ibv_comp_cntr_type: c_uint {
        /// One for each operation.
        IBV_COMP_CNTR_TYPE_WRS = 0,
        /// The bytes of each.
        IBV_COMP_CNTR_TYPE_BYTES = 1,
    }
}

/// Output of `ibv_query_comp_cntr_caps(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_comp_cntr_caps {
    /// Highest value; the next is zero.
    pub max_value: u64,
    /// How many counters there may be.
    pub max_counters: u32,
    /// Bits of [`ibv_qp_attach_comp_cntr_op`].
    pub supported_qp_attach_ops: u32,
}

/// A completion counter, see `ibv_create_comp_cntr(3)`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ibv_comp_cntr {
    /// Device context of the counter.
    pub context: *mut ibv_context,
    /// Kernel handle.
    pub handle: u32,
}

/// Input of `ibv_create_comp_cntr(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_comp_cntr_init_attr {
    /// No bits are defined: 0.
    pub comp_mask: u32,
    /// One of [`ibv_comp_cntr_type`].
    pub type_: ibv_comp_cntr_type,
    /// No flags are defined: 0.
    pub flags: u32,
}

/// Input of `ibv_qp_attach_comp_cntr(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_qp_attach_comp_cntr_attr {
    /// No bits are defined: 0.
    pub comp_mask: u32,
    /// Bits of [`ibv_qp_attach_comp_cntr_op`].
    pub op_mask: u32,
}

const _: () = assert!(size_of::<ibv_comp_cntr_caps>() == 16);
const _: () = assert!(offset_of!(ibv_comp_cntr_caps, supported_qp_attach_ops) == 12);
const _: () = assert!(size_of::<ibv_comp_cntr>() == 16);
const _: () = assert!(offset_of!(ibv_comp_cntr, handle) == 8);
const _: () = assert!(size_of::<ibv_comp_cntr_init_attr>() == 12);
const _: () = assert!(offset_of!(ibv_comp_cntr_init_attr, flags) == 8);
const _: () = assert!(size_of::<ibv_qp_attach_comp_cntr_attr>() == 8);
const _: () = assert!(offset_of!(ibv_qp_attach_comp_cntr_attr, op_mask) == 4);

/// Event of connection management: `rdma_resolve_addrinfo` has found something.
pub const RDMA_CM_EVENT_ADDRINFO_RESOLVED: rdma_cm_event_type = 16;
/// Event of connection management: it has not.
pub const RDMA_CM_EVENT_ADDRINFO_ERROR: rdma_cm_event_type = 17;
/// Event of connection management: a program's own, by `rdma_write_cm_event`.
pub const RDMA_CM_EVENT_USER: rdma_cm_event_type = 18;
/// Event of connection management: the library's own.
pub const RDMA_CM_EVENT_INTERNAL: rdma_cm_event_type = 19;
/// Flag of `rdma_getaddrinfo`: ask the subnet administrator.
pub const RAI_SA: c_int = 0x10;
/// Flag of `rdma_getaddrinfo`: ask as `getaddrinfo(3)` does.
pub const RAI_DNS: c_int = 0x20;
/// Command of connection management: [`rdma_ucm_write_cm_event`].
pub const RDMA_USER_CM_CMD_WRITE_CM_EVENT: u32 = 24;

/// Puts an event into a file of connection management.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rdma_ucm_write_cm_event {
    /// The id.
    pub id: u32,
    /// Nothing.
    pub reserved: u32,
    /// [`RDMA_CM_EVENT_USER`] or [`RDMA_CM_EVENT_INTERNAL`].
    pub event: u32,
    /// Its status.
    pub status: u32,
    /// What else it tells.
    pub param: rdma_ucm_write_cm_event_param,
}

/// What a written event tells (an anonymous union in C).
#[repr(C)]
#[derive(Clone, Copy)]
pub union rdma_ucm_write_cm_event_param {
    /// As an event of connections.
    pub conn: rdma_ucm_conn_param,
    /// As an event of datagrams.
    pub ud: rdma_ucm_ud_param,
    /// A number.
    pub arg: u64,
}
plain_union!(rdma_ucm_write_cm_event_param, ud = rdma_ucm_ud_param::default());

const _: () = assert!(size_of::<rdma_ucm_write_cm_event>() == 320);

//! Queue pairs: creating and opening them.

use crate::{
    ibv_context, ibv_cq, ibv_pd, ibv_qp_state, ibv_rwq_ind_table, ibv_srq, ibv_xrcd,
    pthread_cond_t, pthread_mutex_t,
};
use core::ffi::{c_int, c_uint, c_void};

c_enum! {
    /// The service a QP gives.
    ibv_qp_type: c_uint {
        /// Reliable connection.
        IBV_QPT_RC = 2,
        /// Unreliable connection.
        IBV_QPT_UC = 3,
        /// Unreliable datagram.
        IBV_QPT_UD = 4,
        /// Raw Ethernet packets.
        IBV_QPT_RAW_PACKET = 8,
        /// The sending side of an extended reliable connection.
        IBV_QPT_XRC_SEND = 9,
        /// The receiving side of an extended reliable connection.
        IBV_QPT_XRC_RECV = 10,
        /// Left to the driver.
        IBV_QPT_DRIVER = 0xff,
    }
}

/// Sizes of a QP's queues: wanted on creation, then given.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ibv_qp_cap {
    /// Outstanding send requests.
    pub max_send_wr: u32,
    /// Outstanding receive requests.
    pub max_recv_wr: u32,
    /// Gather entries per send request.
    pub max_send_sge: u32,
    /// Scatter entries per receive request.
    pub max_recv_sge: u32,
    /// Bytes of inline data per send request.
    pub max_inline_data: u32,
}

/// Input of `ibv_create_qp(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_qp_init_attr {
    /// The user's pointer.
    pub qp_context: *mut c_void,
    /// CQ for the send queue.
    pub send_cq: *mut ibv_cq,
    /// CQ for the receive queue.
    pub recv_cq: *mut ibv_cq,
    /// Shared receive queue, or null.
    pub srq: *mut ibv_srq,
    /// Sizes of the queues; updated to what was given.
    pub cap: ibv_qp_cap,
    /// The service.
    pub qp_type: ibv_qp_type,
    /// Nonzero if every send request produces a completion.
    pub sq_sig_all: c_int,
}

c_enum! {
    /// Bits of [`ibv_qp_init_attr_ex::comp_mask`].
    ibv_qp_init_attr_mask: c_uint {
        /// The protection domain is valid.
        IBV_QP_INIT_ATTR_PD = 1 << 0,
        /// The XRC domain is valid.
        IBV_QP_INIT_ATTR_XRCD = 1 << 1,
        /// The creation flags are valid.
        IBV_QP_INIT_ATTR_CREATE_FLAGS = 1 << 2,
        /// The largest TSO header is valid.
        IBV_QP_INIT_ATTR_MAX_TSO_HEADER = 1 << 3,
        /// The indirection table is valid.
        IBV_QP_INIT_ATTR_IND_TABLE = 1 << 4,
        /// The receive hash is valid.
        IBV_QP_INIT_ATTR_RX_HASH = 1 << 5,
        /// The send operations are valid; the QP then has an `ibv_qp_ex`.
        IBV_QP_INIT_ATTR_SEND_OPS_FLAGS = 1 << 6,
    }
}

c_enum! {
    /// Bits of [`ibv_qp_init_attr_ex::create_flags`].
    ibv_qp_create_flags: c_uint {
        /// Do not receive one's own multicast.
        IBV_QP_CREATE_BLOCK_SELF_MCAST_LB = 1 << 1,
        /// Keep the frame check sequence.
        IBV_QP_CREATE_SCATTER_FCS = 1 << 8,
        /// Strip the customer VLAN tag.
        IBV_QP_CREATE_CVLAN_STRIPPING = 1 << 9,
        /// [`ibv_qp_init_attr_ex::source_qpn`] is the source QP on the wire.
        IBV_QP_CREATE_SOURCE_QPN = 1 << 10,
        /// Pad the end of PCI writes to a cache line.
        IBV_QP_CREATE_PCI_WRITE_END_PADDING = 1 << 11,
    }
}

c_enum! {
    /// Operations an `ibv_qp_ex` must build: bits of [`ibv_qp_init_attr_ex::send_ops_flags`].
    ibv_qp_create_send_ops_flags: c_uint {
        /// RDMA write.
        IBV_QP_EX_WITH_RDMA_WRITE = 1 << 0,
        /// RDMA write with immediate data.
        IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM = 1 << 1,
        /// Send.
        IBV_QP_EX_WITH_SEND = 1 << 2,
        /// Send with immediate data.
        IBV_QP_EX_WITH_SEND_WITH_IMM = 1 << 3,
        /// RDMA read.
        IBV_QP_EX_WITH_RDMA_READ = 1 << 4,
        /// Compare and swap.
        IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP = 1 << 5,
        /// Fetch and add.
        IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD = 1 << 6,
        /// Local invalidation.
        IBV_QP_EX_WITH_LOCAL_INV = 1 << 7,
        /// Memory window bind.
        IBV_QP_EX_WITH_BIND_MW = 1 << 8,
        /// Send with invalidation.
        IBV_QP_EX_WITH_SEND_WITH_INV = 1 << 9,
        /// Segmented TCP send.
        IBV_QP_EX_WITH_TSO = 1 << 10,
        /// Atomic write.
        IBV_QP_EX_WITH_ATOMIC_WRITE = 1 << 12,
    }
}

/// How received packets are hashed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_rx_hash_conf {
    /// One of `ibv_rx_hash_function_flags`.
    pub rx_hash_function: u8,
    /// Bytes of the key.
    pub rx_hash_key_len: u8,
    /// The key.
    pub rx_hash_key: *mut u8,
    /// Bits of `ibv_rx_hash_fields`.
    pub rx_hash_fields_mask: u64,
}

/// Input of `ibv_create_qp_ex(3)`; begins like [`ibv_qp_init_attr`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_qp_init_attr_ex {
    /// The user's pointer.
    pub qp_context: *mut c_void,
    /// CQ for the send queue.
    pub send_cq: *mut ibv_cq,
    /// CQ for the receive queue.
    pub recv_cq: *mut ibv_cq,
    /// Shared receive queue, or null.
    pub srq: *mut ibv_srq,
    /// Sizes of the queues; updated to what was given.
    pub cap: ibv_qp_cap,
    /// The service.
    pub qp_type: ibv_qp_type,
    /// Nonzero if every send request produces a completion.
    pub sq_sig_all: c_int,
    /// Bits of [`ibv_qp_init_attr_mask`].
    pub comp_mask: u32,
    /// Protection domain.
    pub pd: *mut ibv_pd,
    /// XRC domain, for the receiving side.
    pub xrcd: *mut ibv_xrcd,
    /// Bits of [`ibv_qp_create_flags`].
    pub create_flags: u32,
    /// Bytes of the largest TSO header.
    pub max_tso_header: u16,
    /// Table of receive work queues.
    pub rwq_ind_tbl: *mut ibv_rwq_ind_table,
    /// How to spread packets over the table.
    pub rx_hash_conf: ibv_rx_hash_conf,
    /// Source QP on the wire.
    pub source_qpn: u32,
    /// Bits of [`ibv_qp_create_send_ops_flags`].
    pub send_ops_flags: u64,
}

c_enum! {
    /// Bits of [`ibv_qp_open_attr::comp_mask`].
    ibv_qp_open_attr_mask: c_uint {
        /// The QP number is valid.
        IBV_QP_OPEN_ATTR_NUM = 1 << 0,
        /// The XRC domain is valid.
        IBV_QP_OPEN_ATTR_XRCD = 1 << 1,
        /// The user's pointer is valid.
        IBV_QP_OPEN_ATTR_CONTEXT = 1 << 2,
        /// The type is valid.
        IBV_QP_OPEN_ATTR_TYPE = 1 << 3,
        /// The first bit that is not defined.
        IBV_QP_OPEN_ATTR_RESERVED = 1 << 4,
    }
}

/// Input of `ibv_open_qp(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_qp_open_attr {
    /// Bits of [`ibv_qp_open_attr_mask`].
    pub comp_mask: u32,
    /// Number of the QP to open.
    pub qp_num: u32,
    /// Its XRC domain.
    pub xrcd: *mut ibv_xrcd,
    /// The user's pointer.
    pub qp_context: *mut c_void,
    /// Its type.
    pub qp_type: ibv_qp_type,
}

/// A queue pair, see `ibv_create_qp(3)`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ibv_qp {
    /// Device context of the QP.
    pub context: *mut ibv_context,
    /// The user's pointer.
    pub qp_context: *mut c_void,
    /// Protection domain it was created in.
    pub pd: *mut ibv_pd,
    /// CQ for the send queue.
    pub send_cq: *mut ibv_cq,
    /// CQ for the receive queue.
    pub recv_cq: *mut ibv_cq,
    /// Shared receive queue, or null.
    pub srq: *mut ibv_srq,
    /// Kernel handle.
    pub handle: u32,
    /// Number of the QP, 24 bits.
    pub qp_num: u32,
    /// State after the last modification or query.
    pub state: ibv_qp_state,
    /// The service.
    pub qp_type: ibv_qp_type,
    /// Guards the counter below.
    pub mutex: pthread_mutex_t,
    /// Signalled when events are acknowledged.
    pub cond: pthread_cond_t,
    /// Asynchronous events acknowledged.
    pub events_completed: u32,
}

/// Enhanced connection establishment options, see `ibv_query_ece(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_ece {
    /// Vendor of the provider (IEEE OUI).
    pub vendor_id: u32,
    /// The vendor's options.
    pub options: u32,
    /// No bits are defined: 0.
    pub comp_mask: u32,
}

//! Shared receive queues.

use crate::{ibv_context, ibv_cq, ibv_pd, ibv_xrcd, pthread_cond_t, pthread_mutex_t};
use core::ffi::{c_uint, c_void};

c_enum! {
    /// What `ibv_modify_srq(3)` changes.
    ibv_srq_attr_mask: c_uint {
        /// The number of requests it can hold.
        IBV_SRQ_MAX_WR = 1 << 0,
        /// The limit; this arms it.
        IBV_SRQ_LIMIT = 1 << 1,
    }
}

/// Attributes of a shared receive queue, see `ibv_query_srq(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_srq_attr {
    /// Requests it can hold.
    pub max_wr: u32,
    /// Scatter entries per request.
    pub max_sge: u32,
    /// An event is raised when fewer requests than this remain; 0 is unarmed.
    pub srq_limit: u32,
}

/// Input of `ibv_create_srq(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_srq_init_attr {
    /// The user's pointer.
    pub srq_context: *mut c_void,
    /// Wanted attributes.
    pub attr: ibv_srq_attr,
}

c_enum! {
    /// The kinds of shared receive queue.
    ibv_srq_type: c_uint {
        /// For QPs of the same protection domain.
        IBV_SRQT_BASIC = 0,
        /// For XRC QPs, with its own CQ.
        IBV_SRQT_XRC = 1,
        /// With tag matching.
        IBV_SRQT_TM = 2,
    }
}

c_enum! {
    /// Bits of [`ibv_srq_init_attr_ex::comp_mask`].
    ibv_srq_init_attr_mask: c_uint {
        /// The type is valid.
        IBV_SRQ_INIT_ATTR_TYPE = 1 << 0,
        /// The protection domain is valid.
        IBV_SRQ_INIT_ATTR_PD = 1 << 1,
        /// The XRC domain is valid.
        IBV_SRQ_INIT_ATTR_XRCD = 1 << 2,
        /// The CQ is valid.
        IBV_SRQ_INIT_ATTR_CQ = 1 << 3,
        /// The tag matching limits are valid.
        IBV_SRQ_INIT_ATTR_TM = 1 << 4,
        /// The first bit that is not defined.
        IBV_SRQ_INIT_ATTR_RESERVED = 1 << 5,
    }
}

/// Limits of a tag matching list.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_tm_cap {
    /// Tagged buffers.
    pub max_num_tags: u32,
    /// Outstanding operations.
    pub max_ops: u32,
}

/// Input of `ibv_create_srq_ex(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_srq_init_attr_ex {
    /// The user's pointer.
    pub srq_context: *mut c_void,
    /// Wanted attributes.
    pub attr: ibv_srq_attr,
    /// Bits of [`ibv_srq_init_attr_mask`].
    pub comp_mask: u32,
    /// Its kind.
    pub srq_type: ibv_srq_type,
    /// Protection domain.
    pub pd: *mut ibv_pd,
    /// XRC domain, for the XRC kind.
    pub xrcd: *mut ibv_xrcd,
    /// CQ, for the XRC and tag matching kinds.
    pub cq: *mut ibv_cq,
    /// Tag matching limits.
    pub tm_cap: ibv_tm_cap,
}

/// A shared receive queue, see `ibv_create_srq(3)`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ibv_srq {
    /// Device context of the queue.
    pub context: *mut ibv_context,
    /// The user's pointer.
    pub srq_context: *mut c_void,
    /// Protection domain it was created in.
    pub pd: *mut ibv_pd,
    /// Kernel handle.
    pub handle: u32,
    /// Guards the counter below.
    pub mutex: pthread_mutex_t,
    /// Signalled when events are acknowledged.
    pub cond: pthread_cond_t,
    /// Asynchronous events acknowledged.
    pub events_completed: u32,
}

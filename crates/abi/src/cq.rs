//! Completion channels and completion queues.

use crate::{ibv_context, ibv_pd, pthread_cond_t, pthread_mutex_t};
use core::ffi::{c_int, c_uint, c_void};

/// A channel for completion events, see `ibv_create_comp_channel(3)`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ibv_comp_channel {
    /// Device context of the channel.
    pub context: *mut ibv_context,
    /// Descriptor that becomes readable with events.
    pub fd: c_int,
    /// CQs that use the channel.
    pub refcnt: c_int,
}

/// A completion queue, see `ibv_create_cq(3)`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ibv_cq {
    /// Device context of the queue.
    pub context: *mut ibv_context,
    /// Channel for its events, or null.
    pub channel: *mut ibv_comp_channel,
    /// The user's pointer, returned with events.
    pub cq_context: *mut c_void,
    /// Kernel handle.
    pub handle: u32,
    /// Entries it can hold.
    pub cqe: c_int,
    /// Guards the counters below.
    pub mutex: pthread_mutex_t,
    /// Signalled when events are acknowledged.
    pub cond: pthread_cond_t,
    /// Completion events acknowledged.
    pub comp_events_completed: u32,
    /// Asynchronous events acknowledged.
    pub async_events_completed: u32,
}

c_enum! {
    /// Bits of [`ibv_modify_cq_attr::attr_mask`].
    ibv_cq_attr_mask: c_uint {
        /// Change the moderation.
        IBV_CQ_ATTR_MODERATE = 1 << 0,
        /// The first bit that is not defined.
        IBV_CQ_ATTR_RESERVED = 1 << 1,
    }
}

/// When a CQ raises an event.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_moderate_cq {
    /// After this many completions.
    pub cq_count: u16,
    /// Or after this time, µs.
    pub cq_period: u16,
}

/// Input of `ibv_modify_cq(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_modify_cq_attr {
    /// Bits of [`ibv_cq_attr_mask`].
    pub attr_mask: u32,
    /// The new moderation.
    pub moderate: ibv_moderate_cq,
}

c_enum! {
    /// Bits of [`ibv_cq_init_attr_ex::comp_mask`].
    ibv_cq_init_attr_mask: c_uint {
        /// The flags are valid.
        IBV_CQ_INIT_ATTR_MASK_FLAGS = 1 << 0,
        /// The parent domain is valid.
        IBV_CQ_INIT_ATTR_MASK_PD = 1 << 1,
    }
}

c_enum! {
    /// Bits of [`ibv_cq_init_attr_ex::flags`].
    ibv_create_cq_attr_flags: c_uint {
        /// One thread at a time uses the queue.
        IBV_CREATE_CQ_ATTR_SINGLE_THREADED = 1 << 0,
        /// An overrun is not an error.
        IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN = 1 << 1,
    }
}

c_enum! {
    /// Completion fields a CQ must provide: bits of [`ibv_cq_init_attr_ex::wc_flags`].
    ibv_create_cq_wc_flags: c_uint {
        /// Bytes transferred.
        IBV_WC_EX_WITH_BYTE_LEN = 1 << 0,
        /// Immediate data.
        IBV_WC_EX_WITH_IMM = 1 << 1,
        /// Local QP number.
        IBV_WC_EX_WITH_QP_NUM = 1 << 2,
        /// Sending QP number.
        IBV_WC_EX_WITH_SRC_QP = 1 << 3,
        /// Source LID.
        IBV_WC_EX_WITH_SLID = 1 << 4,
        /// Service level.
        IBV_WC_EX_WITH_SL = 1 << 5,
        /// Low bits of the destination LID.
        IBV_WC_EX_WITH_DLID_PATH_BITS = 1 << 6,
        /// Timestamp in the device's ticks.
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP = 1 << 7,
        /// Customer VLAN tag.
        IBV_WC_EX_WITH_CVLAN = 1 << 8,
        /// Tag of the flow that steered the packet.
        IBV_WC_EX_WITH_FLOW_TAG = 1 << 9,
        /// Tag matching information.
        IBV_WC_EX_WITH_TM_INFO = 1 << 10,
        /// Timestamp in nanoseconds of the wall clock.
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK = 1 << 11,
        /// The fields of `ibv_wc`.
        IBV_WC_STANDARD_FLAGS = 0x7f,
        /// All fields that are defined.
        IBV_CREATE_CQ_SUP_WC_FLAGS = 0xfff,
    }
}

/// Input of `ibv_create_cq_ex(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_cq_init_attr_ex {
    /// Entries it must hold at least.
    pub cqe: u32,
    /// The user's pointer, returned with events.
    pub cq_context: *mut c_void,
    /// Channel for its events, or null.
    pub channel: *mut ibv_comp_channel,
    /// Completion vector, below the context's `num_comp_vectors`.
    pub comp_vector: u32,
    /// Bits of [`ibv_create_cq_wc_flags`].
    pub wc_flags: u64,
    /// Bits of [`ibv_cq_init_attr_mask`].
    pub comp_mask: u32,
    /// Bits of [`ibv_create_cq_attr_flags`].
    pub flags: u32,
    /// Parent domain with the allocator for the queue.
    pub parent_domain: *mut ibv_pd,
}

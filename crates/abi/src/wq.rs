//! Work queues outside QPs, and the tables that spread packets over them.

use crate::{ibv_context, ibv_cq, ibv_pd, ibv_recv_wr, pthread_cond_t, pthread_mutex_t};
use core::ffi::{c_int, c_uint, c_void};

c_enum! {
    /// The kinds of work queue.
    ibv_wq_type: c_uint {
        /// A receive queue.
        IBV_WQT_RQ = 0,
    }
}

c_enum! {
    /// Bits of [`ibv_wq_init_attr::comp_mask`].
    ibv_wq_init_attr_mask: c_uint {
        /// The flags are valid.
        IBV_WQ_INIT_ATTR_FLAGS = 1 << 0,
        /// The first bit that is not defined.
        IBV_WQ_INIT_ATTR_RESERVED = 1 << 1,
    }
}

c_enum! {
    /// Bits of [`ibv_wq_init_attr::create_flags`].
    ibv_wq_flags: c_uint {
        /// Strip the customer VLAN tag.
        IBV_WQ_FLAGS_CVLAN_STRIPPING = 1 << 0,
        /// Keep the frame check sequence.
        IBV_WQ_FLAGS_SCATTER_FCS = 1 << 1,
        /// Wait a while before dropping a packet for want of a request.
        IBV_WQ_FLAGS_DELAY_DROP = 1 << 2,
        /// Pad the end of PCI writes to a cache line.
        IBV_WQ_FLAGS_PCI_WRITE_END_PADDING = 1 << 3,
        /// The first bit that is not defined.
        IBV_WQ_FLAGS_RESERVED = 1 << 4,
    }
}

/// Input of `ibv_create_wq(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_wq_init_attr {
    /// The user's pointer.
    pub wq_context: *mut c_void,
    /// Its kind.
    pub wq_type: ibv_wq_type,
    /// Requests it must hold.
    pub max_wr: u32,
    /// Scatter entries per request.
    pub max_sge: u32,
    /// Protection domain.
    pub pd: *mut ibv_pd,
    /// CQ for its completions.
    pub cq: *mut ibv_cq,
    /// Bits of [`ibv_wq_init_attr_mask`].
    pub comp_mask: u32,
    /// Bits of [`ibv_wq_flags`].
    pub create_flags: u32,
}

c_enum! {
    /// The states of a work queue.
    ibv_wq_state: c_uint {
        /// Empty and idle.
        IBV_WQS_RESET = 0,
        /// Working.
        IBV_WQS_RDY = 1,
        /// In error.
        IBV_WQS_ERR = 2,
        /// Not known.
        IBV_WQS_UNKNOWN = 3,
    }
}

c_enum! {
    /// Bits of [`ibv_wq_attr::attr_mask`].
    ibv_wq_attr_mask: c_uint {
        /// The state is valid.
        IBV_WQ_ATTR_STATE = 1 << 0,
        /// The current state is valid.
        IBV_WQ_ATTR_CURR_STATE = 1 << 1,
        /// The flags and their mask are valid.
        IBV_WQ_ATTR_FLAGS = 1 << 2,
        /// The first bit that is not defined.
        IBV_WQ_ATTR_RESERVED = 1 << 3,
    }
}

/// Input of `ibv_modify_wq(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_wq_attr {
    /// Bits of [`ibv_wq_attr_mask`].
    pub attr_mask: u32,
    /// State to move to.
    pub wq_state: ibv_wq_state,
    /// State it must be in now.
    pub curr_wq_state: ibv_wq_state,
    /// New values of `ibv_wq_flags`.
    pub flags: u32,
    /// Which of the flags to change.
    pub flags_mask: u32,
}

/// A work queue, see `ibv_create_wq(3)`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ibv_wq {
    /// Device context of the queue.
    pub context: *mut ibv_context,
    /// The user's pointer.
    pub wq_context: *mut c_void,
    /// Protection domain it was created in.
    pub pd: *mut ibv_pd,
    /// CQ for its completions.
    pub cq: *mut ibv_cq,
    /// Number of the queue.
    pub wq_num: u32,
    /// Kernel handle.
    pub handle: u32,
    /// Its state.
    pub state: ibv_wq_state,
    /// Its kind.
    pub wq_type: ibv_wq_type,
    /// `ibv_post_wq_recv(3)`.
    pub post_recv: Option<
        unsafe extern "C" fn(
            current: *mut ibv_wq,
            recv_wr: *mut ibv_recv_wr,
            bad_recv_wr: *mut *mut ibv_recv_wr,
        ) -> c_int,
    >,
    /// Guards the counter below.
    pub mutex: pthread_mutex_t,
    /// Signalled when events are acknowledged.
    pub cond: pthread_cond_t,
    /// Asynchronous events acknowledged.
    pub events_completed: u32,
    /// No bits are defined: 0.
    pub comp_mask: u32,
}

/// A table of receive work queues, see `ibv_create_rwq_ind_table(3)`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ibv_rwq_ind_table {
    /// Device context of the table.
    pub context: *mut ibv_context,
    /// Kernel handle.
    pub ind_tbl_handle: c_int,
    /// Number of the table.
    pub ind_tbl_num: c_int,
    /// No bits are defined: 0.
    pub comp_mask: u32,
}

c_enum! {
    /// Bits of [`ibv_rwq_ind_table_init_attr::comp_mask`].
    ibv_ind_table_init_attr_mask: c_uint {
        /// The first bit that is not defined.
        IBV_CREATE_IND_TABLE_RESERVED = 1 << 0,
    }
}

/// Input of `ibv_create_rwq_ind_table(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_rwq_ind_table_init_attr {
    /// Number of entries: 2 to this power.
    pub log_ind_tbl_size: u32,
    /// The entries.
    pub ind_tbl: *mut *mut ibv_wq,
    /// Bits of [`ibv_ind_table_init_attr_mask`].
    pub comp_mask: u32,
}

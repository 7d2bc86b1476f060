//! The completion queue that is polled field by field.

use crate::{
    ibv_comp_channel, ibv_context, ibv_wc_opcode, ibv_wc_status, pthread_cond_t, pthread_mutex_t,
};
use core::ffi::{c_int, c_uint, c_void};

/// Input of `ibv_start_poll(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_poll_cq_attr {
    /// No bits are defined: 0.
    pub comp_mask: u32,
}

/// Tag matching information of a completion.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_wc_tm_info {
    /// The tag of the message.
    pub tag: u64,
    /// The sender's data beside the tag (`priv` in C).
    pub priv_: u32,
}

/// An extended completion queue, see `ibv_create_cq_ex(3)`.
///
/// It begins with the fields of `ibv_cq` and is cast to it. The functions read the completion that
/// `start_poll` or `next_poll` made current.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ibv_cq_ex {
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
    /// No bits are defined: 0.
    pub comp_mask: u32,
    /// Status of the current completion.
    pub status: ibv_wc_status,
    /// Identifier of the current completion's work request.
    pub wr_id: u64,
    /// `ibv_start_poll(3)`: begins a batch; `ENOENT` if the queue is empty.
    pub start_poll:
        Option<unsafe extern "C" fn(current: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int>,
    /// `ibv_next_poll(3)`: the next one of the batch; `ENOENT` if there is none.
    pub next_poll: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> c_int>,
    /// `ibv_end_poll(3)`: ends the batch.
    pub end_poll: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex)>,
    /// Which operation it was.
    pub read_opcode: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> ibv_wc_opcode>,
    /// The vendor's error code.
    pub read_vendor_err: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
    /// Bytes transferred.
    pub read_byte_len: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
    /// Immediate data in network byte order, or the invalidated key in host order.
    pub read_imm_data: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
    /// The local QP.
    pub read_qp_num: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
    /// The sending QP.
    pub read_src_qp: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
    /// Bits of `ibv_wc_flags`.
    pub read_wc_flags: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> c_uint>,
    /// Source LID.
    pub read_slid: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
    /// Service level.
    pub read_sl: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u8>,
    /// Low bits of the destination LID.
    pub read_dlid_path_bits: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u8>,
    /// Timestamp in the device's ticks.
    pub read_completion_ts: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u64>,
    /// Customer VLAN tag.
    pub read_cvlan: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u16>,
    /// Tag of the flow that steered the packet.
    pub read_flow_tag: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
    /// Tag matching information.
    pub read_tm_info:
        Option<unsafe extern "C" fn(current: *mut ibv_cq_ex, tm_info: *mut ibv_wc_tm_info)>,
    /// Timestamp in nanoseconds of the wall clock.
    pub read_completion_wallclock_ns: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u64>,
}

//! Asynchronous events.

use crate::{ibv_cq, ibv_qp, ibv_srq, ibv_wq};
use core::ffi::{c_int, c_uint};

c_enum! {
    /// What happened; `ibv_event_type_str(3)` names it.
    ibv_event_type: c_uint {
        /// A CQ is in error, most often by overrun.
        IBV_EVENT_CQ_ERR = 0,
        /// A QP met an error it could not report as a completion.
        IBV_EVENT_QP_FATAL = 1,
        /// A responder saw an invalid request.
        IBV_EVENT_QP_REQ_ERR = 2,
        /// A responder saw a request that violates access rights.
        IBV_EVENT_QP_ACCESS_ERR = 3,
        /// The first packet reached a QP in state RTR.
        IBV_EVENT_COMM_EST = 4,
        /// The send queue has drained on the way to state SQD.
        IBV_EVENT_SQ_DRAINED = 5,
        /// A connection moved to its alternate path.
        IBV_EVENT_PATH_MIG = 6,
        /// A connection could not move to its alternate path.
        IBV_EVENT_PATH_MIG_ERR = 7,
        /// The device is in error and must be closed.
        IBV_EVENT_DEVICE_FATAL = 8,
        /// A port became active.
        IBV_EVENT_PORT_ACTIVE = 9,
        /// A port is no longer active.
        IBV_EVENT_PORT_ERR = 10,
        /// The LID of a port changed.
        IBV_EVENT_LID_CHANGE = 11,
        /// The partition key table of a port changed.
        IBV_EVENT_PKEY_CHANGE = 12,
        /// The subnet manager of a port changed.
        IBV_EVENT_SM_CHANGE = 13,
        /// A shared receive queue is in error.
        IBV_EVENT_SRQ_ERR = 14,
        /// A shared receive queue fell below its limit.
        IBV_EVENT_SRQ_LIMIT_REACHED = 15,
        /// A QP in error has taken its last request from its shared receive queue.
        IBV_EVENT_QP_LAST_WQE_REACHED = 16,
        /// The subnet manager asks clients of a port to register again.
        IBV_EVENT_CLIENT_REREGISTER = 17,
        /// The GID table of a port changed.
        IBV_EVENT_GID_CHANGE = 18,
        /// A work queue is in error.
        IBV_EVENT_WQ_FATAL = 19,
    }
}

/// What an [`ibv_async_event`] is about; its type says which member is valid.
#[repr(C)]
#[derive(Clone, Copy)]
pub union ibv_async_event_element {
    /// The CQ, for CQ events.
    pub cq: *mut ibv_cq,
    /// The QP, for QP events.
    pub qp: *mut ibv_qp,
    /// The shared receive queue, for its events.
    pub srq: *mut ibv_srq,
    /// The work queue, for its events.
    pub wq: *mut ibv_wq,
    /// The port, for port events.
    pub port_num: c_int,
}
plain_union!(ibv_async_event_element, cq = core::ptr::null_mut());

/// An asynchronous event, see `ibv_get_async_event(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_async_event {
    /// The object it concerns.
    pub element: ibv_async_event_element,
    /// What happened to it.
    pub event_type: ibv_event_type,
}

//! The opened device as every client sees it.

use crate::{
    ibv_cq, ibv_device, ibv_mw, ibv_mw_bind, ibv_mw_type, ibv_pd, ibv_qp, ibv_recv_wr, ibv_send_wr,
    ibv_srq, ibv_wc, pthread_mutex_t,
};
use core::ffi::{c_int, c_void};

/// [`ibv_context::abi_compat`] of a context that lies within a `verbs_context`.
pub const __VERBS_ABI_IS_EXTENDED: *mut c_void = core::ptr::without_provenance_mut(usize::MAX);

/// The operations that the header's inline functions call without a check.
///
/// The `_compat_` members are called by nobody since libibverbs 1.1.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_context_ops {
    /// Where `query_device` was; not called.
    pub _compat_query_device: *mut c_void,
    /// Where `query_port` was; not called.
    pub _compat_query_port: *mut c_void,
    /// Where `alloc_pd` was; not called.
    pub _compat_alloc_pd: *mut c_void,
    /// Where `dealloc_pd` was; not called.
    pub _compat_dealloc_pd: *mut c_void,
    /// Where `reg_mr` was; not called.
    pub _compat_reg_mr: *mut c_void,
    /// Where `rereg_mr` was; not called.
    pub _compat_rereg_mr: *mut c_void,
    /// Where `dereg_mr` was; not called.
    pub _compat_dereg_mr: *mut c_void,
    /// `ibv_alloc_mw(3)`.
    pub alloc_mw: Option<unsafe extern "C" fn(pd: *mut ibv_pd, type_: ibv_mw_type) -> *mut ibv_mw>,
    /// `ibv_bind_mw(3)`, after its checks.
    pub bind_mw: Option<
        unsafe extern "C" fn(qp: *mut ibv_qp, mw: *mut ibv_mw, mw_bind: *mut ibv_mw_bind) -> c_int,
    >,
    /// `ibv_dealloc_mw(3)`.
    pub dealloc_mw: Option<unsafe extern "C" fn(mw: *mut ibv_mw) -> c_int>,
    /// Where `create_cq` was; not called.
    pub _compat_create_cq: *mut c_void,
    /// `ibv_poll_cq(3)`.
    pub poll_cq:
        Option<unsafe extern "C" fn(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int>,
    /// `ibv_req_notify_cq(3)`.
    pub req_notify_cq:
        Option<unsafe extern "C" fn(cq: *mut ibv_cq, solicited_only: c_int) -> c_int>,
    /// Where `cq_event` was; not called.
    pub _compat_cq_event: *mut c_void,
    /// Where `resize_cq` was; not called.
    pub _compat_resize_cq: *mut c_void,
    /// Where `destroy_cq` was; not called.
    pub _compat_destroy_cq: *mut c_void,
    /// Where `create_srq` was; not called.
    pub _compat_create_srq: *mut c_void,
    /// Where `modify_srq` was; not called.
    pub _compat_modify_srq: *mut c_void,
    /// Where `query_srq` was; not called.
    pub _compat_query_srq: *mut c_void,
    /// Where `destroy_srq` was; not called.
    pub _compat_destroy_srq: *mut c_void,
    /// `ibv_post_srq_recv(3)`.
    pub post_srq_recv: Option<
        unsafe extern "C" fn(
            srq: *mut ibv_srq,
            recv_wr: *mut ibv_recv_wr,
            bad_recv_wr: *mut *mut ibv_recv_wr,
        ) -> c_int,
    >,
    /// Where `create_qp` was; not called.
    pub _compat_create_qp: *mut c_void,
    /// Where `query_qp` was; not called.
    pub _compat_query_qp: *mut c_void,
    /// Where `modify_qp` was; not called.
    pub _compat_modify_qp: *mut c_void,
    /// Where `destroy_qp` was; not called.
    pub _compat_destroy_qp: *mut c_void,
    /// `ibv_post_send(3)`.
    pub post_send: Option<
        unsafe extern "C" fn(
            qp: *mut ibv_qp,
            wr: *mut ibv_send_wr,
            bad_wr: *mut *mut ibv_send_wr,
        ) -> c_int,
    >,
    /// `ibv_post_recv(3)`.
    pub post_recv: Option<
        unsafe extern "C" fn(
            qp: *mut ibv_qp,
            wr: *mut ibv_recv_wr,
            bad_wr: *mut *mut ibv_recv_wr,
        ) -> c_int,
    >,
    /// Where `create_ah` was; not called.
    pub _compat_create_ah: *mut c_void,
    /// Where `destroy_ah` was; not called.
    pub _compat_destroy_ah: *mut c_void,
    /// Where `attach_mcast` was; not called.
    pub _compat_attach_mcast: *mut c_void,
    /// Where `detach_mcast` was; not called.
    pub _compat_detach_mcast: *mut c_void,
    /// Where `async_event` was; not called.
    pub _compat_async_event: *mut c_void,
}

/// An opened device, see `ibv_open_device(3)`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ibv_context {
    /// The device.
    pub device: *mut ibv_device,
    /// Operations of the inline functions.
    pub ops: ibv_context_ops,
    /// Descriptor for commands.
    pub cmd_fd: c_int,
    /// Descriptor that becomes readable with asynchronous events.
    pub async_fd: c_int,
    /// Number of completion vectors.
    pub num_comp_vectors: c_int,
    /// For the library's own use.
    pub mutex: pthread_mutex_t,
    /// [`__VERBS_ABI_IS_EXTENDED`] if this is part of a `verbs_context`.
    pub abi_compat: *mut c_void,
}

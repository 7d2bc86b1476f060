//! Memory windows.

use crate::{ibv_context, ibv_mr, ibv_pd};
use core::ffi::c_uint;

c_enum! {
    /// The two types of memory window.
    ibv_mw_type: c_uint {
        /// Bound by `ibv_bind_mw(3)`.
        IBV_MW_TYPE_1 = 1,
        /// Bound by a work request posted to a QP.
        IBV_MW_TYPE_2 = 2,
    }
}

/// A memory window, see `ibv_alloc_mw(3)`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ibv_mw {
    /// Device context of the window.
    pub context: *mut ibv_context,
    /// Protection domain it was allocated in.
    pub pd: *mut ibv_pd,
    /// Key for the other side's requests; binding changes it.
    pub rkey: u32,
    /// Kernel handle.
    pub handle: u32,
    /// Its type (`type` in C).
    pub type_: ibv_mw_type,
}

/// What to bind a window to.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_mw_bind_info {
    /// The region.
    pub mr: *mut ibv_mr,
    /// First byte of the window.
    pub addr: u64,
    /// Bytes of the window; 0 unbinds it.
    pub length: u64,
    /// Bits of `ibv_access_flags` the window grants.
    pub mw_access_flags: c_uint,
}

/// Input of `ibv_bind_mw(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_mw_bind {
    /// Identifier for the completion.
    pub wr_id: u64,
    /// Bits of `ibv_send_flags`.
    pub send_flags: c_uint,
    /// What to bind the window to.
    pub bind_info: ibv_mw_bind_info,
}

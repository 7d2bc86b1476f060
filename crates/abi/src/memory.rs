//! Memory that lives on the device.

use crate::ibv_context;
use core::ffi::{c_int, c_uint, c_void};

/// Input of `ibv_alloc_dm(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_alloc_dm_attr {
    /// Bytes wanted.
    pub length: usize,
    /// Alignment: 2 to this power.
    pub log_align_req: u32,
    /// No bits are defined: 0.
    pub comp_mask: u32,
}

c_enum! {
    /// Bits of [`ibv_dm::comp_mask`].
    ibv_dm_mask: c_uint {
        /// The handle is valid.
        IBV_DM_MASK_HANDLE = 1 << 0,
    }
}

/// Memory on the device, see `ibv_alloc_dm(3)`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ibv_dm {
    /// Device context of the memory.
    pub context: *mut ibv_context,
    /// Copies to the device, for `ibv_memcpy_to_dm(3)`.
    pub memcpy_to_dm: Option<
        unsafe extern "C" fn(
            dm: *mut ibv_dm,
            dm_offset: u64,
            host_addr: *const c_void,
            length: usize,
        ) -> c_int,
    >,
    /// Copies from the device, for `ibv_memcpy_from_dm(3)`.
    pub memcpy_from_dm: Option<
        unsafe extern "C" fn(
            host_addr: *mut c_void,
            dm: *mut ibv_dm,
            dm_offset: u64,
            length: usize,
        ) -> c_int,
    >,
    /// Bits of [`ibv_dm_mask`].
    pub comp_mask: u32,
    /// Kernel handle.
    pub handle: u32,
}

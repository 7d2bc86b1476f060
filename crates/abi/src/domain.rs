//! Protection, thread, parent and XRC domains.

use crate::ibv_context;
use core::ffi::{c_int, c_uint, c_void};

/// A protection domain, see `ibv_alloc_pd(3)`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ibv_pd {
    /// Device context of the domain.
    pub context: *mut ibv_context,
    /// Kernel handle.
    pub handle: u32,
}

/// Input of `ibv_alloc_td(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_td_init_attr {
    /// No bits are defined: 0.
    pub comp_mask: u32,
}

/// A thread domain: the promise that one thread at a time uses its objects.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ibv_td {
    /// Device context of the domain.
    pub context: *mut ibv_context,
}

c_enum! {
    /// Bits of [`ibv_parent_domain_init_attr::comp_mask`].
    ibv_parent_domain_init_attr_mask: c_uint {
        /// The two allocator functions are valid.
        IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS = 1 << 0,
        /// The context for them is valid.
        IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT = 1 << 1,
    }
}

/// Returned by an allocator that leaves this allocation to the library.
pub const IBV_ALLOCATOR_USE_DEFAULT: *mut c_void = core::ptr::without_provenance_mut(usize::MAX);

/// Input of `ibv_alloc_parent_domain(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_parent_domain_init_attr {
    /// The protection domain; required.
    pub pd: *mut ibv_pd,
    /// A thread domain, or null.
    pub td: *mut ibv_td,
    /// Bits of [`ibv_parent_domain_init_attr_mask`].
    pub comp_mask: u32,
    /// Allocates `size` bytes at `alignment` for a resource type.
    pub alloc: Option<
        unsafe extern "C" fn(
            pd: *mut ibv_pd,
            pd_context: *mut c_void,
            size: usize,
            alignment: usize,
            resource_type: u64,
        ) -> *mut c_void,
    >,
    /// Frees what `alloc` returned.
    pub free: Option<
        unsafe extern "C" fn(
            pd: *mut ibv_pd,
            pd_context: *mut c_void,
            ptr: *mut c_void,
            resource_type: u64,
        ),
    >,
    /// Passed to both functions.
    pub pd_context: *mut c_void,
}

c_enum! {
    /// Bits of [`ibv_xrcd_init_attr::comp_mask`].
    ibv_xrcd_init_attr_mask: c_uint {
        /// The file descriptor is valid.
        IBV_XRCD_INIT_ATTR_FD = 1 << 0,
        /// The open flags are valid.
        IBV_XRCD_INIT_ATTR_OFLAGS = 1 << 1,
        /// The first bit that is not defined.
        IBV_XRCD_INIT_ATTR_RESERVED = 1 << 2,
    }
}

/// Input of `ibv_open_xrcd(3)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_xrcd_init_attr {
    /// Bits of [`ibv_xrcd_init_attr_mask`].
    pub comp_mask: u32,
    /// File the domain is tied to, -1 for none.
    pub fd: c_int,
    /// `O_CREAT` and `O_EXCL`, as in `open(2)`.
    pub oflags: c_int,
}

/// An XRC domain, see `ibv_open_xrcd(3)`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ibv_xrcd {
    /// Device context of the domain.
    pub context: *mut ibv_context,
}

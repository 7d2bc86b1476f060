//! `ibv_fork_init(3)`.
//!
//! Regions are not pinned. The kernel copies pages in the address space of the process that registered them, so a fork
//! takes no page away from a region. A child's changes to the objects that it inherits stay in the child
//! (`transom_system::fork`).

use std::ffi::{c_int, c_void};

use crate::check;
use transom_abi::{IBV_FORK_UNNEEDED, ibv_fork_status};

/// Nothing needs to be prepared for `fork`.
pub extern "C" fn ibv_fork_init() -> c_int {
    check::is_fork_safe();
    0
}

/// `fork` is always safe.
pub extern "C" fn ibv_is_fork_initialized() -> ibv_fork_status {
    IBV_FORK_UNNEEDED
}

/// No page is pinned, so a child may have every page: success.
pub extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

/// [`ibv_dontfork_range`] does nothing, so there is nothing to undo: success.
pub extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

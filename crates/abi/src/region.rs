//! Memory regions and the rights they give.

use crate::{ibv_context, ibv_pd};
use core::ffi::{c_int, c_uint, c_void};

/// The lowest access bit a device is free to ignore.
pub const IBV_ACCESS_OPTIONAL_FIRST: c_uint = 1 << 20;

/// All access bits a device is free to ignore: 20 to 29.
pub const IBV_ACCESS_OPTIONAL_RANGE: c_uint = 0x3ff0_0000;

c_enum! {
    /// Access rights, see `ibv_reg_mr(3)`; local reading needs none.
    ibv_access_flags: c_uint {
        /// Writing by this side.
        IBV_ACCESS_LOCAL_WRITE = 1 << 0,
        /// RDMA write by the other side.
        IBV_ACCESS_REMOTE_WRITE = 1 << 1,
        /// RDMA read by the other side.
        IBV_ACCESS_REMOTE_READ = 1 << 2,
        /// Atomic operations by the other side.
        IBV_ACCESS_REMOTE_ATOMIC = 1 << 3,
        /// Binding memory windows to the region.
        IBV_ACCESS_MW_BIND = 1 << 4,
        /// Remote addresses count from the start of the region.
        IBV_ACCESS_ZERO_BASED = 1 << 5,
        /// Pages are brought in on demand instead of being pinned.
        IBV_ACCESS_ON_DEMAND = 1 << 6,
        /// The region is made of huge pages.
        IBV_ACCESS_HUGETLB = 1 << 7,
        /// The device may reorder its accesses.
        IBV_ACCESS_RELAXED_ORDERING = IBV_ACCESS_OPTIONAL_FIRST,
    }
}

/// A memory region, see `ibv_reg_mr(3)`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ibv_mr {
    /// Device context of the region.
    pub context: *mut ibv_context,
    /// Protection domain it was registered in.
    pub pd: *mut ibv_pd,
    /// Its first byte.
    pub addr: *mut c_void,
    /// Its bytes.
    pub length: usize,
    /// Kernel handle.
    pub handle: u32,
    /// Key for this side's scatter/gather entries.
    pub lkey: u32,
    /// Key for the other side's requests.
    pub rkey: u32,
}

c_enum! {
    /// What `ibv_rereg_mr(3)` changes.
    ibv_rereg_mr_flags: c_uint {
        /// Address and length.
        IBV_REREG_MR_CHANGE_TRANSLATION = 1 << 0,
        /// The protection domain.
        IBV_REREG_MR_CHANGE_PD = 1 << 1,
        /// The access rights.
        IBV_REREG_MR_CHANGE_ACCESS = 1 << 2,
        /// All bits that are defined.
        IBV_REREG_MR_FLAGS_SUPPORTED = (IBV_REREG_MR_CHANGE_ACCESS << 1) - 1,
    }
}

c_enum! {
    /// How `ibv_rereg_mr(3)` failed.
    ibv_rereg_mr_err_code: c_int {
        /// Invalid input; the old region is still good.
        IBV_REREG_MR_ERR_INPUT = -1,
        /// The new range could not be kept from forks; the old region is still good.
        IBV_REREG_MR_ERR_DONT_FORK_NEW = -2,
        /// The old range could not be given back to forks; the new region is good.
        IBV_REREG_MR_ERR_DO_FORK_OLD = -3,
        /// The command failed; the region is unusable.
        IBV_REREG_MR_ERR_CMD = -4,
        /// As before, and the new range's fork state is invalid.
        IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW = -5,
    }
}

c_enum! {
    /// Advice about memory, see `ibv_advise_mr(3)`.
    ibv_advise_mr_advice: c_uint {
        /// Bring the pages in for reading.
        IBV_ADVISE_MR_ADVICE_PREFETCH = 0,
        /// Bring the pages in for writing.
        IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE = 1,
        /// Map pages that are present, without faulting others in.
        IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT = 2,
    }
}

/// Flag of `ibv_advise_mr(3)`: return only when it is done.
pub const IBV_ADVISE_MR_FLAG_FLUSH: c_uint = 1 << 0;

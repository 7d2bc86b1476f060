//! Protection domains and regions: registers, changes and frees them.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use transom_abi::*;
use transom_ibverbs::*;

use super::{Buffer, errno};

/// All rights a region can have.
pub const ALL: c_int = (IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND) as c_int;

/// Registers a whole buffer.
pub fn reg(pd: *mut ibv_pd, buffer: &Buffer, access: c_int) -> *mut ibv_mr {
    try_reg(pd, buffer.addr(), buffer.len(), access).expect("the buffer registers")
}

/// Registers a range. The error is the errno.
pub fn try_reg(
    pd: *mut ibv_pd,
    addr: u64,
    length: usize,
    access: c_int,
) -> Result<*mut ibv_mr, i32> {
    // SAFETY: registering touches no memory.
    let mr = unsafe { ibv_reg_mr(pd, addr as *mut c_void, length, access) };
    if mr.is_null() { Err(errno()) } else { Ok(mr) }
}

/// Registers a range under the addresses from `iova` on. The error is the errno.
pub fn try_reg_iova(
    pd: *mut ibv_pd,
    addr: u64,
    length: usize,
    iova: u64,
    access: c_int,
) -> Result<*mut ibv_mr, i32> {
    // SAFETY: registering touches no memory.
    let mr = unsafe { ibv_reg_mr_iova(pd, addr as *mut c_void, length, iova, access) };
    if mr.is_null() { Err(errno()) } else { Ok(mr) }
}

/// The changes for [`rereg`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    /// The range: address and length.
    pub range: Option<(u64, usize)>,
    /// The domain.
    pub pd: Option<*mut ibv_pd>,
    /// The rights.
    pub access: Option<c_int>,
}

/// Changes a registration. The error is the code and the errno.
pub fn rereg(mr: *mut ibv_mr, change: Change) -> Result<(), (c_int, i32)> {
    let Change { range, pd, access } = change;
    let flags = range.map_or(0, |_| IBV_REREG_MR_CHANGE_TRANSLATION)
        | pd.map_or(0, |_| IBV_REREG_MR_CHANGE_PD)
        | access.map_or(0, |_| IBV_REREG_MR_CHANGE_ACCESS);
    let (addr, length) = range.unwrap_or_default();
    rereg_raw(mr, flags, pd.unwrap_or(null_mut()), addr, length, access.unwrap_or(0))
}

/// `ibv_rereg_mr` with any arguments. The error is the code and the errno.
pub fn rereg_raw(
    mr: *mut ibv_mr,
    flags: u32,
    pd: *mut ibv_pd,
    addr: u64,
    length: usize,
    access: c_int,
) -> Result<(), (c_int, i32)> {
    // SAFETY: null or a region and a domain of this test; it touches no memory.
    let code = unsafe { ibv_rereg_mr(mr, flags as c_int, pd, addr as *mut c_void, length, access) };
    if code == 0 { Ok(()) } else { Err((code, errno())) }
}

/// Frees a protection domain. Returns zero or an errno.
pub fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: null or a domain of this test.
    unsafe { ibv_dealloc_pd(pd) }
}

/// Ends a registration. Returns zero or an errno.
pub fn dereg(mr: *mut ibv_mr) -> c_int {
    // SAFETY: null or a region of this test.
    unsafe { ibv_dereg_mr(mr) }
}

/// The keys of a region: local, remote.
pub fn keys(mr: *mut ibv_mr) -> (u32, u32) {
    // SAFETY: a live region.
    unsafe { ((*mr).lkey, (*mr).rkey) }
}

//! Regions outside the program's memory: null regions, device memory, dma-bufs.

use std::ffi::{c_int, c_uint};
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;
use std::sync::Arc;

use transom_abi::*;
use transom_device::Access;
use transom_host::objects::{DmaBuf, DmaBufError, MemoryRegion};
use transom_rehearse::Feature;
use transom_system::memory::page_size;

use crate::context::Context;
use crate::entry::pointer_of;
use crate::mr::{enter, parse_access};
use crate::wrong::Wrong;
use crate::{dm, errno, pd, profile, rehearse};

/// Rights that peers and this side can use. The other flags say how a program's memory is registered.
const USABLE: Access = Access::REMOTE.union(Access::LOCAL_WRITE).union(Access::RELAXED_ORDERING);

/// Allocates a null region. Gathers give zeros, and scatters are discarded (rule MR-36).
///
/// # Safety
/// `pd` is null or readable.
pub(crate) unsafe extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    pointer_of("ibv_alloc_null_mr", || {
        // SAFETY: by the contract of this verb.
        unsafe { pd::find(pd) }.and_then(|found| {
            rehearse::may_make()?;
            let region = MemoryRegion::null(&found.domain).map_err(errno::of_register)?;
            Ok(enter(pd, found, null_mut(), region))
        })
    })
}

/// Registers a range of device memory. Addresses count from zero.
///
/// # Safety
/// `pd` and `dm` are null or readable.
pub(crate) unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
    access: c_uint,
) -> *mut ibv_mr {
    pointer_of("ibv_reg_dm_mr", || {
        // SAFETY: by the contract of this verb.
        unsafe { pd::find(pd) }.and_then(|found| {
            // SAFETY: as above.
            let memory = unsafe { dm::find(dm) }?;
            let access = parse_access(access)?;
            let allowed = USABLE | Access::ZERO_BASED | Access::MW_BIND | Access::FLUSH_GLOBAL;
            let right = access.contains(Access::ZERO_BASED) && allowed.contains(access);
            if !right || !Arc::ptr_eq(memory.device(), found.domain.device()) {
                return Err(libc::EINVAL);
            }
            // SAFETY: live, as found above, and a context outlives its objects.
            let go_together = unsafe {
                Context::of(found.context).is_none_or(|ours| ours.goes_with((*dm).context))
            };
            if !go_together {
                return Err(Wrong::OTHER_CONTEXT.told(None, "ibv_reg_dm_mr", 0));
            }
            rehearse::may_make()?;
            let length = length as u64;
            let region =
                MemoryRegion::of_device_memory(&found.domain, &memory, offset, length, access);
            Ok(enter(pd, found, null_mut(), region.map_err(errno::of_register)?))
        })
    })
}

/// Registers a range of a dma-buf under the addresses from `iova` on (rule MR-37). The region keeps the memory, so the
/// program may close the descriptor.
///
/// # Safety
/// `pd` is null or readable.
pub unsafe extern "C" fn ibv_reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: by the contract of this verb.
    pointer_of("ibv_reg_dmabuf_mr", || unsafe {
        let made = register_dmabuf(pd, offset, length, iova, fd, access);
        made.map_err(|wrong| wrong.told(None, "ibv_reg_dmabuf_mr", 0))
    })
}

/// # Safety
/// As [`ibv_reg_dmabuf_mr`].
pub(crate) unsafe fn register_dmabuf(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> Result<*mut ibv_mr, Wrong> {
    profile::needs(Feature::DmaBuf)?;
    // SAFETY: by the contract of this function.
    let found = unsafe { pd::find(pd) };
    let found = found.map_err(|errno| Wrong::unknown("pd", errno, "PD-08"))?;
    let access = parse_access(access as c_uint)?;
    if !USABLE.contains(access) {
        let unusable = access.difference(USABLE).bits().into();
        return Err(Wrong::unsupported("access", unusable, "MR-37"));
    }
    if fd < 0 {
        return Err(Wrong::unknown("fd", libc::EBADF, ""));
    }
    if offset % page_size() != iova % page_size() {
        return Err(Wrong::invalid("iova", iova, "MR-29"));
    }
    rehearse::may_make()?;
    // SAFETY: the caller keeps it open meanwhile. If it is not open, the call is refused for that.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let length = length as u64;
    let writable = access.contains(Access::LOCAL_WRITE);
    let mapping = DmaBuf::map(fd, offset, length, writable).map_err(|error| match error {
        DmaBufError::NotOpen => Wrong::unknown("fd", libc::EBADF, ""),
        DmaBufError::Invalid => Wrong::invalid("length", length, ""),
        DmaBufError::NotMappable => Wrong::unsupported("fd", 0, ""),
        DmaBufError::NoMemory => libc::ENOMEM.into(),
    })?;
    let region = MemoryRegion::of_dma_buf(&found.domain, mapping, length, iova, access);
    // rdma-core's library sets the same.
    let addr = std::ptr::without_provenance_mut(offset as usize);
    Ok(enter(pd, found, addr, region.map_err(errno::of_register)?))
}

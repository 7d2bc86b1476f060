//! `ibv_reg_mr_ex(3)`: one verb to register all kinds of memory; and the registration of a range of a buffer.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use transom_abi::*;

use crate::buf;
use crate::entry::pointer_of;
use crate::mr::register;
use crate::special_mr::register_dmabuf;
use crate::wrong::Wrong;

/// Registers memory of the program, of a buffer of [`ibv_alloc_buf`](crate::ibv_alloc_buf), or of a dma-buf, as
/// [`ibv_reg_mr_iova2`](crate::ibv_reg_mr_iova2) or [`ibv_reg_dmabuf_mr`](crate::ibv_reg_dmabuf_mr) would. `EOPNOTSUPP`
/// for a DMA handle and for newer attributes. `EINVAL` unless exactly one kind of memory is named, or if the range is
/// not within the buffer (rules MR-38, MR-42, MR-44).
///
/// # Safety
/// `pd` is null or readable. `attr` is null or valid; it is an [`ibv_mr_init_attr_buf`] if its `comp_mask` has a
/// buffer.
pub unsafe extern "C" fn ibv_reg_mr_ex(
    pd: *mut ibv_pd,
    attr: *const ibv_mr_init_attr,
) -> *mut ibv_mr {
    // SAFETY: by the contract of this verb.
    unsafe { register_ex("ibv_reg_mr_ex", pd, attr) }
}

/// # Safety
/// As [`ibv_reg_mr_ex`].
unsafe fn register_ex(
    verb: &'static str,
    pd: *mut ibv_pd,
    attr: *const ibv_mr_init_attr,
) -> *mut ibv_mr {
    pointer_of(verb, || {
        // SAFETY: by the contract of this function.
        unsafe { check_memory(pd, attr).map_err(|wrong| wrong.told(None, verb, 0)) }?;
        // SAFETY: as above. `check_memory` has refused null.
        let attr = unsafe { &*attr };
        let has = |bit| attr.comp_mask & bit != 0;
        if has(ADDRESS) {
            let iova = if has(IBV_REG_MR_MASK_IOVA) { attr.iova } else { attr.addr as u64 };
            // SAFETY: by the contract of this function.
            return unsafe { register(verb, pd, attr.addr, attr.length, iova, attr.access as u32) };
        }
        let offset = if has(IBV_REG_MR_MASK_FD_OFFSET) { attr.fd_offset } else { 0 };
        // SAFETY: by the contract of this function.
        let made =
            unsafe { register_dmabuf(pd, offset, attr.length, attr.iova, attr.fd, attr.access) };
        made.map_err(|wrong| wrong.told(None, verb, 0))
    })
}

const ADDRESS: u64 = IBV_REG_MR_MASK_ADDR;
const DMABUF: u64 = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET;

/// Checks that exactly one kind of memory is named, with all attributes that it needs.
///
/// # Safety
/// As [`ibv_reg_mr_ex`].
unsafe fn check_memory(pd: *mut ibv_pd, attr: *const ibv_mr_init_attr) -> Result<(), Wrong> {
    let longer = attr.cast::<ibv_mr_init_attr_buf>();
    // SAFETY: by the contract of this function.
    let attr = unsafe { attr.as_ref() }.ok_or(libc::EINVAL)?;
    let has = |bit| attr.comp_mask & bit != 0;
    let invalid = |rule| Err(Wrong::invalid("comp_mask", attr.comp_mask, rule));
    if has(IBV_REG_MR_MASK_BUF) {
        // SAFETY: by the contract of this function.
        let within = unsafe { buf::holds((*longer).buf, pd, attr.addr, attr.length) };
        if !has(ADDRESS) || has(DMABUF) {
            return invalid("MR-42");
        }
        if !within {
            return Err(Wrong::invalid("addr, by the buf,", attr.addr as u64, "MR-42"));
        }
    }
    let unknown = attr.comp_mask & !(IBV_REG_MR_MASK_IOVA | ADDRESS | DMABUF | IBV_REG_MR_MASK_BUF);
    if unknown != 0 {
        let rule = if has(IBV_REG_MR_MASK_DMAH) { "MR-44" } else { "" };
        return Err(Wrong::unsupported("comp_mask", unknown, rule));
    }
    if has(ADDRESS) == has(IBV_REG_MR_MASK_FD) || (has(ADDRESS) && has(DMABUF)) {
        return invalid("MR-38");
    }
    if !has(ADDRESS) && !has(IBV_REG_MR_MASK_IOVA) {
        return invalid("MR-38");
    }
    Ok(())
}

/// Registers a range of a buffer, in the domain that it was allocated from (rule MR-42).
///
/// # Safety
/// `pd` and `buf` are null or readable.
pub unsafe extern "C" fn ibv_reg_buf_mr(
    pd: *mut ibv_pd,
    buf: *mut ibv_buf,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    let attr = ibv_mr_init_attr_buf {
        base: ibv_mr_init_attr {
            length,
            access,
            comp_mask: IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_BUF,
            iova: 0,
            addr,
            fd: -1,
            fd_offset: 0,
            dmah: null_mut(),
        },
        buf,
    };
    // SAFETY: by the contract of this verb. The attributes are of the longer kind.
    unsafe { register_ex("ibv_reg_buf_mr", pd, (&raw const attr).cast()) }
}

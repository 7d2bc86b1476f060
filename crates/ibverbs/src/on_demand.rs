//! `ibv_advise_mr(3)`: advice about demand-paged regions.

use std::ffi::c_int;

use transom_abi::*;
use transom_device::queue::Sge;
use transom_host::objects::{Prefetch, PrefetchError};

use crate::entry::errno_of;
use crate::pd;

/// Takes advice about pages that the program will need (rule MR-39).
///
/// # Safety
/// `pd` is null or readable; `list` has `count` readable elements.
pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: ibv_advise_mr_advice,
    flags: u32,
    list: *mut ibv_sge,
    count: u32,
) -> c_int {
    // SAFETY: by the contract of this verb.
    errno_of("ibv_advise_mr", || unsafe { advise(pd, advice, flags, list, count) })
}

/// # Safety
/// As [`advise_mr`].
unsafe fn advise(
    pd: *mut ibv_pd,
    advice: ibv_advise_mr_advice,
    flags: u32,
    list: *mut ibv_sge,
    count: u32,
) -> Result<(), c_int> {
    // SAFETY: by the contract of this function.
    let found = unsafe { pd::find(pd) }?;
    let advice = match advice {
        IBV_ADVISE_MR_ADVICE_PREFETCH => Prefetch::Read,
        IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE => Prefetch::Write,
        IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => Prefetch::Present,
        _ => return Err(libc::EINVAL),
    };
    if flags & !IBV_ADVISE_MR_FLAG_FLUSH != 0 || list.is_null() || count == 0 {
        return Err(libc::EINVAL);
    }
    const { assert!(size_of::<Sge>() == size_of::<ibv_sge>()) };
    // SAFETY: by the contract of this function; `Sge` is laid out as `ibv_sge`.
    let sges = unsafe { std::slice::from_raw_parts(list.cast::<Sge>(), count as usize) };
    let wait = flags & IBV_ADVISE_MR_FLAG_FLUSH != 0;
    found.domain.prefetch(advice, wait, sges).map_err(|error| match error {
        PrefetchError::Invalid => libc::EINVAL,
        PrefetchError::UnknownKey => libc::ENOENT,
        PrefetchError::Fault => libc::EFAULT,
        PrefetchError::NotWritable => libc::EPERM,
        PrefetchError::Inherited => libc::EIO,
    })
}

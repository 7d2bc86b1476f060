//! `ibv_reg_mr(3)`, `ibv_rereg_mr(3)`.

use std::ffi::{c_int, c_uint, c_void};

use transom_abi::*;
use transom_device::Access;
use transom_host::objects::{MemoryRegion, RegisterError, Registration};

use crate::object::Table;
use crate::pd::{self, Pd};
use crate::{device, errno_of, null_with, set_errno};

/// A region, and the C domain it was made in.
pub(crate) struct Mr {
    region: MemoryRegion,
    pd: Pd,
}

static MRS: Table<ibv_mr, Mr> = Table::new();

/// Whether the region a pointer names is zero-based; false if it names none.
///
/// # Safety
/// `mr` is null or readable.
pub(crate) unsafe fn is_zero_based(mr: *const ibv_mr) -> bool {
    // SAFETY: by the contract of this function.
    let based = unsafe {
        MRS.with(mr, |object| {
            let access = object.inner.as_ref().map(|mr| mr.region.registration().access);
            access.is_some_and(|access| access.contains(Access::ZERO_BASED))
        })
    };
    based.unwrap_or(false)
}

/// Checks the bits of `access` (rules MR-08 to MR-12).
fn parse_access(bits: c_uint) -> Result<Access, c_int> {
    let optional = IBV_ACCESS_OPTIONAL_RANGE;
    let known = Access::all().bits() | optional;
    if bits & !known != 0 {
        return Err(libc::EINVAL);
    }
    let access = Access::from_bits_truncate(bits);
    if access.intersects(Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT) {
        return Err(libc::EOPNOTSUPP);
    }
    if access.contains(Access::HUGETLB) && !access.contains(Access::ON_DEMAND) {
        return Err(libc::EINVAL);
    }
    Ok(access)
}

fn errno(error: RegisterError) -> c_int {
    match error {
        RegisterError::Invalid => libc::EINVAL,
        RegisterError::Fault => libc::EFAULT,
        RegisterError::Exhausted => libc::ENOMEM,
        RegisterError::Busy => libc::EBUSY,
    }
}

/// # Safety
/// `pd` is null or readable.
unsafe fn register(
    pd_pointer: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> Result<*mut ibv_mr, c_int> {
    // SAFETY: by the contract of this function.
    let pd = unsafe { pd::find(pd_pointer) }?;
    let access = parse_access(access)?;
    if length as u64 > device::MAX_REGION {
        return Err(libc::EINVAL);
    }
    let registration =
        Registration { address: address as u64, length: length as u64, iova, access };
    let region = MemoryRegion::register(&pd.adapter, &pd.domain, registration).map_err(errno)?;
    let key = region.key().0;
    let abi = ibv_mr {
        context: pd.context,
        pd: pd_pointer,
        addr: address,
        length,
        handle: 0,
        lkey: key,
        rkey: key,
    };
    Ok(MRS.insert(abi, |_| Mr { region, pd }))
}

/// Registers memory under its own addresses (rules A.2).
///
/// # Safety
/// `pd` is null or readable.
pub unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: by the contract of this verb.
    let mr = unsafe { register(pd, address, length, address as u64, access as c_uint) };
    mr.unwrap_or_else(null_with)
}

/// Registers memory under the addresses from `iova` on (rules MR-28, MR-29, MR-32).
///
/// # Safety
/// `pd` is null or readable.
pub unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: by the contract of this verb.
    let mr = unsafe { register(pd, address, length, iova, access as c_uint) };
    mr.unwrap_or_else(null_with)
}

/// As [`ibv_reg_mr_iova`]; `access` may have optional bits, as it may there.
///
/// # Safety
/// `pd` is null or readable.
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: by the contract of this verb.
    let mr = unsafe { register(pd, address, length, iova, access) };
    mr.unwrap_or_else(null_with)
}

/// Ends a registration; `EBUSY` while a window is bound, `ENOENT` if it is none (rules DR-01 to DR-05).
///
/// # Safety
/// `mr` is null or readable.
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    errno_of((|| {
        // SAFETY: by the contract of this verb.
        let mut taken = unsafe { MRS.take(mr) }?;
        let Mr { region, pd } = taken.inner.take().ok_or(libc::ENOENT)?;
        match region.deregister() {
            Ok(()) => Ok(()),
            Err((region, _)) => {
                taken.put_back(Mr { region, pd });
                Err(libc::EBUSY)
            }
        }
    })())
}

/// Changes a registration; zero, or a code of `enum ibv_rereg_mr_err_code` (rules RR-01 to RR-12).
///
/// # Safety
/// `mr` and `pd` are null or readable.
pub unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let flags = flags as c_uint;
    let moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION != 0;
    let wrong = flags & !IBV_REREG_MR_FLAGS_SUPPORTED != 0
        || (moves && (address.is_null() || length == 0))
        || (access != 0 && flags & IBV_REREG_MR_CHANGE_ACCESS == 0);
    if wrong {
        set_errno(libc::EINVAL);
        return IBV_REREG_MR_ERR_INPUT;
    }
    // SAFETY: by the contract of this verb.
    let changed = unsafe {
        MRS.with(mr, |object| {
            let ours = object.inner.as_mut().ok_or(libc::ENOENT)?;
            let mut registration = ours.region.registration();
            if moves {
                // As at registration (rule MR-27).
                if length as u64 > device::MAX_REGION {
                    return Err(libc::EINVAL);
                }
                registration.address = address as u64;
                registration.length = length as u64;
                registration.iova = address as u64;
            }
            if flags & IBV_REREG_MR_CHANGE_ACCESS != 0 {
                registration.access = parse_access(access as c_uint)?;
            }
            let new_pd = match flags & IBV_REREG_MR_CHANGE_PD {
                0 => None,
                _ => Some(pd::find(pd)?),
            };
            let domain = new_pd.as_ref().map(|pd| &pd.domain);
            ours.region.change(domain, registration).map_err(errno)?;
            if let Some(new_pd) = new_pd {
                ours.pd = new_pd;
                object.abi.pd = pd;
            }
            object.abi.addr = registration.address as *mut c_void;
            object.abi.length = registration.length as usize;
            Ok(())
        })
    };
    match changed {
        // Not a region, or not any more (rule RR-01).
        Err(_) => {
            set_errno(libc::EINVAL);
            IBV_REREG_MR_ERR_INPUT
        }
        Ok(Err(errno)) => {
            set_errno(errno);
            IBV_REREG_MR_ERR_CMD
        }
        Ok(Ok(())) => 0,
    }
}

/// Ends the registrations of a context that is closed. One that a window of another context is
/// bound to stays until that is gone, as it would for `ibv_dereg_mr`.
pub(crate) fn free_all(context: *mut ibv_context) {
    for mut taken in MRS.take_all(context) {
        if let Some(Mr { region, pd }) = taken.inner.take()
            && let Err((region, _)) = region.deregister()
        {
            taken.put_back(Mr { region, pd });
        }
    }
}

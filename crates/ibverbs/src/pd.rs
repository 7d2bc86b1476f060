//! `ibv_alloc_pd(3)`.

use std::ffi::c_int;
use std::sync::Arc;

use transom_abi::{ibv_context, ibv_pd};
use transom_host::Adapter;
use transom_host::objects::ProtectionDomain;

use crate::context::Context;
use crate::object::Table;
use crate::{errno_of, null_with};

/// A protection domain and the device it is on.
#[derive(Clone)]
pub(crate) struct Pd {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) domain: Arc<ProtectionDomain>,
    pub(crate) context: *mut ibv_context,
}

// SAFETY: the context pointer is only handed back to C.
unsafe impl Send for Pd {}

static PDS: Table<ibv_pd, Pd> = Table::new();

/// The domain a pointer names; an unknown one is `ENOENT` (rule PD-08).
///
/// # Safety
/// `pd` is null or readable.
pub(crate) unsafe fn find(pd: *const ibv_pd) -> Result<Pd, c_int> {
    // SAFETY: by the contract of this function.
    let found = unsafe { PDS.with(pd, |object| object.inner.clone()) }?;
    found.ok_or(libc::ENOENT)
}

/// Allocates a protection domain (rules PD-01, PD-11).
///
/// # Safety
/// `context` is from [`crate::ibv_open_device`].
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: by the contract of this verb.
    let Some(ours) = (unsafe { Context::of(context) }) else { return null_with(libc::EINVAL) };
    let Some(domain) = ours.adapter.allocate_domain() else { return null_with(libc::ENOMEM) };
    let adapter = ours.adapter.clone();
    ours.adopt();
    PDS.insert(ibv_pd { context, handle: 0 }, |_| Pd { adapter, domain, context })
}

/// Frees a protection domain; `EBUSY` while something belongs to it (rules PD-02 to PD-09).
///
/// # Safety
/// `pd` is null or readable.
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    errno_of((|| {
        // SAFETY: by the contract of this verb.
        let mut taken = unsafe { PDS.take(pd) }?;
        let ours = taken.inner.take().ok_or(libc::ENOENT)?;
        if ours.adapter.free_domain(&ours.domain).is_err() {
            taken.put_back(ours);
            return Err(libc::EBUSY);
        }
        // SAFETY: a context outlives its domains.
        unsafe { Context::release(ours.context) };
        Ok(())
    })())
}

/// Frees the protection domains of a context that is closed.
pub(crate) fn free_all(context: *mut ibv_context) {
    for mut taken in PDS.take_all(context) {
        let Some(ours) = taken.inner.take() else { continue };
        if ours.adapter.free_domain(&ours.domain).is_err() {
            taken.put_back(ours);
            continue;
        }
        // SAFETY: this domain is the one that is counted off.
        unsafe { Context::release(context) };
    }
}

//! `ibv_alloc_pd(3)`, `ibv_import_pd(3)`.

use std::ffi::c_int;
use std::sync::Arc;

use transom_abi::{ibv_context, ibv_pd};
use transom_host::objects::ProtectionDomain;
use transom_system::fork::HeldOverForks;

use crate::context::Context;
use crate::entry::{effect_always, errno_always, pointer_of};
use crate::object::Table;
use crate::wrong::Wrong;

/// A protection domain, and the context of this name of it.
#[derive(Clone)]
pub(crate) struct Pd {
    pub(crate) domain: Arc<ProtectionDomain>,
    pub(crate) context: *mut ibv_context,
    /// Whether it is a second name, made by [`ibv_import_pd`].
    imported: bool,
}

// SAFETY: the context pointer is only passed back to C.
unsafe impl Send for Pd {}
// SAFETY: as for `Send`.
unsafe impl Sync for Pd {}

static PDS: Table<ibv_pd, Pd> = Table::new();

/// The lock of all of them.
pub(crate) fn lock() -> &'static dyn HeldOverForks {
    &PDS
}

/// The domain that a pointer names. `ENOENT` if it is unknown, or was freed under another name (rule PD-08).
///
/// # Safety
/// `pd` is null or readable.
pub(crate) unsafe fn find(pd: *const ibv_pd) -> Result<Pd, c_int> {
    // SAFETY: by the contract of this function.
    let found = unsafe { PDS.with(pd, |object| object.inner.clone()) }?;
    if found.domain.is_closed() { Err(libc::ENOENT) } else { Ok(found) }
}

/// Adds a domain made in a context.
pub(crate) fn enter(
    context: *mut ibv_context,
    ours: &Context,
    domain: Arc<ProtectionDomain>,
    imported: bool,
) -> *mut ibv_pd {
    ours.adopt();
    PDS.insert(ibv_pd { context, handle: 0 }, |_| Pd { domain, context, imported })
}

/// Allocates a protection domain (rules PD-01, PD-11).
///
/// # Safety
/// `context` is from [`crate::ibv_open_device`].
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    pointer_of("ibv_alloc_pd", || {
        // SAFETY: by the contract of this verb.
        let ours = unsafe { Context::to_make_in(context) }?;
        let domain = ProtectionDomain::allocate(ours.device(), ours.listed).ok_or(libc::ENOMEM)?;
        Ok(enter(context, ours, domain, false))
    })
}

/// Finds a domain of the same device by its handle, and makes a second name for it in this context.
///
/// # Safety
/// `context` is from [`crate::ibv_open_device`] or [`crate::ibv_import_device`].
pub unsafe extern "C" fn ibv_import_pd(context: *mut ibv_context, handle: u32) -> *mut ibv_pd {
    pointer_of("ibv_import_pd", || {
        // SAFETY: by the contract of this verb.
        let ours = unsafe { Context::to_make_in(context) }?;
        let found = PDS.by_handle(handle, |object| object.inner.clone());
        let ours_too = |pd: &Pd| {
            // SAFETY: a context outlives its domains.
            let is_there = unsafe { ours.goes_with(pd.context) };
            is_there && Arc::ptr_eq(pd.domain.device(), ours.device())
        };
        let usable = |pd: &Pd| ours_too(pd) && !pd.domain.is_closed();
        match found.filter(usable) {
            Some(pd) => Ok(enter(context, ours, pd.domain, true)),
            None => Err(libc::ENOENT),
        }
    })
}

/// Ends an imported name. The domain itself stays. Nothing happens if the name is not imported.
///
/// # Safety
/// `pd` is null or readable.
pub unsafe extern "C" fn ibv_unimport_pd(pd: *mut ibv_pd) {
    effect_always(|| {
        // SAFETY: by the contract of this verb.
        let Ok(mut taken) = (unsafe { PDS.take(pd) }) else { return };
        match taken.inner.take() {
            // SAFETY: a context outlives its domains.
            Some(ours) if ours.imported => unsafe { Context::release(ours.context) },
            Some(ours) => taken.put_back(ours),
            None => {}
        }
    })
}

/// Frees a protection domain, under any of its names. `EBUSY` while something belongs to it (rules PD-02 to PD-10).
///
/// # Safety
/// `pd` is null or readable.
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    errno_always("ibv_dealloc_pd", || {
        // SAFETY: by the contract of this verb.
        unsafe { PDS.check_unused(pd, |pd| pd.domain.check_unused(), busy) }?;
        // SAFETY: by the contract of this verb.
        let mut taken = unsafe { PDS.take(pd) }?;
        let ours = taken.inner.take().ok_or(libc::ENOENT)?;
        if ours.domain.close().is_err() {
            let gone = ours.domain.is_closed();
            taken.put_back(ours);
            return Err(if gone { libc::ENOENT } else { libc::EBUSY });
        }
        // SAFETY: a context outlives its domains.
        unsafe { Context::release(ours.context) };
        Ok(())
    })
}

/// Notes what belongs to a domain that the program wants to free.
#[cold]
fn busy(pd: &Pd) -> c_int {
    // SAFETY: a context outlives its domains.
    let context = unsafe { Context::of(pd.context) };
    let holders = context.map(|ours| ours.adapter.holders_of_domain(&pd.domain));
    Wrong::held(holders.unwrap_or_default(), "PD-02").told(None, "ibv_dealloc_pd", 0)
}

/// Frees the protection domains of a context, which is being closed. Parent domains come first, because the domains
/// that they stand for are older.
pub(crate) fn free_all(context: *mut ibv_context) {
    for mut taken in PDS.take_all(context).into_iter().rev() {
        let Some(ours) = taken.inner.take() else { continue };
        let gone = ours.imported || ours.domain.is_closed();
        if !gone && ours.domain.close().is_err() {
            taken.put_back(ours);
            continue;
        }
        // SAFETY: this call counts off this domain.
        unsafe { Context::release(context) };
    }
}

//! `ibv_alloc_mw(3)`.

use std::ffi::{c_int, c_uint};

use transom_abi::*;
use transom_device::Access;
use transom_host::objects::MemoryWindow;
use transom_system::fork::HeldOverForks;

use crate::entry::{errno_always, pointer_of};
use crate::object::{Table, trusted};
use crate::wrong::Wrong;
use crate::{pd, rehearse};

static MWS: Table<ibv_mw, MemoryWindow> = Table::new();

/// The lock of all of them.
pub(crate) fn lock() -> &'static dyn HeldOverForks {
    &MWS
}

/// Allocates an unbound window (rules MWA-01 to MWA-10).
///
/// # Safety
/// `pd` is null or readable.
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    pointer_of("ibv_alloc_mw", || {
        // SAFETY: by the contract of this verb.
        unsafe { alloc(pd, kind).map_err(|wrong| wrong.told(None, "ibv_alloc_mw", 0)) }
    })
}

/// # Safety
/// As [`alloc_mw`].
unsafe fn alloc(pd: *mut ibv_pd, kind: ibv_mw_type) -> Result<*mut ibv_mw, Wrong> {
    // SAFETY: by the contract of this function.
    let found = unsafe { pd::find(pd) };
    let found = found.map_err(|errno| Wrong::unknown("pd", errno, "PD-08"))?;
    let type1 = match kind {
        IBV_MW_TYPE_1 => true,
        IBV_MW_TYPE_2 => false,
        _ => return Err(Wrong::invalid("type", kind.into(), "MWA-03")),
    };
    rehearse::may_make()?;
    let window = MemoryWindow::allocate(&found.domain, type1);
    let window = window.map_err(|error| Wrong::of_object(error, ""))?;
    let rkey = window.key().0;
    let abi = ibv_mw { context: found.context, pd, rkey, handle: 0, type_: kind };
    Ok(MWS.insert(abi, |_| window))
}

/// Unbinds and frees a window (rules MWA-12 to MWA-17).
///
/// # Safety
/// `mw` is null or readable.
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    errno_always("ibv_dealloc_mw", || {
        // SAFETY: by the contract of this verb.
        let mut taken = unsafe { MWS.take(mw) }?;
        taken.inner.take().ok_or(libc::ENOENT)?.deallocate();
        Ok(())
    })
}

/// Whether it is not freed.
///
/// # Safety
/// `mw` is null or readable.
pub(crate) unsafe fn is_live(mw: *const ibv_mw) -> bool {
    // SAFETY: by the contract of this function.
    unsafe { trusted::<ibv_mw, MemoryWindow>(mw) }.is_some()
}

/// The rights that a bind asks for. A window has remote rights only. LOCAL_WRITE is a right that some of them need in
/// the region, and programs name it with them (rule T1-14).
pub(crate) fn rights(flags: c_uint) -> Access {
    Access::from_bits_retain(flags & !IBV_ACCESS_LOCAL_WRITE)
}

/// Frees the windows of a context, which is being closed.
pub(crate) fn free_all(context: *mut ibv_context) {
    for mut taken in MWS.take_all(context) {
        if let Some(window) = taken.inner.take() {
            window.deallocate();
        }
    }
}

//! `ibv_alloc_mw(3)`, `ibv_bind_mw(3)`.

use std::ffi::{c_int, c_uint};

use transom_abi::*;
use transom_device::Access;
use transom_device::protection::{Bind, Key};
use transom_device::queue::{LocalOp, Remote, SendFlags, SendOp, SendRequest};
use transom_host::objects::{MemoryWindow, QueuePair};
use transom_host::registry::CallFault;

use crate::entry::{errno_always, guarded, pointer_of, zero_or};
use crate::object::Table;
use crate::wrong::Wrong;
use crate::{mr, pd, post, qp};

static MWS: Table<ibv_mw, MemoryWindow> = Table::new();

/// Allocates a window, not bound (rules MWA-01 to MWA-10).
///
/// # Safety
/// `pd` is null or readable.
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    pointer_of(|| {
        // SAFETY: by the contract of this verb.
        unsafe { alloc(pd, kind).map_err(|wrong| wrong.told_in(pd, "ibv_alloc_mw")) }
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
    let window = MemoryWindow::allocate(&found.adapter, &found.domain, type1);
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
    errno_always(|| {
        // SAFETY: by the contract of this verb.
        let mut taken = unsafe { MWS.take(mw) }?;
        taken.inner.take().ok_or(libc::ENOENT)?.deallocate();
        Ok(())
    })
}

/// The rights that a bind asks for. A window has remote rights only; LOCAL_WRITE is what its region
/// needs for some of them, and programs name it along with them (rule T1-14).
pub(crate) fn rights(flags: c_uint) -> Access {
    Access::from_bits_retain(flags & !IBV_ACCESS_LOCAL_WRITE)
}

/// Posts a bind of a type 1 window (rules C.1). C calls it through an inline that has checked type,
/// region and domain; it is checked again here for whoever does not.
///
/// # Safety
/// All pointers are null or valid.
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    zero_or(guarded(|| {
        if qp.is_null() || mw.is_null() || bind.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: not null, so valid by the contract of this verb.
        let pair = unsafe { qp::of(qp) }.ok_or(libc::EINVAL)?;
        // SAFETY: as above.
        let posted = unsafe { post_bind(pair, mw, &*bind) };
        posted
            .map_err(|wrong| wrong.told(Some(pair.adapter()), "ibv_bind_mw", pair.number().bits()))
    }))
}

/// # Safety
/// `mw` is readable and writable, the region null or readable.
unsafe fn post_bind(qp: &QueuePair, mw: *mut ibv_mw, bind: &ibv_mw_bind) -> Result<(), Wrong> {
    let info = &bind.bind_info;
    // SAFETY: by the contract of this function.
    let (kind, pd, rkey) = unsafe { ((*mw).type_, (*mw).pd, (*mw).rkey) };
    if kind != IBV_MW_TYPE_1 {
        return Err(Wrong::invalid("mw->type", kind.into(), "T1-01"));
    }
    if info.mr.is_null() && (info.addr != 0 || info.length != 0) {
        return Err(Wrong::invalid("bind_info.mr", 0, "T1-02"));
    }
    // SAFETY: by the contract of this function.
    if !info.mr.is_null() && unsafe { (*info.mr).pd } != pd {
        return Err(Wrong::unknown("bind_info.mr, by the pd,", libc::EPERM, "T1-03"));
    }
    let flags = SendFlags::from_bits_truncate(bind.send_flags);
    // Zero-based windows are for type 2 (rule T1-05), other rights for none.
    let access = rights(info.mw_access_flags);
    if !Access::REMOTE.contains(access) {
        return Err(Wrong::invalid("mw_access_flags", access.bits().into(), "T1-05"));
    }
    if flags.contains(SendFlags::INLINE) {
        return Err(Wrong::invalid("send_flags", bind.send_flags.into(), "PS-05"));
    }
    if !info.mr.is_null() {
        // SAFETY: as above.
        let allowed = unsafe { mr::allows_type1(info.mr) };
        allowed.map_err(|errno| {
            let rule = if errno == libc::EINVAL { "T1-06" } else { "T1-07" };
            Wrong::with(errno, CallFault::Unnamed, 0, rule)
        })?;
    }
    let window = Key(rkey).next();
    let bind_op = Bind {
        window,
        // SAFETY: as above.
        region: if info.mr.is_null() { Key(0) } else { Key(unsafe { (*info.mr).lkey }) },
        address: info.addr,
        length: info.length,
        access,
    };
    let request = SendRequest {
        wr_id: bind.wr_id,
        op: SendOp::Local(LocalOp::BindType1(bind_op)),
        flags,
        sges: &[],
        inline: None,
        remote: Remote::Connected,
    };
    qp.post_send(&request).map_err(|error| post::wrong(error, qp, Some(IBV_WR_BIND_MW), 0, 0))?;
    // The new key counts from now on, whatever comes of the bind (rules KEY-06, KEY-08).
    // SAFETY: as above.
    unsafe { (*mw).rkey = window.0 };
    Ok(())
}

/// Frees the windows of a context that is closed.
pub(crate) fn free_all(context: *mut ibv_context) {
    for mut taken in MWS.take_all(context) {
        if let Some(window) = taken.inner.take() {
            window.deallocate();
        }
    }
}

//! `ibv_bind_mw(3)`: the bind of a type 1 window.

use std::ffi::c_int;

use transom_abi::*;
use transom_device::protection::{Bind, Key, Operation, WindowType, may_grant};
use transom_device::queue::{LocalOp, Remote, SendFlags, SendOp, SendRequest};
use transom_host::objects::{More, QueuePair};
use transom_system::registry::CallFault;

use crate::entry::{guarded_always, zero_or};
use crate::wrong::Wrong;
use crate::{mr, mw, post, qp};

/// Posts a bind of a type 1 window (rules C.1). The inline of `verbs.h` has checked type, region and domain before.
/// They are checked again here, for callers that do not use the inline.
///
/// # Safety
/// All pointers are null or valid.
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    zero_or(guarded_always("ibv_bind_mw", || {
        if qp.is_null() || mw.is_null() || bind.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: it is not null, so it is valid by the contract of this verb.
        let pair = &unsafe { qp::usable(qp) }?.pair;
        // SAFETY: as above.
        let posted = unsafe { post_bind(pair, mw, &*bind) };
        posted.map_err(|wrong| wrong.told(Some(pair.device()), "ibv_bind_mw", pair.number().bits()))
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
    let access = mw::rights(info.mw_access_flags);
    may_grant(WindowType::Type1, access).map_err(|reason| {
        let rule = reason.rule(Operation::Bind);
        Wrong::invalid("mw_access_flags", access.bits().into(), rule)
    })?;
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
        region: if info.mr.is_null() { Key(0) } else { unsafe { mr::key_of(info.mr) } },
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
    qp.post_send(&request, More::Nothing)
        .map_err(|error| post::wrong(error, qp, Some(IBV_WR_BIND_MW), 0, 0))?;
    // The new key counts from now on, even if the bind fails later (rules KEY-06, KEY-08).
    // SAFETY: as above.
    unsafe { (*mw).rkey = window.0 };
    Ok(())
}

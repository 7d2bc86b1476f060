//! Where windows are bound: the posts, by the keys that the windows will have.

use std::ffi::c_int;

use transom_abi::*;
use transom_check::Call;
use transom_check::ledger::posting::Requests;
use transom_device::protection::Key;

use super::on;
use crate::check::written;
use crate::site;
use crate::{bind_mw, checked, watched};

/// The operations of a new context. In a process with an account, posts note where they bind windows.
pub(crate) fn operations(plain: verbs_context) -> verbs_context {
    if on().is_none() {
        return plain;
    }
    let bind_mw = Some(bind_mw_here as _);
    let ops = ibv_context_ops { bind_mw, post_send: Some(post_send_here), ..plain.context.ops };
    verbs_context { context: ibv_context { ops, ..plain.context }, ..plain }
}

/// # Safety
/// As [`watched::post_send`].
unsafe extern "C" fn post_send_here(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: by the contract of this function.
    posts(|| unsafe { checked::sends(wr, 0) });
    // SAFETY: as above.
    unsafe { watched::post_send(qp, wr, bad) }
}

/// # Safety
/// As [`bind_mw::bind_mw`].
unsafe extern "C" fn bind_mw_here(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    // SAFETY: by the contract of this function.
    if let (Some(auditor), Some(window)) = (on(), unsafe { mw.as_ref() }) {
        auditor.binds([Key(window.rkey).next().0], &site::call());
    }
    // SAFETY: as above.
    unsafe { bind_mw::bind_mw(qp, mw, bind) }
}

/// The program posts these requests. Some of them may bind windows.
pub(crate) fn posts<R: Requests>(requests: impl FnOnce() -> R) {
    let Some(auditor) = on() else { return };
    let requests = written(requests(), &Call::default());
    let mut keys = requests.iter().filter_map(|it| it.binds).map(|bind| bind.key).peekable();
    if keys.peek().is_some() {
        auditor.binds(keys, &site::call());
    }
}

//! The calls of the extended interface in a checked process: polls field by field, and requests that are built call by
//! call. They tell the ledger by themselves; here it hears of objects that are destroyed, or of the parent of a child.

use std::ffi::c_int;

use transom_abi::*;

use crate::check::is_on;
use crate::checked::{pair_used, queue_used};
use crate::{cq_ex, qp_ex, wr};

/// The operations of a new context. In a checked process, some of them are those of this module.
pub(crate) fn operations(plain: verbs_context) -> verbs_context {
    if !is_on() {
        return plain;
    }
    verbs_context { create_cq_ex: Some(create_cq_ex), create_qp_ex: Some(create_qp_ex), ..plain }
}

/// # Safety
/// As [`cq_ex::create_cq_ex`].
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: by the contract of this function. Nobody else knows the new queue yet.
    unsafe {
        let made = cq_ex::create_cq_ex(context, attr);
        if let Some(queue) = made.as_mut() {
            queue.start_poll = Some(start_poll);
            queue.next_poll = Some(next_poll);
        }
        made
    }
}

/// # Safety
/// As [`cq_ex::start_poll`].
pub(crate) unsafe extern "C" fn start_poll(
    cq: *mut ibv_cq_ex,
    attr: *mut ibv_poll_cq_attr,
) -> c_int {
    // SAFETY: by the contract of this function.
    unsafe {
        queue_used("ibv_start_poll", cq.cast());
        cq_ex::start_poll(cq, attr)
    }
}

/// # Safety
/// As [`cq_ex::next_poll`].
pub(crate) unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: by the contract of this function.
    unsafe {
        queue_used("ibv_next_poll", cq.cast());
        cq_ex::next_poll(cq)
    }
}

/// # Safety
/// As [`qp_ex::create_qp_ex`].
pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    init: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: by the contract of this function. Nobody else knows the new queue pair yet, and every queue pair has
    // room for the extended form.
    unsafe {
        let made = qp_ex::create_qp_ex(context, init);
        if let Some(pair) = made.cast::<ibv_qp_ex>().as_mut() {
            pair.wr_start = Some(wr_start);
            pair.wr_complete = Some(wr_complete);
        }
        made
    }
}

/// # Safety
/// As [`wr::start`].
unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: by the contract of this function.
    unsafe {
        pair_used("ibv_wr_start", qp.cast());
        wr::start(qp);
    }
}

/// # Safety
/// As [`wr::complete`].
pub(crate) unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: by the contract of this function.
    unsafe {
        pair_used("ibv_wr_complete", qp.cast());
        wr::complete(qp)
    }
}

//! Posts, polls and the arming of queues, of a program that a sanitizer watches (`transom_system::sanitizers`). They
//! call the plain verbs, and tell the sanitizer what the device may do with the program's memory. In any other program,
//! [`operations`](crate::operations) has the plain verbs.

use std::ffi::c_int;
use std::mem::offset_of;
use std::ops::Range;
use std::slice;

use transom_abi::*;
use transom_system::sanitizers::{self, Half, Posted};

use crate::requests::Requests;
use crate::sanitized::has_filled;
use crate::{cq, post, srq};

/// `told` if a sanitizer watches this program, and otherwise `plain`.
pub(crate) fn told_or<F>(plain: F, told: F) -> F {
    if sanitizers::are_told() { told } else { plain }
}

/// # Safety
/// As of [`post::sges`].
unsafe fn buffers(list: *const ibv_sge, count: c_int) -> &'static [ibv_sge] {
    match usize::try_from(count) {
        // SAFETY: by the contract of this function. The callers use it during their call only.
        Ok(count) if !list.is_null() => unsafe { slice::from_raw_parts(list, count) },
        _ => &[],
    }
}

/// # Safety
/// As of [`post::post_send`].
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    let _inside = sanitizers::inside();
    // SAFETY: by the contract of this verb.
    for wr in unsafe { Requests::of(wr) } {
        // SAFETY: as above.
        let wr = unsafe { &*wr };
        let name = match wr.opcode {
            IBV_WR_SEND | IBV_WR_SEND_WITH_IMM | IBV_WR_SEND_WITH_INV => "SEND",
            IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM => "WRITE",
            IBV_WR_RDMA_READ => "READ",
            IBV_WR_ATOMIC_CMP_AND_SWP => "compare and swap",
            IBV_WR_ATOMIC_FETCH_AND_ADD => "fetch and add",
            _ => "work request",
        };
        // SAFETY: by the contract of this verb.
        let sges = unsafe { buffers(wr.sg_list, wr.num_sge) };
        let posted = sges.iter().map(|sge| posted(Half::Send, wr.wr_id, name, sge));
        sanitizers::note_post(posted);
        if wr.send_flags & IBV_SEND_INLINE != 0 {
            sges.iter().for_each(|sge| sanitizers::are_sent(sge.addr, sge.length.into()));
        }
    }
    // SAFETY: by the contract of this verb.
    unsafe {
        sanitizers::posted(Some((*qp).qp_num), Half::Send);
        let answer = post::post_send(qp, wr, bad);
        if answer != 0 {
            has_filled(bad);
        }
        answer
    }
}

fn posted(half: Half, wr_id: u64, name: &'static str, sge: &ibv_sge) -> Posted {
    Posted { half, wr_id, name, address: sge.addr, length: sge.length.into() }
}

/// # Safety
/// The list and what it points to is valid.
unsafe fn note_receives(list: *mut ibv_recv_wr) {
    // SAFETY: by the contract of this function.
    for wr in unsafe { Requests::of(list) } {
        // SAFETY: as above.
        let wr = unsafe { &*wr };
        // SAFETY: as above.
        let sges = unsafe { buffers(wr.sg_list, wr.num_sge) };
        let posted = sges.iter().map(|sge| posted(Half::Receive, wr.wr_id, "receive", sge));
        sanitizers::note_post(posted);
    }
}

/// # Safety
/// As of [`post::post_recv`].
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: by the contract of this verb.
    unsafe {
        let _inside = sanitizers::inside();
        note_receives(wr);
        sanitizers::posted(Some((*qp).qp_num), Half::Receive);
        let answer = post::post_recv(qp, wr, bad);
        if answer != 0 {
            has_filled(bad);
        }
        answer
    }
}

/// # Safety
/// As of [`srq::post_srq_recv`].
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: by the contract of this verb.
    unsafe {
        let _inside = sanitizers::inside();
        note_receives(wr);
        sanitizers::posted(None, Half::Receive);
        let answer = srq::post_srq_recv(srq, wr, bad);
        if answer != 0 {
            has_filled(bad);
        }
        answer
    }
}

/// # Safety
/// As of [`cq::poll_cq`].
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, limit: c_int, wc: *mut ibv_wc) -> c_int {
    let _inside = sanitizers::inside();
    // SAFETY: by the contract of this verb.
    let count = unsafe { cq::poll_cq(cq, limit, wc) };
    if count > 0 {
        sanitizers::polled();
        // SAFETY: the verb has written this many.
        let polled = unsafe { slice::from_raw_parts(wc, count as usize) };
        polled.iter().for_each(has_completed);
    }
    count
}

/// # Safety
/// As of [`cq::req_notify_cq`].
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // Another thread may get the event.
    sanitizers::released();
    // SAFETY: by the contract of this verb.
    unsafe { cq::req_notify_cq(cq, solicited_only) }
}

/// Fields of a completion that are not defined if its status is an error (`ibv_poll_cq(3)`).
const UNDEFINED: [Range<usize>; 3] = [
    offset_of!(ibv_wc, opcode)..offset_of!(ibv_wc, vendor_err),
    offset_of!(ibv_wc, byte_len)..offset_of!(ibv_wc, qp_num),
    offset_of!(ibv_wc, src_qp)..size_of::<ibv_wc>(),
];

/// The program gets a completion.
fn has_completed(wc: &ibv_wc) {
    has_filled(wc);
    let failed = wc.status != IBV_WC_SUCCESS;
    let half = match wc.opcode & IBV_WC_RECV {
        _ if failed => None,
        0 => Some(Half::Send),
        _ => Some(Half::Receive),
    };
    sanitizers::completed(wc.qp_num, half);
    for field in UNDEFINED.into_iter().filter(|_| failed) {
        let first = (&raw const *wc) as u64 + field.start as u64;
        sanitizers::left_undefined(first, field.len() as u64);
    }
}

/// The current completion of a queue that the program reads field by field.
pub(crate) fn is_current(cq: *const ibv_cq_ex, wc: &ibv_wc) {
    if sanitizers::are_told() {
        sanitizers::polled();
        sanitizers::completed(wc.qp_num, None);
        has_filled(cq);
    }
}

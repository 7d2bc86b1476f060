//! Posts and polls in a rehearsal (`transom rehearse`). Contexts of other processes get the plain functions.
//!
//! The device itself begins work late (`transom_host::objects`).

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::OnceLock;

use transom_abi::*;
use transom_rehearse::Provocation;
use transom_system::rehearsal::{self, Rehearsal};

use crate::rehearse::POLLED;
use crate::{cq, qp};

/// The operations without a rehearsal.
static PLAIN: OnceLock<Plain> = OnceLock::new();

#[derive(Clone, Copy)]
struct Plain {
    poll_cq: unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int,
    req_notify_cq: unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int,
    post_send: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int,
}

/// The operations of a new context: in a rehearsal with those of this module.
pub(crate) fn operations(plain: verbs_context) -> verbs_context {
    let ops = &plain.context.ops;
    let all = (ops.poll_cq, ops.req_notify_cq, ops.post_send);
    let (Some(_), (Some(poll), Some(notify), Some(post))) = (rehearsal::on(), all) else {
        return plain;
    };
    PLAIN.get_or_init(|| Plain { poll_cq: poll, req_notify_cq: notify, post_send: post });
    let ops = ibv_context_ops {
        poll_cq: Some(poll_cq),
        req_notify_cq: Some(req_notify_cq),
        post_send: Some(post_send),
        ..plain.context.ops
    };
    verbs_context { context: ibv_context { ops, ..plain.context }, ..plain }
}

/// # Safety
/// As [`cq::poll_cq`].
unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, limit: c_int, wc: *mut ibv_wc) -> c_int {
    let (Some(rehearsal), Some(plain)) = (rehearsal::on(), PLAIN.get()) else { return -1 };
    // SAFETY: by the contract of this function.
    let Some(queue) = (unsafe { cq::of(cq) }) else {
        // SAFETY: as above.
        return unsafe { (plain.poll_cq)(cq, limit, wc) };
    };
    // SAFETY: the struct of a living queue.
    let (number, has_channel) = unsafe { ((*cq).handle, !(*cq).channel.is_null()) };
    queue.adapter.progress();
    let is_finding = limit > 0 && queue.cq.outlook().completions > 0;
    let mut most = limit;
    if is_finding {
        let mut all = POLLED.lock();
        let polled = all.entry(cq.addr()).or_default();
        let nth = polled.finding;
        polled.finding += 1;
        // Completions that come after an arming raise an event. Hidden ones would not.
        if !has_channel || !(polled.is_armed || polled.shows_all) {
            if rehearsal.provokes(Provocation::HiddenCompletions, number, nth).is_some() {
                return 0;
            }
            let is_single = || rehearsal.provokes(Provocation::SingleCompletions, number, nth);
            if limit > 1 && is_single().is_some() {
                most = 1;
            }
        }
    }
    // SAFETY: as above.
    let count = unsafe { (plain.poll_cq)(cq, most, wc) };
    let mut all = POLLED.lock();
    let polled = all.entry(cq.addr()).or_default();
    if count < limit && most == limit && !polled.is_armed {
        polled.shows_all = false;
    }
    let Ok(count @ 1..) = usize::try_from(count) else { return count };
    // SAFETY: so many were just written.
    let given = unsafe { std::slice::from_raw_parts_mut(wc, count) };
    for completion in given {
        poison(rehearsal, completion, number, polled.given);
        polled.given += 1;
    }
    count as c_int
}

/// Fills the fields of a completion that mean nothing with rubbish (`ibv_poll_cq(3)`).
fn poison(rehearsal: &Rehearsal, wc: &mut ibv_wc, queue: u32, nth: u64) {
    let Some(rubbish) = rehearsal.provokes(Provocation::PoisonedFields, queue, nth) else { return };
    let rubbish = rubbish as u32 | 0x8000_0001;
    let has_failed = wc.status != IBV_WC_SUCCESS;
    let is_receive = !has_failed && wc.opcode & IBV_WC_RECV != 0;
    if has_failed {
        wc.opcode = rubbish;
        wc.wc_flags = rubbish;
    }
    let has_length =
        is_receive || matches!(wc.opcode, IBV_WC_RDMA_READ | IBV_WC_COMP_SWAP | IBV_WC_FETCH_ADD);
    if has_failed || !has_length {
        wc.byte_len = rubbish;
    }
    if has_failed || wc.wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV) == 0 {
        wc.imm.imm_data = rubbish;
    }
    // Of datagrams they say who sent them. Only datagrams have a GRH or a remote queue pair of their own here.
    let is_datagram = is_receive && wc.src_qp != 0;
    if !is_datagram {
        wc.src_qp = rubbish;
        (wc.pkey_index, wc.slid) = (rubbish as u16, rubbish as u16);
        (wc.sl, wc.dlid_path_bits) = (rubbish as u8, rubbish as u8);
    }
}

/// # Safety
/// As [`cq::req_notify_cq`].
unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    let (Some(rehearsal), Some(plain)) = (rehearsal::on(), PLAIN.get()) else {
        return libc::EINVAL;
    };
    // SAFETY: by the contract of this function.
    if let Some(queue) = unsafe { cq::of(cq) } {
        queue.adapter.progress();
        let mut all = POLLED.lock();
        let polled = all.entry(cq.addr()).or_default();
        (polled.is_armed, polled.shows_all) = (true, true);
        if queue.cq.outlook().completions > 0 {
            let nth = polled.armed_late;
            polled.armed_late += 1;
            // SAFETY: the struct of a living queue.
            let number = unsafe { (*cq).handle };
            if rehearsal.provokes(Provocation::SilentArming, number, nth).is_some() {
                queue.cq.take_as_told();
            }
        }
    }
    // SAFETY: by the contract of this function.
    unsafe { (plain.req_notify_cq)(cq, solicited_only) }
}

/// # Safety
/// As [`crate::post::post_send`].
unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    let (Some(rehearsal), Some(plain)) = (rehearsal::on(), PLAIN.get()) else {
        return libc::EINVAL;
    };
    // SAFETY: by the contract of this function.
    let plain = |wr| unsafe { (plain.post_send)(qp, wr, bad) };
    // SAFETY: as above.
    let Some(pair) = (unsafe { qp::of(qp) }) else { return plain(wr) };
    // The last request that is posted, and the first one that is refused.
    let (mut last, mut next) = (null_mut::<ibv_send_wr>(), wr);
    while !next.is_null() {
        let (object, nth) = pair.count_post();
        if rehearsal.provokes(Provocation::RefusedPosts, object, nth).is_some() {
            break;
        }
        // SAFETY: the list is valid, by the contract of this function.
        (last, next) = (next, unsafe { (*next).next });
    }
    if next.is_null() {
        return plain(wr);
    }
    if !last.is_null() {
        // The list ends before the refused request, for as long as it is posted.
        // SAFETY: it is the caller's own list, which nobody else reads during the call.
        unsafe { (*last).next = null_mut() };
        let answer = plain(wr);
        // SAFETY: as above.
        unsafe { (*last).next = next };
        if answer != 0 {
            return answer;
        }
    }
    // SAFETY: null or writable, by the contract of this function.
    unsafe { bad.as_mut() }.into_iter().for_each(|bad| *bad = next);
    libc::ENOMEM
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule: REH-04
    #[test]
    fn without_a_rehearsal_contexts_keep_their_functions_and_nothing_is_refused() {
        let plain = crate::operations::operations();
        let of = |it: &verbs_context| {
            let ops = &it.context.ops;
            let poll = ops.poll_cq.map(|it| it as usize);
            let notify = ops.req_notify_cq.map(|it| it as usize);
            (poll, notify, ops.post_send.map(|it| it as usize))
        };
        let before = of(&plain);
        assert_eq!(of(&operations(plain)), before);
        assert_eq!((0..1000).filter_map(|_| crate::rehearse::may_make().err()).next(), None);
        assert!(!crate::rehearse::is_exact());
    }
}

//! Posts and polls that tell the ledger.
//!
//! The ledger hears of a request before it is posted, because another thread may poll its completion before the post
//! returns. If the post is refused, the ledger takes the request back.

use std::ffi::c_int;
use std::iter;
use std::ptr::null_mut;

use transom_abi::*;
use transom_check::ledger::posting::Requests;
use transom_check::ledger::{Bind, Posted, Thing};
use transom_device::protection::Key;
use transom_host::Limits;
use transom_system::sanitizers;

use crate::check::{buffer, id_of, is_on, on, rights, uses, written};
use crate::context::Context;
use crate::{bind_mw, cq, mr, mw, post, post_srq_ops, qp, requests, srq, told, watched};

/// The operations of a new context. In a checked process, some of them are those of this module.
pub(crate) fn operations(plain: verbs_context) -> verbs_context {
    if !is_on() {
        return plain;
    }
    let ops = ibv_context_ops {
        bind_mw: Some(bind_mw),
        poll_cq: Some(poll_cq),
        req_notify_cq: Some(req_notify_cq),
        post_send: Some(post_send),
        post_recv: Some(post_recv),
        post_srq_recv: Some(post_srq_recv),
        ..plain.context.ops
    };
    verbs_context {
        context: ibv_context { ops, ..plain.context },
        post_srq_ops: Some(post_srq_ops),
        ..plain
    }
}

/// # Safety
/// As [`post_srq_ops::post_srq_ops`].
unsafe extern "C" fn post_srq_ops(
    srq: *mut ibv_srq,
    wr: *mut ibv_ops_wr,
    bad: *mut *mut ibv_ops_wr,
) -> c_int {
    // SAFETY: by the contract of this function.
    let plain = |wr, bad| unsafe { post_srq_ops::post_srq_ops(srq, wr, bad) };
    // SAFETY: as above.
    unsafe { shared_queue_used("ibv_post_srq_ops", srq) };
    // SAFETY: as above.
    let Some(checker) = on().filter(|_| unsafe { srq::of(srq) }.is_some()) else {
        return plain(wr, bad);
    };
    // SAFETY: as above.
    let device = unsafe { device_of((*srq).context) };
    // Each is carried out by itself, so that its buffer is known by then.
    let mut next = wr;
    // SAFETY: the list is valid, by the contract of this function.
    while let Some(operation) = unsafe { next.as_mut() } {
        let (this, behind) = (next, operation.next);
        let mut one = ibv_ops_wr { next: null_mut(), ..*operation };
        let mut answer = 0;
        match one.opcode {
            IBV_WR_TAG_ADD => {
                let add = one.tm.add;
                let request = |posted: &mut Posted| {
                    // SAFETY: by the contract of this function.
                    unsafe { buffers(add.sg_list, add.num_sge, posted) };
                    receive(add.recv_wr_id, posted);
                };
                checker.adding(device, srq.addr(), request, || {
                    answer = plain(&mut one, &mut null_mut());
                    (answer == 0).then_some(one.tm.handle)
                });
            }
            _ => answer = plain(&mut one, &mut null_mut()),
        }
        if answer != 0 {
            // SAFETY: null or writable, by the contract of this function.
            unsafe { bad.as_mut() }.into_iter().for_each(|bad| *bad = this);
            return answer;
        }
        match one.opcode {
            IBV_WR_TAG_ADD => operation.tm.handle = one.tm.handle,
            IBV_WR_TAG_DEL => {
                checker.tell(|ledger| ledger.tag_removed(srq.addr(), one.tm.handle));
            }
            _ => {}
        }
        next = behind;
    }
    0
}

/// # Safety
/// As [`watched::post_send`].
unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: by the contract of this function.
    let plain = |bad| unsafe { watched::post_send(qp, wr, bad) };
    // SAFETY: as above.
    unsafe { pair_used("ibv_post_send", qp) };
    let Some(checker) = on() else { return plain(bad) };
    // SAFETY: as above.
    let Some(pair) = (unsafe { qp::of(qp) }) else { return plain(bad) };
    // SAFETY: as above.
    unsafe { binds_use(wr) };
    let device = id_of(pair.device());
    // SAFETY: as above.
    let requests = || unsafe { sends(wr, device) };
    let is_told = checker.sends(device, qp.addr(), requests());
    // Behind the post the list may be another's: another thread polls what it asked for, and frees it.
    let told = is_told.then(|| written(requests(), &checker.call()));
    let mut first_bad = null_mut();
    let answer = plain(&mut first_bad);
    if answer != 0 {
        // SAFETY: null or writable, by the contract of this function.
        unsafe { bad.as_mut() }.into_iter().for_each(|bad| *bad = first_bad);
    }
    // SAFETY: as above.
    let pair = unsafe { qp::of(qp) };
    if (answer != 0 || is_told)
        && let Some(pair) = pair
    {
        // Those that were refused are still the caller's.
        // SAFETY: as above.
        let refused = || unsafe { sends(first_bad, device) };
        let (mut requests, count) = match told {
            Some(all) => (all, if answer == 0 { 0 } else { refused().count() }),
            None => (written(refused(), &checker.call()), usize::MAX),
        };
        let taken = requests.len().saturating_sub(count);
        checker.posted(pair.device(), qp.addr(), &mut requests, taken, answer);
    }
    answer
}

/// # Safety
/// As [`bind_mw::bind_mw`].
unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: by the contract of this function.
    let plain = || unsafe { bind_mw::bind_mw(qp, mw, bind) };
    // SAFETY: as above.
    unsafe { pair_used("ibv_bind_mw", qp) };
    let Some(checker) = on() else { return plain() };
    // The verb looks its region up by itself.
    told::begin("ibv_bind_mw");
    // SAFETY: as above.
    unsafe { tell_unless(mw::is_live(mw), "ibv_bind_mw", Thing::Window, mw) };
    // SAFETY: as above.
    let (pair, window, asked) = unsafe { (qp::of(qp), mw.as_ref(), bind.as_ref()) };
    let (Some(pair), Some(window), Some(asked)) = (pair, window, asked) else { return plain() };
    let info = &asked.bind_info;
    let binds = Bind {
        device: id_of(pair.device()),
        key: Key(window.rkey).next().0,
        rights: rights(mw::rights(info.mw_access_flags)),
        is_type1: true,
    };
    let request = |posted: &mut Posted| {
        posted.buffers.clear();
        (posted.wr_id, posted.what) = (asked.wr_id, "bind");
        (posted.bytes, posted.sges, posted.remote, posted.adds) = (0, 0, None, None);
        (posted.is_target, posted.is_receive, posted.is_inline) = (false, false, false);
        posted.is_signaled = asked.send_flags & IBV_SEND_SIGNALED != 0;
        // A bind of length zero unbinds.
        posted.binds = (info.length > 0).then_some(binds);
    };
    checker.sends(binds.device, qp.addr(), iter::once(request));
    let mut requests = written(iter::once(request), &checker.call());
    let answer = plain();
    let taken = usize::from(answer == 0);
    checker.posted(pair.device(), qp.addr(), &mut requests, taken, answer);
    answer
}

/// # Safety
/// As [`watched::post_recv`].
unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: by the contract of this function.
    let plain = |bad| unsafe { watched::post_recv(qp, wr, bad) };
    // SAFETY: as above.
    unsafe { pair_used("ibv_post_recv", qp) };
    let Some(checker) = on() else { return plain(bad) };
    // SAFETY: as above.
    if unsafe { qp::of(qp) }.is_none() {
        return plain(bad);
    }
    // SAFETY: as above.
    let device = unsafe { device_of((*qp).context) };
    // SAFETY: as above.
    let requests = || unsafe { receives(wr) };
    checker.receives(device, qp.addr(), requests());
    let mut first_bad = null_mut();
    let answer = plain(&mut first_bad);
    if answer != 0 {
        // Those before are not the caller's any more: another thread may have polled them.
        // SAFETY: as above.
        let refused = written(unsafe { receives(first_bad) }, &checker.call());
        checker.tell(|ledger| ledger.receives_refused(qp.addr(), &refused));
        // SAFETY: null or writable, by the contract of this function.
        unsafe { bad.as_mut() }.into_iter().for_each(|bad| *bad = first_bad);
    }
    answer
}

/// # Safety
/// As [`srq::post_srq_recv`].
unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: by the contract of this function.
    let plain = |bad| unsafe { watched::post_srq_recv(srq, wr, bad) };
    // SAFETY: as above.
    unsafe { shared_queue_used("ibv_post_srq_recv", srq) };
    let Some(checker) = on() else { return plain(bad) };
    // SAFETY: as above.
    if unsafe { srq::of(srq) }.is_none() {
        return plain(bad);
    }
    // SAFETY: as above.
    let device = unsafe { device_of((*srq).context) };
    // SAFETY: as above.
    let requests = || unsafe { receives(wr) };
    checker.shared_receives(device, srq.addr(), requests());
    let mut first_bad = null_mut();
    let answer = plain(&mut first_bad);
    if answer != 0 {
        // SAFETY: as above.
        let refused = written(unsafe { receives(first_bad) }, &checker.call());
        checker.tell(|ledger| ledger.shared_receives_refused(srq.addr(), &refused));
        // SAFETY: null or writable, by the contract of this function.
        unsafe { bad.as_mut() }.into_iter().for_each(|bad| *bad = first_bad);
    }
    answer
}

/// # Safety
/// As [`cq::poll_cq`].
unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, limit: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: by the contract of this function.
    let plain = || unsafe { watched::poll_cq(cq, limit, wc) };
    // SAFETY: as above.
    unsafe { queue_used("ibv_poll_cq", cq) };
    let Some(checker) = on() else { return plain() };
    checker.polling(|| {
        let count = plain();
        let polled = match usize::try_from(count) {
            // SAFETY: the poll has just written this many.
            Ok(count @ 1..) => unsafe { std::slice::from_raw_parts(wc, count) },
            _ => &[],
        };
        let is_empty = (0..limit).contains(&count);
        // SAFETY: by the contract of this function.
        let waiting = || unsafe { cq::of(cq) }.map_or(0, |queue| queue.cq.count());
        checker.polled(cq.addr(), polled, is_empty, waiting);
        count
    })
}

/// A verb gets a queue pair: it may be destroyed.
///
/// # Safety
/// It is null or readable.
pub(crate) unsafe fn pair_used(verb: &'static str, qp: *mut ibv_qp) {
    const THING: Thing = Thing::QueuePair;
    // SAFETY: by the contract of this function. The memory of a destroyed one stays readable.
    unsafe {
        tell_use(verb, qp, |it| (*it).context, THING);
        tell_unless(qp::of(qp).is_some(), verb, THING, qp);
    }
}

/// A verb gets a completion queue.
///
/// # Safety
/// It is null or readable.
pub(crate) unsafe fn queue_used(verb: &'static str, cq: *mut ibv_cq) {
    const THING: Thing = Thing::CompletionQueue;
    // SAFETY: as in `pair_used`.
    unsafe {
        tell_use(verb, cq, |it| (*it).context, THING);
        tell_unless(cq::of(cq).is_some(), verb, THING, cq);
    }
}

/// A verb gets a shared receive queue.
///
/// # Safety
/// It is null or readable.
unsafe fn shared_queue_used(verb: &'static str, srq: *mut ibv_srq) {
    const THING: Thing = Thing::SharedReceiveQueue;
    // SAFETY: as in `pair_used`.
    unsafe {
        tell_use(verb, srq, |it| (*it).context, THING);
        tell_unless(srq::of(srq).is_some(), verb, THING, srq);
    }
}

/// The binds of a list get windows and regions.
///
/// # Safety
/// The list is valid.
unsafe fn binds_use(list: *mut ibv_send_wr) {
    // SAFETY: by the contract of this function.
    for wr in unsafe { requests::Requests::of(list) } {
        // SAFETY: as above. The opcode says which member of the union is valid.
        unsafe {
            if (*wr).opcode == IBV_WR_BIND_MW {
                let (window, region) = ((*wr).op.bind_mw.mw, (*wr).op.bind_mw.bind_info.mr);
                tell_unless(mw::is_live(window), "ibv_post_send", Thing::Window, window);
                tell_unless(mr::is_live(region), "ibv_post_send", Thing::Region, region);
            }
        }
    }
}

/// If an object is destroyed that a verb gets, that is a mistake.
fn tell_unless<T>(is_live: bool, verb: &'static str, thing: Thing, object: *const T) {
    if let (false, Some(checker)) = (is_live, on()) {
        checker.not_alive_in(verb, thing, object.addr());
    }
}

/// In a forked child the object may be the parent's.
///
/// # Safety
/// The object is null or readable.
unsafe fn tell_use<T>(
    verb: &'static str,
    object: *mut T,
    context: impl FnOnce(*mut T) -> *mut ibv_context,
    thing: Thing,
) {
    if object.is_null() {
        return;
    }
    // SAFETY: by the contract of this function.
    if let Some(ours) = unsafe { Context::of(context(object)) } {
        uses(|| verb, ours.device(), Some((thing, object.addr())));
    }
}

/// The device of a context.
///
/// # Safety
/// The context is open.
unsafe fn device_of(context: *mut ibv_context) -> usize {
    // SAFETY: by the contract of this function.
    unsafe { Context::of(context) }.map_or(0, |ours| id_of(ours.device()))
}

/// # Safety
/// As [`cq::req_notify_cq`].
unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: by the contract of this function.
    unsafe { queue_used("ibv_req_notify_cq", cq) };
    if let Some(checker) = on() {
        let arm = |queue: &cq::Queue| {
            let arm = |holds| cq::arm(queue, solicited_only, holds);
            checker.arms(cq.addr(), &queue.cq, solicited_only, arm);
        };
        sanitizers::released();
        // SAFETY: as above.
        return unsafe { cq::arm_by(cq, arm) };
    }
    // SAFETY: by the contract of this function.
    unsafe { watched::req_notify_cq(cq, solicited_only) }
}

/// The requests of a list, which write themselves down for the ledger.
///
/// # Safety
/// The list and what it points to is valid as long as this is used.
pub(crate) unsafe fn sends(list: *mut ibv_send_wr, device: usize) -> impl Requests {
    // SAFETY: by the contract of this function.
    let all = unsafe { requests::Requests::of(list) };
    // SAFETY: as above.
    all.map(move |wr| move |posted: &mut Posted| unsafe { send(&*wr, device, posted) })
}

/// # Safety
/// What the request points to is valid.
#[inline]
unsafe fn send(request: &ibv_send_wr, device: usize, posted: &mut Posted) {
    let is_inline = request.send_flags & IBV_SEND_INLINE != 0;
    // SAFETY: by the contract of this function.
    unsafe { buffers(request.sg_list, request.num_sge, posted) };
    if is_inline {
        posted.buffers.clear();
    }
    posted.wr_id = request.wr_id;
    posted.what = name(request.opcode);
    posted.remote = match request.opcode {
        // SAFETY: these have this member of the union.
        IBV_WR_RDMA_READ | IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM => unsafe {
            Some((request.wr.rdma.rkey, request.wr.rdma.remote_addr))
        },
        _ => None,
    };
    // SAFETY: it has this member of the union.
    let adds = || unsafe { request.wr.atomic.compare_add };
    posted.adds = (request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD).then(adds);
    posted.is_receive = false;
    posted.is_target = matches!(
        request.opcode,
        IBV_WR_RDMA_READ | IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD
    );
    posted.is_inline = is_inline;
    posted.is_signaled = request.send_flags & IBV_SEND_SIGNALED != 0;
    // SAFETY: the opcode says which member of the union is valid.
    posted.binds = unsafe { type2_bind(request, device) };
}

/// The bind of a request, if it is one.
///
/// # Safety
/// The request is what its opcode says.
unsafe fn type2_bind(request: &ibv_send_wr, device: usize) -> Option<Bind> {
    if request.opcode != IBV_WR_BIND_MW {
        return None;
    }
    // SAFETY: by the contract of this function. A window that is not freed is readable.
    let (bind, window) = unsafe {
        let bind = &request.op.bind_mw;
        (bind, mw::is_live(bind.mw).then(|| (*bind.mw).rkey))
    };
    let rights = rights(mw::rights(bind.bind_info.mw_access_flags));
    // The program chooses only the low byte.
    let key = Key(window?).with_byte(Key(bind.rkey).byte()).0;
    Some(Bind { device, key, rights, is_type1: false })
}

/// The receives of a list, which write themselves down for the ledger.
///
/// # Safety
/// The list and what it points to is valid as long as this is used.
unsafe fn receives(list: *mut ibv_recv_wr) -> impl Requests {
    // SAFETY: by the contract of this function.
    let all = unsafe { requests::Requests::of(list) };
    all.map(|wr| {
        move |posted: &mut Posted| {
            // SAFETY: as above.
            let request = unsafe { &*wr };
            // SAFETY: as above.
            unsafe { buffers(request.sg_list, request.num_sge, posted) };
            receive(request.wr_id, posted);
        }
    })
}

/// Writes down that it is a receive.
fn receive(wr_id: u64, posted: &mut Posted) {
    (posted.wr_id, posted.what) = (wr_id, "receive");
    (posted.is_target, posted.is_receive) = (true, true);
    (posted.is_inline, posted.is_signaled) = (false, true);
    (posted.remote, posted.adds, posted.binds) = (None, None, None);
}

/// Writes down the buffers of a list, and how many bytes they have.
///
/// # Safety
/// The list is null, or has this many readable elements.
unsafe fn buffers(list: *const ibv_sge, count: c_int, posted: &mut Posted) {
    // The device refuses a request with more of them, and reads none.
    let is_refused = u32::try_from(count).is_ok_and(|count| count > Limits::DEVICE.max_sge);
    let sges = match is_refused {
        true => &[],
        // SAFETY: by the contract of this function.
        false => unsafe { post::sges(list, count) }.unwrap_or_default(),
    };
    posted.buffers.set(sges.iter().map(buffer));
    posted.sges = sges.len() as u32;
    posted.bytes = sges.iter().map(|sge| u64::from(sge.length)).sum();
}

/// The name of an opcode's operation.
fn name(opcode: ibv_wr_opcode) -> &'static str {
    match opcode {
        IBV_WR_RDMA_WRITE => "WRITE",
        IBV_WR_RDMA_WRITE_WITH_IMM => "WRITE with immediate data",
        IBV_WR_SEND => "SEND",
        IBV_WR_SEND_WITH_IMM => "SEND with immediate data",
        IBV_WR_RDMA_READ => "READ",
        IBV_WR_ATOMIC_CMP_AND_SWP => "compare-and-swap",
        IBV_WR_ATOMIC_FETCH_AND_ADD => "fetch-and-add",
        IBV_WR_LOCAL_INV => "LOCAL_INV",
        IBV_WR_BIND_MW => "bind",
        IBV_WR_SEND_WITH_INV => "SEND with invalidate",
        IBV_WR_ATOMIC_WRITE => "ATOMIC WRITE",
        _ => "request",
    }
}

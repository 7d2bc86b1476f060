//! Posts and polls in a rehearsal (`transom rehearse`). Contexts of other processes get the plain functions.
//!
//! The device itself begins work late (`transom_host::objects`).

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::OnceLock;

use transom_abi::*;
use transom_host::device::Device;
use transom_host::objects::QueuePair;
use transom_rehearse::Provocation;
use transom_system::rehearsal;

use crate::cq::Queue;
use crate::requests::{Linked, Requests};
use crate::wrong::Wrong;
use crate::{answers, checked_ex, cq, profile, qp, srq, told, wr};

/// The operations without a rehearsal.
static PLAIN: OnceLock<Plain> = OnceLock::new();

#[derive(Clone, Copy)]
struct Plain {
    poll_cq: unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int,
    req_notify_cq: unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int,
    post_send: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int,
    post_recv: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
    post_srq_recv:
        unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
}

/// The operations of a new context: in a rehearsal with those of this module.
pub(crate) fn operations(plain: verbs_context) -> verbs_context {
    let ibv_context_ops { poll_cq: poll, req_notify_cq: notify, .. } = plain.context.ops;
    let ibv_context_ops { post_send: send, post_recv: receive, .. } = plain.context.ops;
    let all = (poll, notify, send, receive, plain.context.ops.post_srq_recv);
    let (Some(_), (Some(poll), Some(notify), Some(send), Some(receive), Some(shared))) =
        (rehearsal::on(), all)
    else {
        return plain;
    };
    PLAIN.get_or_init(|| Plain {
        poll_cq: poll,
        req_notify_cq: notify,
        post_send: send,
        post_recv: receive,
        post_srq_recv: shared,
    });
    let ops = ibv_context_ops {
        poll_cq: Some(poll_cq),
        req_notify_cq: Some(req_notify_cq),
        post_send: Some(post_send),
        post_recv: Some(post_recv),
        post_srq_recv: Some(post_srq_recv),
        ..plain.context.ops
    };
    profile::operations(verbs_context {
        context: ibv_context { ops, ..plain.context },
        create_cq_ex: Some(create_cq_ex),
        create_qp_ex: Some(create_qp_ex),
        ..plain
    })
}

/// # Safety
/// As [`checked_ex::create_cq_ex`].
unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: by the contract of this function. Nobody else knows the new queue yet.
    unsafe {
        let made = checked_ex::create_cq_ex(context, attr);
        if let Some(queue) = made.as_mut() {
            queue.start_poll = Some(start_poll);
            queue.next_poll = Some(next_poll);
        }
        made
    }
}

/// # Safety
/// As [`checked_ex::create_qp_ex`].
unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    init: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: by the contract of this function. Nobody else knows the new queue pair yet, and every queue pair has
    // room for the extended form.
    unsafe {
        let made = checked_ex::create_qp_ex(context, init);
        if let Some(pair) = made.cast::<ibv_qp_ex>().as_mut() {
            pair.wr_complete = Some(wr_complete);
        }
        made
    }
}

/// # Safety
/// As [`cq::poll_cq`].
unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, limit: c_int, wc: *mut ibv_wc) -> c_int {
    let Some(plain) = PLAIN.get() else { return -1 };
    let kinds = match limit {
        ..=0 => &[][..],
        1 => &[Provocation::HiddenCompletions],
        _ => &[Provocation::HiddenCompletions, Provocation::SingleCompletions],
    };
    // SAFETY: by the contract of this function.
    let told = unsafe { told(cq) };
    // SAFETY: as above.
    let most = match unsafe { hides(cq, kinds) } {
        Some(Provocation::HiddenCompletions) => return 0,
        Some(_) => 1,
        None => limit,
    };
    // SAFETY: as above.
    let count = unsafe { (plain.poll_cq)(cq, most, wc) };
    // SAFETY: as above.
    let Some(queue) = (unsafe { cq::of(cq) }) else { return count };
    if count < limit && most == limit {
        has_seen_all(queue, told);
    }
    let Ok(count @ 1..) = usize::try_from(count) else { return count };
    // SAFETY: so many were just written.
    let given = unsafe { std::slice::from_raw_parts_mut(wc, count) };
    // SAFETY: the struct of a living queue.
    let number = rehearsal::number_of(unsafe { (*cq).handle });
    given.iter_mut().for_each(|completion| poison(queue, number, completion));
    count as c_int
}

/// # Safety
/// As [`checked_ex::start_poll`].
unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: by the contract of this function.
    let is_right = unsafe { attr.as_ref() }.is_some_and(|attr| attr.comp_mask == 0);
    // SAFETY: as above.
    if is_right && unsafe { hides(cq.cast(), &[Provocation::HiddenCompletions]) }.is_some() {
        return libc::ENOENT;
    }
    // SAFETY: as above.
    unsafe {
        let told = told(cq.cast());
        let answer = checked_ex::start_poll(cq, attr);
        has_shown(cq, answer, told);
        answer
    }
}

/// # Safety
/// As [`checked_ex::next_poll`].
unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: by the contract of this function.
    unsafe {
        // The batch has given one already.
        if hides(cq.cast(), &[Provocation::SingleCompletions]).is_some() {
            return libc::ENOENT;
        }
        let told = told(cq.cast());
        let answer = checked_ex::next_poll(cq);
        has_shown(cq, answer, told);
        answer
    }
}

/// A batch has shown one more completion, or its end. The program had been told of completions so often before.
///
/// # Safety
/// `cq` is null or live. If the answer is 0, this thread is in a batch of it.
unsafe fn has_shown(cq: *mut ibv_cq_ex, answer: c_int, told: u64) {
    // SAFETY: by the contract of this function.
    match unsafe { cq::of(cq.cast()) } {
        // SAFETY: it is this thread's turn, so nobody else reads or writes the current completion.
        Some(queue) if answer == 0 => unsafe {
            let number = rehearsal::number_of((*cq).handle);
            poison(queue, number, &mut (*queue.poller.current.get()).wc);
        },
        Some(queue) if answer == libc::ENOENT => has_seen_all(queue, told),
        _ => {}
    }
}

/// The first of these provocations that happens at a poll. It does only if there is something to find, and nothing has
/// told the program of it.
///
/// # Safety
/// `cq` is null or live.
unsafe fn hides(cq: *mut ibv_cq, kinds: &[Provocation]) -> Option<Provocation> {
    let rehearsal = rehearsal::on()?;
    // SAFETY: by the contract of this function.
    let queue = unsafe { cq::of(cq) }?;
    // SAFETY: the struct of a living queue.
    let number = rehearsal::number_of(unsafe { (*cq).handle });
    queue.adapter.progress();
    if kinds.is_empty() || queue.cq.outlook().completions == 0 {
        return None;
    }
    let mut polled = queue.polled.as_ref()?.lock();
    let nth = polled.finding;
    polled.finding += 1;
    // Completions that come after an arming raise an event. Hidden ones would not.
    if !polled.may_hide() {
        return None;
    }
    kinds.iter().copied().find(|kind| rehearsal.provokes(*kind, number, nth).is_some())
}

/// How often the program was told of completions, before a poll.
///
/// # Safety
/// `cq` is null or live.
unsafe fn told(cq: *mut ibv_cq) -> u64 {
    // SAFETY: by the contract of this function.
    let queue = unsafe { cq::of(cq) };
    queue.and_then(|queue| queue.polled.as_ref()).map_or(0, |polled| polled.lock().told())
}

/// A poll has found no more completions.
fn has_seen_all(queue: &Queue, told: u64) {
    queue.polled.iter().for_each(|polled| polled.lock().found_none(told));
}

/// The program takes an event of a queue pair. After some of them all completions of a queue are there, and IBA 10.3.1
/// has the program poll until it is empty.
///
/// # Safety
/// The queue pair is live.
pub(crate) unsafe fn event_taken(event: ibv_event_type, qp: *mut ibv_qp) {
    if rehearsal::on().is_none() {
        return;
    }
    // SAFETY: by the contract of this function. A queue pair keeps its completion queues.
    unsafe {
        match event {
            IBV_EVENT_QP_LAST_WQE_REACHED => cq::all_are_there((*qp).recv_cq),
            IBV_EVENT_SQ_DRAINED => cq::all_are_there((*qp).send_cq),
            _ => {}
        }
    }
}

/// Fills the fields of a completion that mean nothing with rubbish (`ibv_poll_cq(3)`).
fn poison(queue: &Queue, number: u32, wc: &mut ibv_wc) {
    let (Some(rehearsal), Some(polled)) = (rehearsal::on(), &queue.polled) else { return };
    let nth = {
        let mut polled = polled.lock();
        polled.given += 1;
        polled.given - 1
    };
    let rubbish = rehearsal.provokes(Provocation::PoisonedFields, number, nth);
    let Some(rubbish) = rubbish else { return };
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
    if let Some(queue) = unsafe { cq::of(cq) }
        && let Some(polled) = &queue.polled
    {
        queue.adapter.progress();
        let mut polled = polled.lock();
        // SAFETY: the struct of a living queue.
        let (handle, has_channel) = unsafe { ((*cq).handle, !(*cq).channel.is_null()) };
        if has_channel {
            polled.armed();
        }
        if queue.cq.outlook().completions > 0 {
            let nth = polled.armed_late;
            polled.armed_late += 1;
            let number = rehearsal::number_of(handle);
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
    // SAFETY: by the contract of this function.
    answers::answer(unsafe { post(qp, wr, bad) })
}

/// Posts the requests before the first that is refused.
///
/// # Safety
/// As [`post_send`].
unsafe fn post(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    let Some(plain) = PLAIN.get() else { return libc::EINVAL };
    // SAFETY: by the contract of this function.
    let plain = |wr, bad| unsafe { (plain.post_send)(qp, wr, bad) };
    // SAFETY: as above.
    let Some(pair) = (unsafe { qp::of(qp) }) else { return plain(wr, bad) };
    let signals_all = pair.config().send.signal_all;
    let refused = |wr: *mut ibv_send_wr| {
        // SAFETY: the list is valid, by the contract of this function.
        if profile::refuses(unsafe { &*wr }, signals_all) {
            tell(pair.device(), "ibv_post_send", libc::EINVAL, told::ADAPTER_SAYS, "REH-52");
            return Some(answers::lacking());
        }
        pair.refuses_post().then(|| refuse(pair, "ibv_post_send", "REH-31"))
    };
    // SAFETY: the list is valid, by the contract of this function.
    unsafe { post_until(refused, wr, bad, plain) }
}

/// # Safety
/// As [`wr::complete`].
unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: by the contract of this function.
    unsafe {
        // All of the batch or nothing is posted (rule PS-14).
        if let Some(pair) = qp::of(qp.cast()) {
            if wr::is_refused(qp, pair.config().send.signal_all) {
                wr::abort(qp);
                let (device, verb) = (pair.device(), "ibv_wr_complete");
                return tell(device, verb, libc::EINVAL, told::ADAPTER_SAYS, "REH-52");
            }
            if (0..wr::count_built(qp)).any(|_| pair.refuses_post()) {
                wr::abort(qp);
                return refuse(pair, "ibv_wr_complete", "REH-31");
            }
        }
        checked_ex::wr_complete(qp)
    }
}

/// # Safety
/// As [`crate::post::post_recv`].
unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let Some(plain) = PLAIN.get() else { return libc::EINVAL };
    // SAFETY: by the contract of this function.
    let plain = |wr, bad| unsafe { (plain.post_recv)(qp, wr, bad) };
    // SAFETY: as above.
    let pair = unsafe { qp::of(qp) };
    // SAFETY: as above.
    answers::answer(unsafe {
        let refused = || {
            let pair = pair.filter(|pair| pair.refuses_receive())?;
            Some(refuse(pair, "ibv_post_recv", "REH-32"))
        };
        post_receives(refused, wr, bad, plain)
    })
}

/// # Safety
/// As [`crate::srq::post_srq_recv`].
unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let Some(plain) = PLAIN.get() else { return libc::EINVAL };
    // SAFETY: by the contract of this function.
    let plain = |wr, bad| unsafe { (plain.post_srq_recv)(srq, wr, bad) };
    // SAFETY: as above.
    let queue = unsafe { srq::of(srq) };
    let refused = || {
        let queue = queue.filter(|queue| queue.refuses_receive())?;
        Some(refuse_of(queue.device(), "ibv_post_srq_recv", "REH-32"))
    };
    // SAFETY: as above.
    answers::answer(unsafe { post_receives(refused, wr, bad, plain) })
}

/// The rehearsal refuses a post of a queue pair by this rule: the errno, which is noted.
#[cold]
fn refuse(pair: &QueuePair, verb: &'static str, rule: &'static str) -> c_int {
    refuse_of(pair.device(), verb, rule)
}

#[cold]
fn refuse_of(device: &Device, verb: &'static str, rule: &'static str) -> c_int {
    tell(device, verb, libc::ENOMEM, told::REHEARSED_SAYS, rule)
}

/// Notes the whole answer of a verb, which nobody else notes.
#[cold]
fn tell(
    device: &Device,
    verb: &'static str,
    errno: c_int,
    said: &'static str,
    rule: &'static str,
) -> c_int {
    let errno = Wrong::because(errno, said, rule).told_seldom(device, verb);
    told::goes_on();
    errno
}

/// Posts receives up to the first one that `refuses` refuses.
///
/// # Safety
/// The list is valid; `bad` is null or writable.
unsafe fn post_receives(
    refuses: impl Fn() -> Option<c_int>,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    plain: impl Fn(*mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
) -> c_int {
    // SAFETY: by the contract of this function.
    unsafe { post_until(|_| refuses(), wr, bad, plain) }
}

/// Posts the elements of a list up to the first one that is refused, with the errno for it.
///
/// # Safety
/// The list is valid; `bad` is null or writable. `plain` posts a valid list, and answers as the verb does.
unsafe fn post_until<W: Linked>(
    mut refused: impl FnMut(*mut W) -> Option<c_int>,
    list: *mut W,
    bad: *mut *mut W,
    plain: impl Fn(*mut W, *mut *mut W) -> c_int,
) -> c_int {
    let (mut count, mut found) = (0, None);
    // SAFETY: the list is valid, by the contract of this function.
    for wr in unsafe { Requests::of(list) } {
        if let Some(errno) = refused(wr) {
            found = Some((wr, errno));
            break;
        }
        count += 1;
    }
    let Some((first_bad, errno)) = found else { return plain(list, bad) };
    // SAFETY: as above.
    let before: Vec<_> = unsafe { Requests::of(list) }.take(count).collect();
    // SAFETY: as above.
    let (first_bad, errno) = match unsafe { post_copies(&before, plain) } {
        Ok(()) => (first_bad, errno),
        Err(refused) => refused,
    };
    // SAFETY: null or writable, by the contract of this function.
    unsafe { bad.as_mut() }.into_iter().for_each(|bad| *bad = first_bad);
    errno
}

/// Posts these elements only, as copies. The list stays as it is: other threads may be posting it too, and from the post
/// on its elements are theirs who poll the completions. The error has the first element that was refused.
///
/// # Safety
/// The elements are valid. `plain` posts a valid list, and answers as the verb does.
unsafe fn post_copies<W: Linked>(
    elements: &[*mut W],
    plain: impl Fn(*mut W, *mut *mut W) -> c_int,
) -> Result<(), (*mut W, c_int)> {
    let mut copies: Vec<W> = Vec::with_capacity(elements.len());
    let first = copies.as_mut_ptr();
    for (nth, element) in elements.iter().enumerate() {
        let is_last = nth + 1 == elements.len();
        let next = if is_last { null_mut() } else { first.wrapping_add(nth + 1) };
        // SAFETY: the element is valid. There is room, so that no copy moves.
        copies.push(unsafe { **element }.before(next));
    }
    if copies.is_empty() {
        return Ok(());
    }
    let mut first_bad = null_mut();
    let errno = plain(first, &mut first_bad);
    if errno == 0 {
        return Ok(());
    }
    let nth = (first_bad.addr().wrapping_sub(first.addr())) / size_of::<W>();
    Err((elements.get(nth).copied().unwrap_or(null_mut()), errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules: REH-31, REH-32
    #[test]
    fn a_list_of_which_a_part_is_posted_stays_as_it_is() {
        let mut all: [ibv_recv_wr; 4] = Default::default();
        let at = all.as_mut_ptr();
        let link = || {
            for nth in 0..4 {
                let next = if nth == 3 { null_mut() } else { at.wrapping_add(nth + 1) };
                // SAFETY: an element of this test.
                unsafe {
                    *at.wrapping_add(nth) =
                        ibv_recv_wr { wr_id: nth as u64, next, ..Default::default() }
                };
            }
        };
        // The element of this number is refused by a rehearsal, and this one by the device.
        for (by_rehearsal, by_device, bad_one) in [(2, 9, 2), (3, 1, 1), (0, 9, 0), (9, 9, 9)] {
            link();
            let mut bad = null_mut();
            let taken = std::cell::RefCell::new(Vec::new());
            let post = |list: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr| {
                // SAFETY: the list is valid.
                for wr in unsafe { Requests::of(list) } {
                    // SAFETY: as above.
                    let id = unsafe { (*wr).wr_id };
                    if id == by_device {
                        // SAFETY: writable.
                        unsafe { *bad = wr };
                        return libc::EINVAL;
                    }
                    taken.borrow_mut().push(id);
                    // Whoever polls its completion has it for something else.
                    // SAFETY: an element of this test.
                    unsafe { (*at.wrapping_add(id as usize)).next = at };
                }
                0
            };
            let refused = |wr: *mut ibv_recv_wr| {
                // SAFETY: an element of the list.
                (unsafe { (*wr).wr_id } == by_rehearsal).then_some(libc::ENOMEM)
            };
            // SAFETY: the list is valid.
            let answer = unsafe { post_until(refused, at, &mut bad, post) };
            let expected: Vec<u64> = (0..4.min(bad_one)).collect();
            assert_eq!(*taken.borrow(), expected);
            let is_refused = bad_one < 4;
            assert_eq!(answer != 0, is_refused);
            assert_eq!(
                bad,
                if is_refused { at.wrapping_add(bad_one as usize) } else { null_mut() }
            );
            // SAFETY: as above.
            let next = |nth: u64| unsafe { (*at.wrapping_add(nth as usize)).next };
            assert!(expected.iter().all(|nth| next(*nth) == at));
        }
    }

    /// Rule: REH-04
    #[test]
    fn without_a_rehearsal_contexts_keep_their_functions_and_nothing_is_refused() {
        let plain = crate::operations::operations(crate::device::listed(0));
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

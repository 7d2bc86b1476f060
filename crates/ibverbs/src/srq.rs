//! `ibv_create_srq(3)`, `ibv_create_srq_ex(3)`: shared receive queues.

use std::ffi::c_int;
use std::sync::Arc;

use transom_abi::*;
use transom_check::ledger::{Event, Owner, Thing};
use transom_device::queue::{PostError, ReceiveRequest};
use transom_host::Limits;
use transom_host::objects::{SharedReceiveQueue, SrqConfig, TagMatchingConfig, XrcConfig};
use transom_rehearse::Feature;
use transom_system::fork::HeldOverForks;

use crate::context::Context;
use crate::entry::{check_device, errno_always, errno_of, guarded_always, pointer_of};
use crate::event_count::{EventCount, Wait};
use crate::object::{Table, trusted};
use crate::rehearse;
use crate::sanitized;
use crate::wrong::Wrong;
use crate::{check, cq, errno, pd, post, profile, xrc};

/// A shared receive queue.
pub(crate) struct Srq {
    queue: Arc<SharedReceiveQueue>,
    events: Arc<EventCount>,
}

static SRQS: Table<ibv_srq, Srq> = Table::new();

/// The lock of all of them.
pub(crate) fn lock() -> &'static dyn HeldOverForks {
    &SRQS
}

/// The queue that a pointer names, for a queue pair. `EINVAL` if the queue is for XRC.
///
/// # Safety
/// `srq` is readable.
pub(crate) unsafe fn find(srq: *const ibv_srq) -> Result<Arc<SharedReceiveQueue>, c_int> {
    // SAFETY: by the contract of this function.
    let queue = unsafe { look_up(srq) }?;
    if queue.config().xrc.is_some() { Err(libc::EINVAL) } else { Ok(queue) }
}

/// The queue that a pointer names.
///
/// # Safety
/// `srq` is null or readable.
unsafe fn look_up(srq: *const ibv_srq) -> Result<Arc<SharedReceiveQueue>, c_int> {
    // SAFETY: by the contract of this function.
    unsafe { SRQS.with(srq, |object| object.inner.queue.clone()) }
}

/// Makes a shared receive queue (rule CR-19).
///
/// # Safety
/// `pd` is null or readable; `init` is null or valid.
pub unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    init: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    pointer_of("ibv_create_srq", || {
        // SAFETY: by the contract of this verb.
        let Some(init) = (unsafe { init.as_mut() }) else { return Err(libc::EINVAL) };
        let mut extended = ibv_srq_init_attr_ex {
            srq_context: init.srq_context,
            attr: init.attr,
            comp_mask: IBV_SRQ_INIT_ATTR_PD,
            pd,
            ..ibv_srq_init_attr_ex::default()
        };
        // SAFETY: as above.
        let created = unsafe { create("ibv_create_srq", std::ptr::null_mut(), &mut extended) };
        init.attr = extended.attr;
        sanitized::has_filled(&raw const init.attr);
        created
    })
}

/// Makes a shared receive queue of any type.
///
/// # Safety
/// `context` is open; `init` is null or valid.
pub(crate) unsafe extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    init: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    pointer_of("ibv_create_srq_ex", || {
        // SAFETY: by the contract of this verb.
        let Some(init) = (unsafe { init.as_mut() }) else { return Err(libc::EINVAL) };
        // SAFETY: as above.
        unsafe { create("ibv_create_srq_ex", context, init) }
    })
}

/// Checks that a count is from 1 to `limit`.
fn check_count(field: &'static str, asked: u32, limit: u32) -> Result<(), Wrong> {
    match asked {
        0 => Err(Wrong::too_little(field, 0, 1, "CR-19")),
        asked if asked > limit => Err(Wrong::too_much(field, asked.into(), limit.into(), "CR-19")),
        _ => Ok(()),
    }
}

/// Makes a queue in the domain's context, which must be this one if it is not null.
///
/// # Safety
/// The objects in `init` are null or readable, and the context is null or open.
unsafe fn create(
    verb: &'static str,
    of: *mut ibv_context,
    init: &mut ibv_srq_init_attr_ex,
) -> Result<*mut ibv_srq, c_int> {
    // SAFETY: by the contract of this function.
    unsafe {
        try_create(of, init).map_err(|wrong| {
            // The fault may come before the domain is looked up. Look it up here, because the refusal is noted at its
            // device.
            let given = init.comp_mask & IBV_SRQ_INIT_ATTR_PD != 0;
            let _ = pd::find(if given { init.pd } else { std::ptr::null_mut() });
            wrong.told(None, verb, 0)
        })
    }
}

/// # Safety
/// As [`create`].
unsafe fn try_create(
    of: *mut ibv_context,
    init: &mut ibv_srq_init_attr_ex,
) -> Result<*mut ibv_srq, Wrong> {
    profile::needs(Feature::SharedReceives)?;
    let given = |bit| init.comp_mask & bit != 0;
    if init.comp_mask >= IBV_SRQ_INIT_ATTR_RESERVED || !given(IBV_SRQ_INIT_ATTR_PD) {
        return Err(Wrong::invalid("comp_mask", init.comp_mask.into(), ""));
    }
    let kind = if given(IBV_SRQ_INIT_ATTR_TYPE) { init.srq_type } else { IBV_SRQT_BASIC };
    match kind {
        IBV_SRQT_XRC => profile::needs(Feature::Xrc)?,
        IBV_SRQT_TM => profile::needs(Feature::TagMatching)?,
        _ => {}
    }
    // SAFETY: by the contract of this function.
    let pd = unsafe { pd::find(init.pd) };
    let pd = pd.map_err(|errno| Wrong::unknown("pd", errno, "PD-08"))?;
    let limits = Limits::here();
    let (xrc, tag_matching) = match kind {
        IBV_SRQT_BASIC => (None, None),
        IBV_SRQT_XRC if given(IBV_SRQ_INIT_ATTR_XRCD) && given(IBV_SRQ_INIT_ATTR_CQ) => {
            // SAFETY: as above.
            let (domain, cq) = unsafe { (xrc::find(init.xrcd)?, cq::find(init.cq)?) };
            (Some(XrcConfig { domain, cq }), None)
        }
        IBV_SRQT_TM if given(IBV_SRQ_INIT_ATTR_CQ) && given(IBV_SRQ_INIT_ATTR_TM) => {
            // SAFETY: as above.
            let cq = unsafe { cq::find(init.cq) }?;
            let ibv_tm_cap { max_num_tags, max_ops } = init.tm_cap;
            // A list operation is complete when it is posted, so any number may be outstanding.
            for (field, asked, limit) in [
                ("tm_cap.max_num_tags", max_num_tags, limits.tags),
                ("tm_cap.max_ops", max_ops, limits.tag_operations),
            ] {
                check_count(field, asked, limit)?;
            }
            (None, Some(TagMatchingConfig { tags: max_num_tags as usize, cq }))
        }
        IBV_SRQT_XRC => {
            const SAID: &str = "IBV_SRQT_XRC needs xrcd and cq, and both in comp_mask";
            return Err(Wrong::because(libc::EINVAL, SAID, ""));
        }
        IBV_SRQT_TM => {
            const SAID: &str = "IBV_SRQT_TM needs cq and tm_cap, and both in comp_mask";
            return Err(Wrong::because(libc::EINVAL, SAID, ""));
        }
        _ => return Err(Wrong::invalid("srq_type", kind.into(), "")),
    };
    check_count("attr.max_wr", init.attr.max_wr, limits.shared_work_requests)?;
    if init.attr.max_sge > limits.shared_sge {
        let (asked, limit) = (init.attr.max_sge.into(), limits.shared_sge.into());
        return Err(Wrong::too_much("attr.max_sge", asked, limit, "CR-19"));
    }
    // SAFETY: a context outlives its domains.
    let context = unsafe { Context::of(pd.context) }.ok_or(libc::EINVAL)?;
    let null = std::ptr::null_mut();
    // SAFETY: those of live objects, as found above.
    let go_together = unsafe {
        let cq = if kind == IBV_SRQT_BASIC { null } else { (*init.cq).context };
        let xrcd = if kind == IBV_SRQT_XRC { (*init.xrcd).context } else { null };
        [of, cq, xrcd].into_iter().all(|other| context.goes_with(other))
    };
    if !go_together {
        return Err(Wrong::OTHER_CONTEXT);
    }
    rehearse::may_make()?;
    let ibv_srq_attr { mut max_wr, mut max_sge, .. } = init.attr;
    let asked = max_wr;
    if !rehearse::is_exact() {
        max_wr = Limits::shared_depth(max_wr).min(limits.shared_work_requests);
        // Most adapters have room for one SGE in every receive.
        max_sge = max_sge.max(1);
    }
    // Events carry the handle, so reserve it first.
    let handle = SRQS.reserve();
    let config = SrqConfig {
        pd: pd.domain.clone(),
        size: max_wr as usize,
        max_sge: max_sge as usize,
        xrc,
        tag_matching,
        events: context.events.clone(),
        id: u64::from(handle),
    };
    let queue = SharedReceiveQueue::create(&context.adapter, config)
        .map_err(|error| Wrong::of_object(error, "CR-19"))?;
    init.attr = ibv_srq_attr { max_wr, max_sge, srq_limit: 0 };
    context.adopt();
    let abi = ibv_srq {
        context: pd.context,
        srq_context: init.srq_context,
        pd: init.pd,
        ..ibv_srq::default()
    };
    let xrc_queue = (kind == IBV_SRQT_XRC).then(|| queue.clone());
    let srq = Srq { queue, events: Arc::default() };
    let made = SRQS.insert_reserved(handle, abi, srq);
    if let Some(checker) = check::on() {
        checker.tell(|ledger| ledger.shared_queue_sized(made.addr(), asked, max_wr as usize));
        if let Some(queue) = xrc_queue {
            checker.xrc_queue_made(made.addr(), &queue, init.cq.addr());
        }
    }
    Ok(made)
}

/// Ends a shared receive queue, after its delivered events are acknowledged (rules CR-17, CR-18).
///
/// # Safety
/// `srq` is null or readable.
pub unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    errno_always("ibv_destroy_srq", || {
        loop {
            // If a queue pair uses it, refuse at once. Wait only for events.
            // SAFETY: by the contract of this verb.
            unsafe { SRQS.check_unused(srq, |srq| srq.queue.check_unused(), busy) }?;
            // SAFETY: as above.
            let events = unsafe { SRQS.with(srq, |object| object.inner.events.clone()) }?;
            events.settle(&Wait { verb: "ibv_destroy_srq", owner: owner(srq) });
            let may_end = |srq: &Srq| srq.events.is_settled() && srq.queue.check_unused().is_ok();
            // SAFETY: as above.
            let taken = unsafe { SRQS.take_if(srq, may_end) }?;
            // An event may have been delivered just now. The thread that acknowledges it must find the queue.
            let Some(mut taken) = taken else { continue };
            let ours = taken.inner.take().ok_or(libc::ENOENT)?;
            if let Some(checker) = check::on() {
                checker.shared_queue_ends(srq.addr(), &ours.queue);
            }
            if ours.queue.destroy().is_err() {
                taken.put_back(ours);
                return Err(libc::EBUSY);
            }
            // SAFETY: the struct stays readable, and a context outlives its queues.
            unsafe { Context::release((*srq).context) };
            return Ok(());
        }
    })
}

/// Notes which queue pairs take their receives from a queue that the program wants to destroy.
#[cold]
fn busy(srq: &Srq) -> c_int {
    Wrong::held(srq.queue.holders(), "CR-17").told(None, "ibv_destroy_srq", 0)
}

/// Changes the size, arms the limit, or both (rules SQ-03 to SQ-05).
///
/// # Safety
/// `srq` is null or readable; `attr` is null or readable.
pub unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    errno_of("ibv_modify_srq", || {
        // SAFETY: by the contract of this verb.
        let attr = unsafe { attr.as_ref() }.ok_or(libc::EINVAL)?;
        // SAFETY: as above.
        let queue = unsafe { look_up(srq) }?;
        change(&queue, attr, mask as u32).map_err(|wrong| wrong.told(None, "ibv_modify_srq", 0))?;
        if let (true, Some(checker)) = (mask as u32 & IBV_SRQ_MAX_WR != 0, check::on()) {
            let places = queue.query().size;
            checker.tell(|ledger| ledger.shared_queue_sized(srq.addr(), attr.max_wr, places));
        }
        Ok(())
    })
}

fn change(queue: &SharedReceiveQueue, attr: &ibv_srq_attr, mask: u32) -> Result<(), Wrong> {
    let known = IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT;
    if mask & !known != 0 {
        return Err(Wrong::invalid("srq_attr_mask", (mask & !known).into(), ""));
    }
    let size = (mask & IBV_SRQ_MAX_WR != 0).then_some(attr.max_wr);
    let limit = (mask & IBV_SRQ_LIMIT != 0).then_some(attr.srq_limit);
    if let Some(size) = size {
        profile::needs(Feature::SharedResize)?;
        check_count("attr.max_wr", size, Limits::here().shared_work_requests)?;
        rehearse::may_make()?;
    }
    let most = Limits::here().shared_work_requests;
    let depth = size.map(|size| rehearse::shared_depth(size, most) as usize);
    queue.modify(depth, limit.map(|limit| limit as usize)).map_err(|error| match (size, limit) {
        (Some(size), _) => Wrong::of_size("attr.max_wr", size.into(), error, "SQ-04"),
        (None, limit) => {
            let (limit, most) = (limit.unwrap_or(0), queue.query().size);
            Wrong::too_much("attr.srq_limit", limit.into(), most as u64, "SQ-04")
        }
    })
}

/// Reads the size and the limit (rule SQ-02).
///
/// # Safety
/// `srq` is null or readable; `attr` is null or writable.
pub unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    errno_of("ibv_query_srq", || {
        if attr.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: by the contract of this verb.
        let now = unsafe { look_up(srq) }?.query();
        let now = ibv_srq_attr {
            max_wr: now.size as u32,
            max_sge: now.max_sge as u32,
            srq_limit: now.limit as u32,
        };
        // SAFETY: as above.
        unsafe { attr.write(now) };
        sanitized::has_filled(attr);
        Ok(())
    })
}

/// The number that XRC messages carry for the queue. `EOPNOTSUPP` if it is not for XRC.
///
/// # Safety
/// `srq` is null or readable; `number` is null or writable.
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int {
    errno_of("ibv_get_srq_num", || {
        if number.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: by the contract of this verb.
        let queue = unsafe { look_up(srq) }?;
        if queue.config().xrc.is_none() {
            return Err(libc::EOPNOTSUPP);
        }
        // SAFETY: as above.
        unsafe { number.write(queue.number()) };
        sanitized::has_filled(number);
        Ok(())
    })
}

/// The queue behind a pointer, without looking it up.
///
/// # Safety
/// `srq` is null or live.
pub(crate) unsafe fn of<'a>(srq: *mut ibv_srq) -> Option<&'a SharedReceiveQueue> {
    // SAFETY: by the contract of this function.
    unsafe { trusted::<ibv_srq, Srq>(srq) }.map(|ours| &*ours.queue)
}

/// The same. `EIO` if its device has failed.
///
/// # Safety
/// As [`of`].
#[inline]
pub(crate) unsafe fn usable<'a>(srq: *mut ibv_srq) -> Result<&'a SharedReceiveQueue, c_int> {
    // SAFETY: by the contract of this function.
    let queue = unsafe { of(srq) }.ok_or(libc::EINVAL)?;
    check_device(|| queue.device())?;
    Ok(queue)
}

/// Posts a list of receives, up to the first bad one (rule PS-01).
///
/// # Safety
/// `srq` is live; the list and everything that it points to is valid; `bad` is null or writable.
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut next = wr;
    let posted = guarded_always("ibv_post_srq_recv", || {
        // SAFETY: by the contract of this verb.
        let queue = unsafe { usable(srq) }?;
        // SAFETY: as above.
        unsafe { post::receives(&mut next, |request| post_one(queue, request)) }
            .map_err(|wrong| wrong.told(Some(queue.device()), "ibv_post_srq_recv", 0))
    });
    // SAFETY: as above.
    unsafe { post::tell_bad(bad, next, posted) }
}

#[inline]
fn post_one(queue: &SharedReceiveQueue, request: &ReceiveRequest<'_>) -> Result<(), Wrong> {
    queue.post(request).map_err(|error| match error {
        PostError::Full => Wrong::full("shared receive queue", queue.why_full(), false),
        PostError::TooManySges => {
            let (asked, limit) = (request.sges.len() as u64, queue.config().max_sge as u64);
            let most = Limits::here().shared_sge.into();
            Wrong::beyond_own("num_sge", asked, limit, most, "PS-03")
        }
        other => errno::of_post(other).into(),
    })
}

/// The owner of a queue's asynchronous events, for `transom check`.
pub(crate) fn owner(srq: *const ibv_srq) -> Owner {
    let (event, thing) = (Event::Asynchronous, Thing::SharedReceiveQueue);
    Owner { event, thing, address: srq.addr() }
}

/// Counts an asynchronous event as delivered. Returns the pointer for C.
pub(crate) fn deliver_event(handle: u32) -> Option<*mut ibv_srq> {
    SRQS.by_handle(handle, |object| {
        object.inner.events.delivered();
        object.abi
    })
}

/// Counts an asynchronous event as acknowledged.
///
/// # Safety
/// `srq` is null or readable.
pub(crate) unsafe fn acknowledge_event(srq: *mut ibv_srq) {
    // SAFETY: by the contract of this function.
    if let Some(ours) = unsafe { trusted::<ibv_srq, Srq>(srq) } {
        ours.events.acknowledged(1);
    }
}

/// Ends the shared receive queues of a context, which is being closed.
pub(crate) fn free_all(context: *mut ibv_context) {
    for mut taken in SRQS.take_all(context) {
        let Some(ours) = taken.inner.take() else { continue };
        if ours.queue.destroy().is_err() {
            taken.put_back(ours);
            continue;
        }
        // SAFETY: this call counts off this queue.
        unsafe { Context::release(context) };
    }
}

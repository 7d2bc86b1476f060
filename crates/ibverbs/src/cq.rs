//! `ibv_create_cq(3)`, `ibv_poll_cq(3)`, `ibv_modify_cq(3)`.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use parking_lot::Mutex;
use transom_abi::*;
use transom_check::ledger::{Event, Owner, Thing};
use transom_device::queue::{Completion, CompletionOptions, Flags, Moderation, Notify};
use transom_host::objects::{Cq, CqConfig, ProtectionDomain};
use transom_host::{Adapter, Limits};
use transom_rehearse::Feature;
use transom_system::fork::HeldOverForks;

use crate::check;
use crate::comp_channel::ChannelUse;
use crate::context::Context;
use crate::entry::{check_device, errno_always, errno_of, guarded_always, pointer_of, zero_or};
use crate::event_count::{EventCount, Wait};
use crate::object::{Table, trusted};
use crate::poller::Poller;
use crate::profile;
use crate::rehearse::{self, Polled};
use crate::told;
use crate::wrong::Wrong;

/// A completion queue, with its poller and the counts of its events.
pub(crate) struct Queue {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) cq: Arc<Cq>,
    /// The poller that reads completions field by field.
    pub(crate) poller: Poller,
    /// What a rehearsal knows of it.
    pub(crate) polled: Option<Box<Mutex<Polled>>>,
    pub(crate) events: Arc<EventCount>,
    async_events: Arc<EventCount>,
    _channel: Option<ChannelUse>,
    _parent: Option<DomainUse>,
}

/// A completion queue's use of a parent domain. It keeps the domain from being deallocated.
pub(crate) struct DomainUse(Arc<ProtectionDomain>);

impl DomainUse {
    /// Counts a user. `None` if the domain is already deallocated.
    pub(crate) fn of(domain: &Arc<ProtectionDomain>) -> Option<Self> {
        domain.adopt().ok()?;
        Some(Self(domain.clone()))
    }
}

impl Drop for DomainUse {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Every completion queue can be cast to an extended one.
static CQS: Table<ibv_cq_ex, Queue> = Table::new();

/// The lock of all of them.
pub(crate) fn lock() -> &'static dyn HeldOverForks {
    &CQS
}

/// The arguments of `ibv_create_cq(3)` and `ibv_create_cq_ex(3)`.
pub(crate) struct Request {
    pub(crate) cqe: i64,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) comp_vector: i64,
    pub(crate) options: CompletionOptions,
    pub(crate) poller: Poller,
    pub(crate) parent: Option<DomainUse>,
}

/// Makes a completion queue for at least `cqe` completions (rules CR-13 to CR-15).
///
/// # Safety
/// `context` is open; `channel` is null or live.
pub unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    pointer_of("ibv_create_cq", || {
        let request = Request {
            cqe: cqe.into(),
            channel,
            comp_vector: comp_vector.into(),
            options: CompletionOptions::default(),
            poller: Poller::default(),
            parent: None,
        };
        let abi = ibv_cq_ex { cq_context, ..ibv_cq_ex::default() };
        // SAFETY: by the contract of this verb.
        unsafe { create("ibv_create_cq", context, request, abi) }.map(|cq| cq.cast())
    })
}

/// Checks the size of a completion queue.
fn check_size(cqe: i64, rule: &'static str) -> Result<u32, Wrong> {
    let limit = Limits::here().completions;
    match u32::try_from(cqe) {
        Ok(0) => Err(Wrong::too_little("cqe", 0, 1, rule)),
        Ok(cqe) if cqe <= limit => Ok(cqe),
        Ok(cqe) => Err(Wrong::too_much("cqe", cqe.into(), limit.into(), rule)),
        Err(_) => Err(Wrong::invalid("cqe", cqe as u64, rule)),
    }
}

/// Makes a completion queue. The caller has set the other fields of `abi`.
///
/// # Safety
/// `context` is null or open; the channel is null or live.
pub(crate) unsafe fn create(
    verb: &'static str,
    context: *mut ibv_context,
    request: Request,
    abi: ibv_cq_ex,
) -> Result<*mut ibv_cq_ex, c_int> {
    // SAFETY: by the contract of this function.
    unsafe { try_create(context, request, abi).map_err(|wrong| wrong.told(None, verb, 0)) }
}

/// # Safety
/// As [`create`].
unsafe fn try_create(
    context: *mut ibv_context,
    request: Request,
    abi: ibv_cq_ex,
) -> Result<*mut ibv_cq_ex, Wrong> {
    // SAFETY: by the contract of this function.
    let ours = unsafe { Context::of(context) }.ok_or(libc::EINVAL)?;
    check::uses(told::verb, ours.device(), None);
    rehearse::may_make()?;
    let Request { cqe, channel, comp_vector, options, poller, parent } = request;
    let asked = check_size(cqe, "CR-13")?;
    let cqe = rehearse::shared_depth(asked, Limits::here().completions);
    if comp_vector != 0 {
        return Err(Wrong::invalid("comp_vector", comp_vector as u64, "CR-15"));
    }
    let abi = ibv_cq_ex { context, channel, cqe: cqe as c_int, ..abi };
    let channel_address = channel.addr();
    // SAFETY: by the contract of this function.
    let channel = unsafe { ChannelUse::of(channel, ours) }?;
    let events = channel.as_ref().map(ChannelUse::events);
    let handle = CQS.reserve();
    let config = CqConfig {
        capacity: cqe as usize,
        asked,
        options,
        channel: events.clone(),
        events: ours.events.clone(),
        id: u64::from(handle),
        context: ours.listed,
    };
    let queue = Queue {
        adapter: ours.adapter.clone(),
        cq: Arc::new(Cq::new(ours.device(), config).map_err(|error| Wrong::of_object(error, ""))?),
        poller,
        polled: Polled::of_new(),
        events: Arc::default(),
        async_events: Arc::default(),
        _channel: channel,
        _parent: parent,
    };
    ours.adopt();
    let cq = queue.cq.clone();
    let made = CQS.insert_reserved(handle, abi, queue);
    if let Some(checker) = check::on() {
        checker.queue_sized(made.addr(), asked);
        if let Some(events) = events {
            checker.queue_watched(made.addr(), channel_address, &events, &cq);
        }
    }
    Ok(made)
}

/// The queue that a pointer names.
///
/// # Safety
/// `cq` is null or readable.
pub(crate) unsafe fn find(cq: *const ibv_cq) -> Result<Arc<Cq>, c_int> {
    // SAFETY: by the contract of this function.
    unsafe { CQS.with(cq.cast(), |object| object.inner.cq.clone()) }
}

/// Ends a completion queue, after its delivered events are acknowledged (rules CR-12, CR-18).
///
/// # Safety
/// `cq` is null or readable.
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    errno_always("ibv_destroy_cq", || {
        loop {
            // SAFETY: by the contract of this verb.
            let (queue, events, async_events) = unsafe {
                CQS.with(cq.cast(), |object| {
                    let queue = object.inner;
                    (queue.cq.clone(), queue.events.clone(), queue.async_events.clone())
                })
            }?;
            // SAFETY: as above.
            queue.check_unused().map_err(|_| unsafe { busy(cq, &queue) })?;
            let verb = "ibv_destroy_cq";
            events.settle(&Wait { verb, owner: owner(Event::Completion, cq) });
            async_events.settle(&Wait { verb, owner: owner(Event::Asynchronous, cq) });
            // An event may have been delivered just now. The thread that acknowledges it must find the queue.
            let is_settled =
                |queue: &Queue| queue.events.is_settled() && queue.async_events.is_settled();
            // SAFETY: as above.
            let taken = unsafe { CQS.take_if(cq.cast(), is_settled) }?;
            let Some(mut taken) = taken else { continue };
            let handle = taken.handle();
            let queue = taken.inner.take().ok_or(libc::ENOENT)?;
            if queue.cq.check_unused().is_err() {
                taken.put_back(queue);
                continue;
            }
            if let Some(checker) = check::on() {
                // SAFETY: a context outlives its queues.
                let context = unsafe { Context::of((*cq).context) };
                let thing = Thing::CompletionQueue;
                let unread = context.map(|it| it.fatal_events(Some((thing, handle))));
                checker.events_unread(Some(thing), cq.addr(), &unread.unwrap_or_default());
            }
            drop(queue);
            // SAFETY: the struct stays readable, and a context outlives its queues.
            unsafe { Context::release((*cq).context) };
            return Ok(());
        }
    })
}

/// Notes which objects use a queue that the program wants to destroy.
///
/// # Safety
/// As [`ibv_destroy_cq`].
#[cold]
unsafe fn busy(cq: *mut ibv_cq, queue: &Cq) -> c_int {
    // SAFETY: by the contract of this function.
    let adapter = unsafe { CQS.with(cq.cast(), |object| object.inner.adapter.clone()) };
    let holders = adapter.map(|adapter| adapter.holders_of_cq(queue)).unwrap_or_default();
    if let Some(checker) = check::on() {
        checker.busy(Thing::CompletionQueue, cq.addr());
    }
    Wrong::held(holders, "CR-12").told(None, "ibv_destroy_cq", 0)
}

/// Changes the size. `EINVAL` if it is less than the number of waiting completions (rule CQ-14).
///
/// # Safety
/// `cq` is null or readable.
pub unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    errno_of("ibv_resize_cq", || {
        profile::needs(Feature::Resize)?;
        // SAFETY: by the contract of this verb.
        let queue = unsafe { find(cq) }?;
        let size = check_size(cqe.into(), "CQ-14").and_then(|size| {
            rehearse::may_make()?;
            let of_size = |error| Wrong::of_size("cqe", size.into(), error, "CQ-14");
            let depth = rehearse::shared_depth(size, Limits::here().completions);
            queue.resize(depth as usize, size).map_err(of_size)
        });
        size.map_err(|wrong| wrong.told(None, "ibv_resize_cq", 0))?;
        if let Some(checker) = check::on() {
            checker.queue_sized(cq.addr(), cqe.unsigned_abs());
        }
        // Read the size now, because another thread may have changed it again.
        // SAFETY: as above. The struct is live while the table is locked.
        unsafe {
            CQS.with(cq.cast(), |object| (*object.abi).cqe = object.inner.cq.capacity() as c_int)
        }
    })
}

/// Changes when events are raised. All counts and periods are within the limits that `ibv_query_device_ex(3)` reports.
/// If either is zero, an event is raised at once.
///
/// # Safety
/// `cq` is null or readable; `attr` is null or readable.
pub(crate) unsafe extern "C" fn modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    errno_of("ibv_modify_cq", || {
        // SAFETY: by the contract of this verb.
        let attr = unsafe { attr.as_ref() }.ok_or(libc::EINVAL)?;
        if attr.attr_mask & !IBV_CQ_ATTR_MODERATE != 0 {
            return Err(libc::EINVAL);
        }
        // SAFETY: by the contract of this verb.
        let queue = unsafe { find(cq) }?;
        if attr.attr_mask & IBV_CQ_ATTR_MODERATE != 0 {
            let ibv_moderate_cq { cq_count, cq_period } = attr.moderate;
            queue.moderate(Moderation { count: cq_count, period: u64::from(cq_period) * 1000 });
        }
        Ok(())
    })
}

/// Our part, directly from a live pointer. Polls trust the pointer, as C allows.
///
/// # Safety
/// `cq` is null or live.
#[inline]
pub(crate) unsafe fn of<'a>(cq: *mut ibv_cq) -> Option<&'a Queue> {
    // SAFETY: by the contract of this function.
    unsafe { trusted::<ibv_cq_ex, Queue>(cq.cast()) }
}

/// The program hears that all completions of a queue are there. A rehearsal does not hide them then.
///
/// # Safety
/// `cq` is null or live.
pub(crate) unsafe fn all_are_there(cq: *mut ibv_cq) {
    // SAFETY: by the contract of this function.
    let queue = unsafe { of(cq) };
    let polled = queue.and_then(|queue| queue.polled.as_ref());
    polled.into_iter().for_each(|polled| polled.lock().promised());
}

/// As [`of`]. `EIO` if its device has failed.
///
/// # Safety
/// As [`of`].
#[inline]
pub(crate) unsafe fn usable<'a>(cq: *mut ibv_cq) -> Result<&'a Queue, c_int> {
    // SAFETY: by the contract of this function.
    let queue = unsafe { of(cq) }.ok_or(libc::EINVAL)?;
    check_device(|| queue.adapter.device())?;
    Ok(queue)
}

/// Takes up to `limit` completions. Returns their number, or -1 if the queue has overrun (rule CQ-01).
///
/// # Safety
/// `cq` is null or live; `wc` is null or writable for `limit` entries.
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, limit: c_int, wc: *mut ibv_wc) -> c_int {
    let polled = guarded_always("ibv_poll_cq", || {
        // SAFETY: by the contract of this verb.
        let queue = unsafe { usable(cq) }?;
        let limit = usize::try_from(limit).map_err(|_| libc::EINVAL)?;
        if wc.is_null() && limit > 0 {
            return Err(libc::EINVAL);
        }
        let write = |at: usize, completion: &Completion| {
            // SAFETY: `at` is below `limit`, so it is within the caller's array.
            unsafe { wc.add(at).write(to_c(completion)) };
        };
        loop {
            let polled = queue.adapter.poll(&queue.cq, limit, write);
            let count = polled.ok_or_else(|| overrun(queue, "ibv_poll_cq"))?;
            if queue.cq.polled(count) {
                return Ok(count);
            }
        }
    });
    polled.map_or(-1, |count| count as c_int)
}

/// Notes that the queue has overrun, so that it gives no completions any more (rule CQ-05). Returns the errno.
#[cold]
pub(crate) fn overrun(queue: &Queue, verb: &'static str) -> c_int {
    const SAID: &str =
        "the completion queue has overrun: it gives no more completions, and can only be destroyed";
    let wrong = Wrong::because(libc::EIO, SAID, "CQ-05");
    wrong.told_seldom(queue.adapter.device(), verb)
}

/// The service level of a received datagram with an IPv4 header, as on NVIDIA's adapters. It means that the GRH area
/// holds 20 bytes. RoCE does not use the service level otherwise, and UCX reads it.
const ROCE_V2_IPV4: u8 = 2;

/// A completion in its C form. The port has no LID, only one P_Key, and only one path.
#[inline]
pub(crate) fn to_c(completion: &Completion) -> ibv_wc {
    ibv_wc {
        wr_id: completion.wr_id,
        status: completion.status as ibv_wc_status,
        opcode: completion.opcode as ibv_wc_opcode,
        vendor_err: completion.vendor_error.into(),
        byte_len: completion.byte_length,
        imm: ibv_wc_imm { imm_data: completion.immediate },
        qp_num: completion.qp,
        src_qp: completion.source_qp,
        wc_flags: completion.flags.difference(Flags::IPV4 | Flags::SOLICITED).bits().into(),
        // A reply to a datagram goes to its source (rule UD-07).
        sl: if completion.flags.contains(Flags::IPV4) { ROCE_V2_IPV4 } else { 0 },
        ..ibv_wc::default()
    }
}

/// Asks for an event at the next completion, or the next solicited one. The event is raised at once if such a
/// completion is already waiting (rules CQ-06 to CQ-12).
///
/// # Safety
/// `cq` is live.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: by the contract of this verb.
    unsafe { arm_by(cq, |queue| _ = arm(queue, solicited_only, false)) }
}

/// Arms a queue with `arm`.
///
/// # Safety
/// As [`req_notify_cq`].
#[inline]
pub(crate) unsafe fn arm_by(cq: *mut ibv_cq, arm: impl FnOnce(&Queue)) -> c_int {
    zero_or(guarded_always("ibv_req_notify_cq", || {
        // SAFETY: by the contract of this function.
        arm(unsafe { usable(cq) }?);
        Ok(())
    }))
}

/// Arms a queue. Returns whether an event was raised at once, or is [held](Cq::arm_holding).
#[inline]
pub(crate) fn arm(queue: &Queue, solicited_only: c_int, holds: bool) -> bool {
    let notify = if solicited_only != 0 { Notify::Solicited } else { Notify::Any };
    let raised = if holds { queue.cq.arm_holding(notify) } else { queue.cq.arm(notify) };
    queue.adapter.expect_sleep();
    raised
}

/// The owner of a queue's events, for `transom check`.
pub(crate) fn owner(event: Event, cq: *const ibv_cq) -> Owner {
    Owner { event, thing: Thing::CompletionQueue, address: cq.addr() }
}

/// Counts a completion event as delivered. Returns the pointer for C, and the program's own pointer.
pub(crate) fn deliver_completion(handle: u32) -> Option<(*mut ibv_cq, *mut c_void)> {
    CQS.by_handle(handle, |object| {
        object.inner.events.delivered();
        object.inner.polled.iter().for_each(|polled| polled.lock().event_taken());
        // SAFETY: the struct is live while the table is locked.
        (object.abi.cast(), unsafe { (*object.abi).cq_context })
    })
}

/// Counts an asynchronous event as delivered. Returns the pointer for C.
pub(crate) fn deliver_event(handle: u32) -> Option<*mut ibv_cq> {
    CQS.by_handle(handle, |object| {
        object.inner.async_events.delivered();
        object.abi.cast()
    })
}

/// Counts an asynchronous event as acknowledged.
///
/// # Safety
/// `cq` is null or readable.
pub(crate) unsafe fn acknowledge_event(cq: *mut ibv_cq) {
    // SAFETY: by the contract of this function.
    if let Some(queue) = unsafe { of(cq) } {
        queue.async_events.acknowledged(1);
    }
}

/// Ends the completion queues of a context, which is being closed. Nobody can acknowledge events any more.
pub(crate) fn free_all(context: *mut ibv_context) {
    for mut taken in CQS.take_all(context) {
        let Some(queue) = taken.inner.take() else { continue };
        if queue.cq.check_unused().is_err() {
            taken.put_back(queue);
            continue;
        }
        drop(queue);
        // SAFETY: this call counts off this queue.
        unsafe { Context::release(context) };
    }
}

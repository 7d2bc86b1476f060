//! `ibv_create_cq(3)`, `ibv_poll_cq(3)`, `ibv_get_cq_event(3)`.

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::*};

use transom_abi::*;
use transom_device::queue::{Completion, Notify};
use transom_host::objects::{CompletionTarget, Cq, EventPipe};
use transom_host::{Adapter, Limits};

use crate::context::Context;
use crate::event::EventCount;
use crate::object::{Object, Table};
use crate::{errno_of, null_with, set_errno};

/// A completion queue, and who waits for it.
pub(crate) struct Queue {
    adapter: Arc<Adapter>,
    pub(crate) cq: Arc<Cq>,
    channel: Option<ChannelPointer>,
    events: Arc<EventCount>,
    async_events: Arc<EventCount>,
}

/// A channel that a completion queue uses, and so keeps alive.
struct ChannelPointer(*mut Channel);

// SAFETY: only its atomic count and its pipe are used.
unsafe impl Send for ChannelPointer {}

type CqObject = Object<ibv_cq, Queue>;

static CQS: Table<ibv_cq, Queue> = Table::new();

/// A completion channel: the C struct, and ours behind it.
#[repr(C)]
struct Channel {
    abi: ibv_comp_channel,
    pipe: Arc<EventPipe>,
    users: AtomicU32,
}

/// Makes a completion channel; its descriptor becomes readable with an event.
///
/// # Safety
/// `context` is open.
pub unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    if context.is_null() {
        return null_with(libc::EINVAL);
    }
    match EventPipe::new() {
        Ok(pipe) => {
            let fd = pipe.descriptor().as_raw_fd();
            let abi = ibv_comp_channel { context, fd, refcnt: 0 };
            let channel = Channel { abi, pipe: Arc::new(pipe), users: AtomicU32::new(0) };
            Box::into_raw(Box::new(channel)).cast()
        }
        Err(error) => null_with(error.raw_os_error().unwrap_or(libc::ENOMEM)),
    }
}

/// Ends a completion channel; `EBUSY` while completion queues use it (rule CR-16).
///
/// # Safety
/// `channel` is null or live.
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    if channel.is_null() {
        return libc::EINVAL;
    }
    let channel = channel.cast::<Channel>();
    // SAFETY: by the contract of this verb, made by `ibv_create_comp_channel`.
    unsafe {
        if (*channel).users.load(Acquire) != 0 {
            return libc::EBUSY;
        }
        drop(Box::from_raw(channel));
    }
    0
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
    // SAFETY: by the contract of this verb.
    let Some(ours) = (unsafe { Context::of(context) }) else { return null_with(libc::EINVAL) };
    let limit = Limits::DEVICE.completions as c_int;
    if !(1..=limit).contains(&cqe) || comp_vector != 0 {
        return null_with(libc::EINVAL);
    }
    let abi = ibv_cq { context, channel, cq_context, cqe, ..ibv_cq::default() };
    // SAFETY: by the contract of this verb.
    let shared = unsafe { channel.cast::<Channel>().as_ref() };
    if let Some(shared) = shared {
        shared.users.fetch_add(1, AcqRel);
    }
    ours.adopt();
    CQS.insert(abi, |handle| {
        let target = CompletionTarget {
            channel: shared.map(|shared| shared.pipe.clone()),
            events: ours.events.clone(),
            id: u64::from(handle),
        };
        Queue {
            adapter: ours.adapter.clone(),
            cq: Arc::new(Cq::new(cqe as usize, target)),
            channel: shared.map(|_| ChannelPointer(channel.cast())),
            events: Arc::default(),
            async_events: Arc::default(),
        }
    })
}

/// The queue a pointer names, for a queue pair that shall use it.
///
/// # Safety
/// `cq` is null or readable.
pub(crate) unsafe fn find(cq: *const ibv_cq) -> Result<Arc<Cq>, c_int> {
    // SAFETY: by the contract of this function.
    let found = unsafe { CQS.with(cq, |object| object.inner.as_ref().map(|q| q.cq.clone())) }?;
    found.ok_or(libc::ENOENT)
}

/// Ends a completion queue, after its delivered events are acknowledged (rules CR-12, CR-18).
///
/// # Safety
/// `cq` is null or readable.
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    errno_of((|| {
        loop {
            // SAFETY: by the contract of this verb.
            let (queue, events, async_events) = unsafe {
                CQS.with(cq, |object| {
                    let queue = object.inner.as_ref()?;
                    Some((queue.cq.clone(), queue.events.clone(), queue.async_events.clone()))
                })
            }?
            .ok_or(libc::ENOENT)?;
            queue.check_unused().map_err(|_| libc::EBUSY)?;
            events.settle();
            async_events.settle();
            // SAFETY: as above.
            let mut taken = unsafe { CQS.take(cq) }?;
            let queue = taken.inner.take().ok_or(libc::ENOENT)?;
            // No event can be delivered from here on; one may have been just before.
            if !events.is_settled()
                || !async_events.is_settled()
                || queue.cq.check_unused().is_err()
            {
                taken.put_back(queue);
                continue;
            }
            if let Some(ChannelPointer(channel)) = queue.channel {
                // SAFETY: the count kept the channel alive.
                unsafe { (*channel).users.fetch_sub(1, AcqRel) };
            }
            // SAFETY: the struct stays readable; a context outlives its queues.
            unsafe { Context::release((*cq).context) };
            return Ok(());
        }
    })())
}

/// Changes the size; `EINVAL` below what is waiting (rule CQ-14).
///
/// # Safety
/// `cq` is null or readable.
pub unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    errno_of((|| {
        if !(1..=Limits::DEVICE.completions as c_int).contains(&cqe) {
            return Err(libc::EINVAL);
        }
        // SAFETY: by the contract of this verb.
        unsafe {
            CQS.with(cq, |object| {
                let queue = object.inner.as_ref().ok_or(libc::ENOENT)?;
                queue.cq.resize(cqe as usize).map_err(|_| libc::EINVAL)?;
                object.abi.cqe = cqe;
                Ok(())
            })
        }?
    })())
}

/// Ours, straight from a live pointer: polling trusts it, as C demands.
///
/// # Safety
/// `cq` is null or live.
#[inline]
unsafe fn of<'a>(cq: *mut ibv_cq) -> Option<&'a Queue> {
    // SAFETY: by the contract of this function.
    unsafe { cq.cast::<CqObject>().as_ref() }?.inner.as_ref()
}

/// Takes up to `limit` completions; their number, or -1 on an overrun queue (rule CQ-01).
///
/// # Safety
/// `cq` is live; `wc` is writable for `limit` entries.
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, limit: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: by the contract of this verb.
    let Some(queue) = (unsafe { of(cq) }) else { return -1 };
    let Ok(limit) = usize::try_from(limit) else { return -1 };
    // SAFETY: `at` is below `limit`, so within what the caller gave.
    let write = |at: usize, completion: &Completion| unsafe { wc.add(at).write(to_c(completion)) };
    queue.adapter.poll(&queue.cq, limit, write).map_or(-1, |count| count as c_int)
}

#[inline]
fn to_c(completion: &Completion) -> ibv_wc {
    ibv_wc {
        wr_id: completion.wr_id,
        status: completion.status as ibv_wc_status,
        opcode: completion.opcode as ibv_wc_opcode,
        vendor_err: completion.vendor_error,
        byte_len: completion.byte_length,
        imm: ibv_wc_imm { imm_data: completion.immediate },
        qp_num: completion.qp,
        src_qp: completion.source_qp,
        wc_flags: completion.flags.bits(),
        ..ibv_wc::default()
    }
}

/// Asks for an event at the next completion, or the next solicited one (rules CQ-06 to CQ-12).
///
/// # Safety
/// `cq` is live.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: by the contract of this verb.
    let Some(queue) = (unsafe { of(cq) }) else { return libc::EINVAL };
    queue.cq.arm(if solicited_only != 0 { Notify::Solicited } else { Notify::Any });
    queue.adapter.expect_sleep();
    0
}

/// Takes the next event of a channel; blocks if its descriptor does (rules CQ-11, CR-18).
///
/// # Safety
/// All pointers are valid.
pub unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: by the contract of this verb.
    let Some(ours) = (unsafe { channel.cast::<Channel>().as_ref() }) else {
        set_errno(libc::EINVAL);
        return -1;
    };
    loop {
        let handle = match ours.pipe.take() {
            Ok((_, handle)) => handle as u32,
            Err(error) => {
                set_errno(error.raw_os_error().unwrap_or(libc::EIO));
                return -1;
            }
        };
        let found = CQS.with_locked(handle, |object| {
            if let Some(queue) = &object.inner {
                queue.events.delivered();
            }
            (&raw mut object.abi, object.abi.cq_context)
        });
        // An event of a queue destroyed meanwhile is nobody's.
        if let Some((found, context)) = found {
            // SAFETY: by the contract of this verb.
            unsafe {
                *cq = found;
                *cq_context = context;
            }
            return 0;
        }
    }
}

/// Acknowledges events.
///
/// # Safety
/// `cq` is live.
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint) {
    // SAFETY: by the contract of this verb.
    if let Some(queue) = unsafe { of(cq) } {
        queue.events.acknowledged(u64::from(count));
    }
}

/// Counts an asynchronous event as delivered; the pointer for C.
pub(crate) fn deliver_event(handle: u32) -> Option<*mut ibv_cq> {
    CQS.with_locked(handle, |object| {
        if let Some(queue) = &object.inner {
            queue.async_events.delivered();
        }
        &raw mut object.abi
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

/// Ends the completion queues of a context that is closed; nobody can acknowledge events any more.
pub(crate) fn free_all(context: *mut ibv_context) {
    for mut taken in CQS.take_all(context) {
        let Some(queue) = taken.inner.take() else { continue };
        if queue.cq.check_unused().is_err() {
            taken.put_back(queue);
            continue;
        }
        if let Some(ChannelPointer(channel)) = queue.channel {
            // SAFETY: the count kept the channel alive.
            unsafe { (*channel).users.fetch_sub(1, AcqRel) };
        }
        // SAFETY: this queue is the one that is counted off.
        unsafe { Context::release(context) };
    }
}

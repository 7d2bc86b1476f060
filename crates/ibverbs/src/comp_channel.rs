//! `ibv_create_comp_channel(3)`, `ibv_get_cq_event(3)`.

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::*};

use transom_abi::*;
use transom_host::objects::{CompletionEvent, EventQueue};

use crate::{cq, null_with, set_errno};

/// A completion channel: the C struct, and ours behind it.
#[repr(C)]
struct Channel {
    abi: ibv_comp_channel,
    events: Arc<EventQueue<CompletionEvent>>,
    users: AtomicU32,
}

/// A completion queue's use of a channel, which so stays alive.
pub(crate) struct ChannelUse(*mut Channel);

// SAFETY: only its atomic count and its events are used.
unsafe impl Send for ChannelUse {}
// SAFETY: as for `Send`.
unsafe impl Sync for ChannelUse {}

impl ChannelUse {
    /// Counts a user; `None` for a null pointer.
    ///
    /// # Safety
    /// `channel` is null or live.
    pub(crate) unsafe fn of(channel: *mut ibv_comp_channel) -> Option<Self> {
        let channel = channel.cast::<Channel>();
        // SAFETY: by the contract of this function.
        unsafe { channel.as_ref() }?.users.fetch_add(1, AcqRel);
        Some(Self(channel))
    }

    pub(crate) fn events(&self) -> Arc<EventQueue<CompletionEvent>> {
        // SAFETY: the count keeps the channel alive.
        unsafe { (*self.0).events.clone() }
    }
}

impl Drop for ChannelUse {
    fn drop(&mut self) {
        // SAFETY: the count kept the channel alive.
        unsafe { (*self.0).users.fetch_sub(1, AcqRel) };
    }
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
    match EventQueue::new() {
        Ok(events) => {
            let fd = events.descriptor().as_raw_fd();
            let abi = ibv_comp_channel { context, fd, refcnt: 0 };
            let channel = Channel { abi, events: Arc::new(events), users: AtomicU32::new(0) };
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

/// Takes the next event of a channel; blocks if its descriptor does (rules CQ-11, CR-18).
///
/// # Safety
/// All pointers are null or valid.
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
    if cq.is_null() || cq_context.is_null() {
        set_errno(libc::EINVAL);
        return -1;
    }
    loop {
        let handle = match ours.events.take() {
            Ok((_, handle)) => handle as u32,
            Err(error) => {
                set_errno(error.raw_os_error().unwrap_or(libc::EIO));
                return -1;
            }
        };
        // An event of a queue destroyed meanwhile is nobody's.
        if let Some((found, context)) = cq::deliver_completion(handle) {
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
    if let Some(queue) = unsafe { cq::of(cq) } {
        queue.events.acknowledged(u64::from(count));
    }
}

//! `ibv_create_comp_channel(3)`.

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

use transom_abi::*;
use transom_check::ledger::Thing;
use transom_host::Adapter;
use transom_host::events::{CompletionEvent, EventQueue};
use transom_system::registry::{Holder, Holders};

use crate::context::Context;
use crate::entry::{errno_always, pointer_of};
use crate::wrong::Wrong;
use crate::{check, told};

/// A completion channel: the C struct, and our part behind it.
#[repr(C)]
struct Object {
    abi: ibv_comp_channel,
    /// `None` once the channel is destroyed, in a process under `transom check`. No other process keeps the memory.
    channel: Option<Channel>,
    /// Of a destroyed one, the one that was destroyed before.
    next: *mut Object,
}

/// Our part of a completion channel.
pub(crate) struct Channel {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) events: Arc<EventQueue<CompletionEvent>>,
    users: AtomicU32,
}

impl Channel {
    /// Our part, from the pointer that C has.
    ///
    /// # Safety
    /// `channel` is null or live. Under `transom check` it may be destroyed.
    pub(crate) unsafe fn of<'a>(channel: *mut ibv_comp_channel) -> Option<&'a Self> {
        // SAFETY: by the contract of this function. `ibv_create_comp_channel` made it.
        unsafe { channel.cast::<Object>().as_ref() }?.channel.as_ref()
    }
}

/// The channels that were destroyed under `transom check`, which recognizes them. They stay until the process ends.
static DEAD: AtomicPtr<Object> = AtomicPtr::new(null_mut());

impl Object {
    /// Keeps a destroyed one. It takes no lock, which a child might find held.
    fn keep(self: Box<Self>) {
        let object = Box::into_raw(self);
        let mut first = DEAD.load(Relaxed);
        loop {
            // SAFETY: it is this call's own until the exchange.
            unsafe { (*object).next = first };
            match DEAD.compare_exchange_weak(first, object, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(other) => first = other,
            }
        }
    }
}

/// A completion queue's use of a channel. It keeps the channel alive.
pub(crate) struct ChannelUse(NonNull<Channel>);

// SAFETY: only the channel's atomic count and its events are used.
unsafe impl Send for ChannelUse {}
// SAFETY: as for `Send`.
unsafe impl Sync for ChannelUse {}

impl ChannelUse {
    /// Counts a user, a queue of this context. `None` for a null pointer. `EBADF` for a channel of another context: on
    /// Linux its descriptor is none of the context's file.
    ///
    /// # Safety
    /// `channel` is null or live.
    pub(crate) unsafe fn of(
        channel: *mut ibv_comp_channel,
        context: &Context,
    ) -> Result<Option<Self>, Wrong> {
        if channel.is_null() {
            return Ok(None);
        }
        // SAFETY: by the contract of this function.
        let Some(ours) = (unsafe { Channel::of(channel) }) else {
            check::is_dead(told::verb(), Thing::Channel, channel);
            return Err(Wrong::unknown("channel", libc::EINVAL, ""));
        };
        if !Arc::ptr_eq(ours.adapter.device(), context.device()) {
            return Err(Wrong::OTHER_DEVICE.answering(libc::EBADF));
        }
        // SAFETY: it is open, because a context outlives what is made in it.
        if !unsafe { context.goes_with((*channel).context) } {
            return Err(Wrong::OTHER_CONTEXT.answering(libc::EBADF));
        }
        ours.users.fetch_add(1, AcqRel);
        Ok(Some(Self(ours.into())))
    }

    pub(crate) fn events(&self) -> Arc<EventQueue<CompletionEvent>> {
        // SAFETY: the count keeps the channel alive.
        unsafe { self.0.as_ref() }.events.clone()
    }
}

impl Drop for ChannelUse {
    fn drop(&mut self) {
        // SAFETY: the count kept the channel alive.
        unsafe { self.0.as_ref() }.users.fetch_sub(1, AcqRel);
    }
}

/// Makes a completion channel. Its descriptor is readable while an event waits.
///
/// # Safety
/// `context` is open.
pub unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    pointer_of("ibv_create_comp_channel", || {
        // SAFETY: by the contract of this verb.
        let of = unsafe { Context::to_make_in(context) }?;
        let adapter = of.adapter.clone();
        let events = adapter.device().completion_events();
        let events = events.map_err(|error| error.raw_os_error().unwrap_or(libc::ENOMEM))?;
        let fd = events.descriptor().as_raw_fd();
        let abi = ibv_comp_channel { context, fd, refcnt: 0 };
        let channel = Some(Channel { adapter, events, users: AtomicU32::new(0) });
        let object = Object { abi, channel, next: null_mut() };
        let made: *mut ibv_comp_channel = Box::into_raw(Box::new(object)).cast();
        if let Some(checker) = check::on() {
            checker.made(Thing::Channel, made.addr(), context.addr(), 0);
        }
        Ok(made)
    })
}

/// Ends a completion channel. `EBUSY` while completion queues use it (rule CR-16).
///
/// # Safety
/// `channel` is null or live.
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    errno_always("ibv_destroy_comp_channel", || {
        if channel.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: by the contract of this verb.
        let Some(ours) = (unsafe { Channel::of(channel) }) else {
            check::is_dead("ibv_destroy_comp_channel", Thing::Channel, channel);
            return Err(libc::EINVAL);
        };
        let device = ours.adapter.device();
        check::uses(told::verb, device, Some((Thing::Channel, channel.addr())));
        let users = ours.users.load(Acquire);
        if users != 0 {
            let mut holders = Holders::default();
            (0..users).for_each(|_| holders.add(Holder::CompletionQueue, 0));
            if let Some(checker) = check::on() {
                checker.busy(Thing::Channel, channel.addr());
            }
            let wrong = Wrong::held(holders, "CR-16");
            return Err(wrong.told(Some(device), "ibv_destroy_comp_channel", 0));
        }
        // SAFETY: `ibv_create_comp_channel` made it, and by the contract of this verb nobody uses it any more.
        let mut object = unsafe { Box::from_raw(channel.cast::<Object>()) };
        drop(object.channel.take());
        if let Some(checker) = check::on() {
            object.keep();
            checker.ended(Thing::Channel, channel.addr());
        }
        Ok(())
    })
}

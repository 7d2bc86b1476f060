//! Event channels: `rdma_create_event_channel(3)`.

use std::sync::atomic::{AtomicI32, Ordering::*};

use transom_abi::rdma_event_channel;

use crate::check;
use crate::entry::{effect_of, pointer_of};
use crate::file::File;
use crate::last::Last;
use crate::provider::{Provider, Source, provider};
use crate::sanitized;
use crate::wrong::Wrong;

/// An event channel: an open file.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Channel {
    /// First, because the program has a pointer to it.
    public: rdma_event_channel,
    pub(crate) provider: &'static Provider,
}

impl Channel {
    /// Opens a channel.
    pub(crate) fn open(provider: &'static Provider) -> Result<*mut rdma_event_channel, Wrong> {
        check::begin(&provider.calls);
        let fd = provider.calls.open()?;
        let channel = Self { public: rdma_event_channel { fd }, provider };
        let channel = Box::into_raw(Box::new(channel)).cast();
        sanitized::written::<rdma_event_channel>(channel);
        Ok(channel)
    }

    /// The channel that a program's pointer points to.
    ///
    /// # Safety
    /// The pointer is null, or its channel is not destroyed as long as the result is used.
    pub(crate) unsafe fn of<'a>(channel: *mut rdma_event_channel) -> Result<&'a Self, Wrong> {
        // SAFETY: by the contract of this function.
        unsafe { channel.cast::<Self>().as_ref() }.ok_or(Wrong::invalid("channel is null"))
    }

    /// The file.
    pub(crate) fn file(&self) -> File {
        File { calls: &self.provider.calls, descriptor: self.descriptor().load(Acquire) }
    }

    /// Whether it has just been destroyed.
    pub(crate) fn is_closed(&self) -> bool {
        self.descriptor().load(Acquire) < 0
    }

    fn descriptor(&self) -> &AtomicI32 {
        // SAFETY: it lives as long as `self`. Programs that read it do not destroy the channel at the same time.
        unsafe { AtomicI32::from_ptr((&raw const self.public.fd).cast_mut()) }
    }

    /// Closes a channel. A thread of the program may be about to fetch the next event just then. With the kernel's file
    /// it would wait for ever. So that it can do the same here, the memory of the last few closed channels stays
    /// readable.
    ///
    /// # Safety
    /// The pointer is null, or nothing uses the channel any more.
    pub(crate) unsafe fn close(channel: *mut rdma_event_channel) {
        static CLOSED: Last<Channel, 16> = Last::new();
        if channel.is_null() {
            return;
        }
        // SAFETY: by the contract of this function.
        let channel = unsafe { Box::from_raw(channel.cast::<Self>()) };
        let descriptor = channel.descriptor().swap(-1, AcqRel);
        // SAFETY: the descriptor is this channel's own.
        unsafe { (channel.provider.calls.close)(descriptor) };
        drop(CLOSED.keep(channel));
    }
}

/// Makes a channel whose descriptor is readable while an event waits.
pub extern "C" fn rdma_create_event_channel<S: Source>() -> *mut rdma_event_channel {
    pointer_of(c"rdma_create_event_channel", || Channel::open(provider::<S>()?))
}

/// Closes a channel.
///
/// # Safety
/// The pointer is null, or no id and no other call uses the channel any more.
pub unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    effect_of(c"rdma_destroy_event_channel", || {
        // SAFETY: by the contract of this function.
        unsafe { Channel::close(channel) };
        Ok(())
    });
}

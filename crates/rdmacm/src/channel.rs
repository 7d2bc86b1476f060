//! Event channels: `rdma_create_event_channel(3)`.

use transom_abi::rdma_event_channel;

use crate::entry::{effect_of, pointer_of};
use crate::file::File;
use crate::provider::{Provider, Source};

/// An event channel: an open file.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Channel {
    /// First, since the program has a pointer to it.
    public: rdma_event_channel,
    pub(crate) provider: &'static Provider,
}

impl Channel {
    /// Opens one.
    pub(crate) fn open(provider: &'static Provider) -> Result<*mut rdma_event_channel, i32> {
        let fd = provider.calls.open()?;
        let channel = Self { public: rdma_event_channel { fd }, provider };
        Ok(Box::into_raw(Box::new(channel)).cast())
    }

    /// What a program's pointer points to.
    ///
    /// # Safety
    /// It is null, or a channel that is not destroyed as long as the answer is used.
    pub(crate) unsafe fn of<'a>(channel: *mut rdma_event_channel) -> Result<&'a Self, i32> {
        // SAFETY: by the contract of this function.
        unsafe { channel.cast::<Self>().as_ref() }.ok_or(libc::EINVAL)
    }

    /// The file.
    pub(crate) fn file(&self) -> File {
        File { calls: &self.provider.calls, descriptor: self.public.fd }
    }

    /// Closes one.
    ///
    /// # Safety
    /// It is null, or a channel that is not used any more.
    pub(crate) unsafe fn close(channel: *mut rdma_event_channel) {
        if !channel.is_null() {
            // SAFETY: by the contract of this function.
            let channel = unsafe { Box::from_raw(channel.cast::<Self>()) };
            // SAFETY: the descriptor is this channel's own.
            unsafe { (channel.provider.calls.close)(channel.public.fd) };
        }
    }
}

/// Makes a channel whose descriptor is readable while an event waits.
pub extern "C" fn rdma_create_event_channel<S: Source>() -> *mut rdma_event_channel {
    pointer_of(|| Channel::open(S::provider()?))
}

/// Closes a channel.
///
/// # Safety
/// It is null, or a channel that no id and no other call uses any more.
pub unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    effect_of(|| {
        // SAFETY: by the contract of this function.
        unsafe { Channel::close(channel) };
        Ok(())
    });
}

//! Completion channels.

use crate::Result;
use crate::context::OpenDevice;
use crate::error::non_null;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use transom_abi::*;

/// The completion channel of one queue.
pub(crate) struct Channel {
    pub(crate) raw: *mut ibv_comp_channel,
    pub(crate) device: Arc<OpenDevice>,
}

impl Channel {
    pub(crate) fn create(device: Arc<OpenDevice>) -> Result<Self> {
        // SAFETY: the context is open.
        let raw = unsafe { (device.provider.verbs.ibv_create_comp_channel)(device.context) };
        let raw = non_null("ibv_create_comp_channel", "creating a completion channel", raw)?;
        Ok(Self { raw: raw.as_ptr(), device })
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel keeps its descriptor open as long as it exists.
        unsafe { BorrowedFd::borrow_raw((*self.raw).fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if self.device.is_inherited() {
            return;
        }
        // SAFETY: the queue that used the channel is destroyed; if that failed, the channel is
        // busy and stays.
        unsafe { (self.device.provider.verbs.ibv_destroy_comp_channel)(self.raw) };
    }
}

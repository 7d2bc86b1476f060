//! An opened device.

use crate::error::{check, last_error, unsupported};
use crate::event::{AsyncEvent, AsyncEventKind};
use crate::extended::extended;
use crate::process::Process;
use crate::{DeviceAttributes, Gid, GidType, PortAttributes, Provider, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fmt;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use transom_abi::*;

/// An opened device; see `ibv_open_device(3)`.
///
/// Clones refer to the same opened device. The device closes when the last clone and the last object made from it are
/// gone.
///
/// ```
/// use transom::Provider;
///
/// let context = transom::devices(&Provider::software())?[0].open()?;
/// println!("{} is {} at its port 1", context.name(), context.gid(1, 0)?);
/// # Ok::<(), transom::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Context {
    pub(crate) inner: Arc<OpenDevice>,
}

impl Context {
    /// # Safety
    /// The context was opened by this provider, and nobody else closes it.
    pub(crate) unsafe fn from_raw(
        context: *mut ibv_context,
        provider: Provider,
        name: String,
        process: Process,
    ) -> Self {
        let (waiting, changed) = (Mutex::default(), Condvar::new());
        let device = OpenDevice { context, provider, name, process, waiting, changed };
        Self { inner: Arc::new(device) }
    }

    /// The name of the device, such as `transom0`.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The abilities and limits of the device; see `ibv_query_device(3)`.
    ///
    /// # Errors
    /// [`crate::Error::Verb`] if the device does not answer.
    pub fn attributes(&self) -> Result<DeviceAttributes> {
        // SAFETY: all zero is a value of this struct of integers and C strings.
        let mut attributes: ibv_device_attr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open and the place to write is valid.
        let result = unsafe {
            (self.inner.provider.verbs.ibv_query_device)(self.inner.context, &raw mut attributes)
        };
        check("ibv_query_device", format_args!("querying {}", self.name()), result)?;
        Ok(DeviceAttributes::new(&attributes, self.extended_flags()))
    }

    /// The device's extended capabilities, which `ibv_query_device(3)` does not report; see `ibv_query_device_ex(3)`.
    /// None if the library has no such verb.
    fn extended_flags(&self) -> u64 {
        let Some(query_device_ex) = extended!(self.inner, query_device_ex) else { return 0 };
        // SAFETY: all zero is a value of this struct of integers and C strings.
        let mut attributes: ibv_device_attr_ex = unsafe { std::mem::zeroed() };
        let (context, size) = (self.inner.context, size_of::<ibv_device_attr_ex>());
        // SAFETY: the context is open, and the operation is its own. It writes at most the size it
        // is given.
        match unsafe { query_device_ex(context, ptr::null(), &raw mut attributes, size) } {
            0 => attributes.device_cap_flags_ex,
            _ => 0,
        }
    }

    /// The state of a port; see `ibv_query_port(3)`. The first port is 1.
    ///
    /// # Errors
    /// [`crate::Error::Verb`], EINVAL if there is no such port.
    pub fn port(&self, port: u8) -> Result<PortAttributes> {
        let mut attributes = ibv_port_attr::default();
        let query_port =
            extended!(self.inner, query_port).ok_or_else(|| unsupported("ibv_query_port"))?;
        // SAFETY: the context is open, and the operation is its own. It writes at most the size
        // it is given.
        let result = unsafe {
            query_port(self.inner.context, port, &raw mut attributes, size_of::<ibv_port_attr>())
        };
        let subject = format_args!("querying port {port} of {}", self.name());
        check("ibv_query_port", subject, result)?;
        Ok(PortAttributes::from(&attributes))
    }

    /// An entry of a port's GID table; see `ibv_query_gid(3)`. Its [type](Self::gid_type) says what it is for.
    ///
    /// # Errors
    /// [`crate::Error::Verb`] if there is no such port or entry.
    pub fn gid(&self, port: u8, index: u8) -> Result<Gid> {
        let mut gid = ibv_gid::default();
        // SAFETY: the context is open and the place to write is valid.
        let result = unsafe {
            let context = self.inner.context;
            (self.inner.provider.verbs.ibv_query_gid)(context, port, index.into(), &raw mut gid)
        };
        let subject = format_args!("reading GID {index} of port {port} of {}", self.name());
        check("ibv_query_gid", subject, result)?;
        // SAFETY: both members of the union are sixteen bytes.
        Ok(Gid(unsafe { gid.raw }))
    }

    /// The type of an entry of a port's GID table; see `ibv_query_gid_ex(3)`.
    ///
    /// An Ethernet adapter has entries of both versions of RoCE for one address. Both ends of a connection must use the
    /// same version. Take one of version 2, unless the peer has version 1:
    ///
    /// ```
    /// # let context = transom::devices(&transom::Provider::software())?[0].open()?;
    /// # let pd = transom::ProtectionDomain::new(&context)?;
    /// # let cq = transom::CompletionQueue::new(&context, 16)?;
    /// use transom::{GidType, QueuePair};
    ///
    /// let is_v2 = |index: &u8| context.gid_type(1, *index).is_ok_and(|it| it == GidType::RoceV2);
    /// let index = (0..=u8::MAX).find(is_v2).expect("an address of RoCE version 2");
    /// let queue_pair = QueuePair::builder(&pd, &cq).gid_index(index).build()?;
    /// assert_eq!(queue_pair.endpoint().gid, context.gid(1, index)?);
    /// # Ok::<(), transom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::Verb`]: EINVAL or ENODATA if there is no such port or entry, or the entry is empty; EOPNOTSUPP if
    /// the library is older than `ibv_query_gid_ex(3)`.
    pub fn gid_type(&self, port: u8, index: u8) -> Result<GidType> {
        const VERB: &str = "ibv_query_gid_ex";
        let query = self.inner.provider.verbs._ibv_query_gid_ex;
        let query = query.ok_or_else(|| unsupported(VERB))?;
        let mut entry = ibv_gid_entry::default();
        let (context, size) = (self.inner.context, size_of::<ibv_gid_entry>());
        // SAFETY: the context is open, and the place to write has this size.
        let result = unsafe { query(context, port.into(), index.into(), &raw mut entry, 0, size) };
        let subject = format_args!("asking for GID {index} of port {port} of {}", self.name());
        check(VERB, subject, result)?;
        Ok(GidType::from(entry.gid_type))
    }

    /// Waits for an asynchronous event; see `ibv_get_async_event(3)`. `None` when the time is up.
    ///
    /// For example, a refused access raises an event on the side that owns the memory. Any number of threads can wait.
    /// Each event goes to one of them. The context's descriptor ([`AsFd`], [`AsRawFd`]) is readable when there is an
    /// event. This call makes the descriptor non-blocking for good.
    ///
    /// # Errors
    /// [`crate::Error::Verb`] if the device is gone. EIO after
    /// [`DeviceFatal`](crate::AsyncEventKind::DeviceFatal), because no event follows it.
    pub fn async_event(&self, timeout: Duration) -> Result<Option<AsyncEvent>> {
        let end = Instant::now().checked_add(timeout);
        // An event can vanish between the wait and the verb: its object may be destroyed, or another thread may take
        // it. The verb must not block then.
        if let Err(errno) = rustix::io::ioctl_fionbio(self, true) {
            return failed_wait(errno);
        }
        let OpenDevice { waiting, changed, .. } = &*self.inner;
        let mut guard = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // The sleeper will wake for this event. If we took it, the sleeper would go on sleeping.
            if !guard.sleeper
                && let Some(event) = self.take_event()?
            {
                guard.told_failure |= event.kind == AsyncEventKind::DeviceFatal;
                return Ok(Some(event));
            }
            if guard.told_failure {
                return failed_wait(Errno::IO);
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            guard = match left {
                Some(Duration::ZERO) => return Ok(None),
                Some(left) if guard.sleeper => {
                    let woken = changed.wait_timeout(guard, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None if guard.sleeper => {
                    changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
                }
                _ => {
                    guard.sleeper = true;
                    drop(guard);
                    let left = left.and_then(|left| Timespec::try_from(left).ok());
                    let slept = poll(&mut [PollFd::new(self, PollFlags::IN)], left.as_ref());
                    let mut guard = waiting.lock().unwrap_or_else(PoisonError::into_inner);
                    guard.sleeper = false;
                    // Now another thread becomes the sleeper, or all learn that the device has failed.
                    changed.notify_all();
                    match slept {
                        Ok(_) | Err(Errno::INTR) => guard,
                        Err(errno) => return failed_wait(errno),
                    }
                }
            };
        }
    }

    /// Takes an event if there is one. The descriptor does not block.
    fn take_event(&self) -> Result<Option<AsyncEvent>> {
        let verbs = self.inner.provider.verbs;
        let mut event = ibv_async_event::default();
        // SAFETY: the context is open and the place to write is valid.
        if unsafe { (verbs.ibv_get_async_event)(self.inner.context, &raw mut event) } != 0 {
            let error = last_error(GET_EVENT, format_args!("taking an event of {}", self.name()));
            let nothing = error.errno() == Some(Errno::AGAIN.raw_os_error());
            return if nothing { Ok(None) } else { Err(error) };
        }
        // SAFETY: the object an event is about exists until the event is acknowledged.
        let taken = unsafe { AsyncEvent::from_raw(&event) };
        // SAFETY: the event was taken just now and is acknowledged once.
        unsafe { (verbs.ibv_ack_async_event)(&raw mut event) };
        Ok(Some(taken))
    }
}

const GET_EVENT: &str = "ibv_get_async_event";

fn failed_wait(errno: Errno) -> Result<Option<AsyncEvent>> {
    check(GET_EVENT, "waiting for an asynchronous event", errno.raw_os_error()).map(|()| None)
}

impl AsFd for Context {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context keeps its descriptor open as long as it is open itself.
        unsafe { BorrowedFd::borrow_raw((*self.inner.context).async_fd) }
    }
}

impl AsRawFd for Context {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// The opened device itself; every object made from it holds it.
pub(crate) struct OpenDevice {
    pub(crate) context: *mut ibv_context,
    pub(crate) provider: Provider,
    name: String,
    /// The process that has opened it, and that has the objects made from it.
    pub(crate) process: Process,
    waiting: Mutex<Waiting>,
    /// Signalled when the sleeper has left.
    changed: Condvar,
}

/// The state of the threads that wait for asynchronous events. One thread at a time, the sleeper, sleeps on the
/// descriptor. The others wait until it leaves. So one thread can take an event that concerns all of them.
#[derive(Default)]
struct Waiting {
    sleeper: bool,
    /// An event has reported that the device failed. No event comes after it.
    told_failure: bool,
}

// SAFETY: libibverbs is thread-safe; a context may be used and closed by any thread.
unsafe impl Send for OpenDevice {}
// SAFETY: as for `Send`.
unsafe impl Sync for OpenDevice {}

impl OpenDevice {
    /// Whether it is the copy of a forked child, which must leave it and its objects alone.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process.is_parent()
    }

    /// The table of operations around the context, if it reaches this offset. The table grows at its front.
    pub(crate) fn extended_to(&self, offset: usize) -> Option<*const verbs_context> {
        // SAFETY: the context is open.
        if unsafe { (*self.context).abi_compat } != __VERBS_ABI_IS_EXTENDED {
            return None;
        }
        let table = self
            .context
            .wrapping_byte_sub(offset_of!(verbs_context, context))
            .cast::<verbs_context>();
        // SAFETY: the mark says that the context is the last part of a `verbs_context`.
        let size = unsafe { (*table).sz };
        (size >= size_of::<verbs_context>() - offset).then_some(table.cast_const())
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        if self.is_inherited() {
            return;
        }
        // SAFETY: every object made from the context holds this, so none is left. If closing fails anyway, the context
        // stays open, which does no harm.
        unsafe { (self.provider.verbs.ibv_close_device)(self.context) };
    }
}

impl fmt::Debug for OpenDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenDevice").field(&self.name).finish()
    }
}

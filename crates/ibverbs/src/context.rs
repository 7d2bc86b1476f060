//! A context: a view of a device, with its C struct.

use std::ffi::c_int;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::*};

use transom_abi::{ibv_context, verbs_context};
use transom_check::ledger::Thing;
use transom_host::Adapter;
use transom_host::device::{Device, Inherited};
use transom_host::events::{AsyncEvent, EventQueue, EventSource};
use transom_system::catalog::{Listed, Number};
use transom_system::object_counts::ObjectKind;

use crate::{adapters, check, rehearse, told};

/// The C struct, and our part behind it. C holds the address of the struct's last part.
#[repr(C)]
pub(crate) struct Context {
    abi: verbs_context,
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) events: Arc<EventQueue<AsyncEvent>>,
    _port_events: Arc<EventSource<AsyncEvent>>,
    /// `cmd_fd`. It is closed with the context.
    _command: OwnedFd,
    /// The number of objects made in it, plus one while it is open.
    users: AtomicU32,
    open: AtomicU32,
    /// It was made from another context's `cmd_fd`.
    imported: bool,
    /// The number by which others see it.
    pub(crate) listed: Option<Number>,
}

impl Context {
    /// Makes a context for C. Its `cmd_fd` is `command`, a descriptor that names the device, and another context's if it
    /// is imported. The caller has set the other fields of `abi`.
    pub(crate) fn enter(
        adapter: Arc<Adapter>,
        command: OwnedFd,
        imported: bool,
        mut abi: verbs_context,
    ) -> Result<*mut ibv_context, c_int> {
        let events = adapter.device().async_events();
        let events = events.map_err(|error| error.raw_os_error().unwrap_or(libc::EMFILE))?;
        let port_events = adapter.device().port_events().tell(&events).map_err(|_| libc::ENOMEM)?;
        abi.context.cmd_fd = command.as_raw_fd();
        abi.context.async_fd = events.descriptor().as_raw_fd();
        let process = adapter.device().process();
        process.objects().add(ObjectKind::Context);
        let listed = process.list(Listed::Context);
        adapters::note(&adapter);
        if let Some(checker) = check::on() {
            checker.context_opened(&events);
        }
        let ours = Self {
            abi,
            adapter,
            events,
            _port_events: port_events,
            _command: command,
            users: AtomicU32::new(1),
            open: AtomicU32::new(1),
            imported,
            listed,
        };
        let ours = Box::leak(Box::new(ours));
        Ok(&raw mut ours.abi.context)
    }

    /// Our part, from the pointer that C has. `None` for a null pointer, or if the running verb may not begin any more
    /// because the device has failed.
    ///
    /// # Safety
    /// `context` is null or from [`Context::enter`], and not closed.
    pub(crate) unsafe fn of<'a>(context: *mut ibv_context) -> Option<&'a Self> {
        if context.is_null() {
            return None;
        }
        // SAFETY: by the contract of this function.
        let ours = unsafe { Self::at(context) };
        told::about(ours.device());
        (!told::is_barred_from(ours.device())).then_some(ours)
    }

    /// # Safety
    /// As [`Context::of`], and it is not null.
    unsafe fn at<'a>(context: *mut ibv_context) -> &'a Self {
        // SAFETY: it is the `context` field of a `Context` made by `Context::enter`.
        unsafe { &*context.byte_sub(offset_of!(verbs_context, context)).cast::<Self>() }
    }

    /// Whether an object of another context goes with those of this one. On Linux a command looks up all its objects in
    /// the file of one context. An imported context shares the file of the one that it was made from. Which one that
    /// was, its descriptor does not tell. Another device is refused elsewhere.
    ///
    /// # Safety
    /// `other` is null or the context of a live object.
    pub(crate) unsafe fn goes_with(&self, other: *mut ibv_context) -> bool {
        if other.is_null() || std::ptr::eq(&raw const self.abi.context, other) {
            return true;
        }
        // SAFETY: a context outlives its objects.
        let other = unsafe { Self::at(other) };
        self.imported || other.imported || !Arc::ptr_eq(self.device(), other.device())
    }

    /// Our part, to make an object in it. `EIO` if the device is inherited, because its objects belong to the parent
    /// process.
    ///
    /// # Safety
    /// As [`Context::of`].
    pub(crate) unsafe fn to_make_in<'a>(context: *mut ibv_context) -> Result<&'a Self, c_int> {
        // SAFETY: by the contract of this function.
        let ours = unsafe { Self::of(context) }.ok_or(libc::EINVAL)?;
        check::uses(told::verb, ours.device(), None);
        rehearse::may_make()?;
        ours.device().check_own().map_err(|_: Inherited| libc::EIO)?;
        Ok(ours)
    }

    /// Its device.
    pub(crate) fn device(&self) -> &Arc<Device> {
        self.adapter.device()
    }

    /// The unread events that report a fatal error of an object, or of any object.
    pub(crate) fn fatal_events(&self, of: Option<(Thing, u32)>) -> Vec<&'static str> {
        let fatal = self.events.waiting().into_iter().filter_map(|(event, id)| {
            let (thing, name) = check::fatal(event)?;
            let is_meant =
                of.is_none_or(|(of, handle)| thing == Some(of) && id == u64::from(handle));
            is_meant.then_some(name)
        });
        fatal.collect()
    }

    /// Closes it. False if it is already closed.
    pub(crate) fn close(&self) -> bool {
        self.open.swap(0, AcqRel) != 0
    }

    /// Counts an object made in it.
    pub(crate) fn adopt(&self) {
        self.users.fetch_add(1, Relaxed);
    }

    /// Counts one less. The last one frees the context.
    ///
    /// # Safety
    /// `context` is from [`Context::enter`]. One of its objects, or its open state, is still counted. The caller counts
    /// that one off, and does not use the context afterwards.
    pub(crate) unsafe fn release(context: *mut ibv_context) {
        // SAFETY: by the contract of this function.
        let ours = unsafe { context.byte_sub(offset_of!(verbs_context, context)).cast::<Self>() };
        // SAFETY: `Context::enter` made it by `Box::leak`, and it lives until the last one is counted off.
        if unsafe { (*ours).users.fetch_sub(1, AcqRel) } == 1 {
            // SAFETY: as above. Nothing refers to it any more.
            let ours = unsafe { Box::from_raw(ours) };
            let adapter = ours.adapter.clone();
            drop(ours);
            adapter.close();
        }
    }
}

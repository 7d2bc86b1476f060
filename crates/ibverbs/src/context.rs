//! `ibv_open_device(3)`: contexts, each a view of the one device of this process.
//!
//! Verbs for Ethernet frames have no function: their operations in the context stay null, and the
//! inlines of `verbs.h` answer `EOPNOTSUPP` by themselves.
//!
//! | verbs | needs |
//! |---|---|
//! | `ibv_create_flow`, `ibv_destroy_flow` | steering of received frames |
//! | `ibv_create_flow_action_esp`, `ibv_modify_flow_action_esp`, `ibv_destroy_flow_action` | the same |
//! | `ibv_create_counters`, `ibv_attach_counters_point_flow`, `ibv_read_counters`, `ibv_destroy_counters` | flows to count |
//! | `ibv_create_wq`, `ibv_modify_wq`, `ibv_destroy_wq` | spreading of received frames |
//! | `ibv_create_rwq_ind_table`, `ibv_destroy_rwq_ind_table` | the same |

use std::ffi::c_int;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use transom_abi::{
    __VERBS_ABI_IS_EXTENDED, ibv_context, ibv_context_ops, ibv_device, verbs_context,
};
use transom_host::capture;
use transom_host::environment;
use transom_host::faults::{self, FaultError, Faults};
use transom_host::object_counts::ObjectKind;
use transom_host::objects::{AsyncEvent, EventQueue, EventSource};
use transom_host::{Adapter, Copying, OpenError, Options, say};

use crate::device_name::DeviceName;
use crate::entry::{errno_always, pointer_always, pointer_of};
use crate::{
    ah, comp_cntr, cq, cq_ex, device, device_ex, dm, import, mr, mw, on_demand, parent_domain, pd,
    post, post_srq_ops, qp, qp_ex, special_mr, srq, td, xrc,
};

/// The C struct, which C knows by the address of its last part, and ours behind it.
#[repr(C)]
pub(crate) struct Context {
    abi: verbs_context,
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) events: Arc<EventQueue<AsyncEvent>>,
    _port_events: Arc<EventSource<AsyncEvent>>,
    /// What `cmd_fd` names; closed with the context.
    _command: OwnedFd,
    /// Objects made in it, and one more while it is open.
    users: AtomicU32,
    open: AtomicU32,
}

impl Context {
    /// Ours, from the pointer that C has.
    ///
    /// # Safety
    /// `context` is null or from [`open_context`], and not closed.
    pub(crate) unsafe fn of<'a>(context: *mut ibv_context) -> Option<&'a Self> {
        if context.is_null() {
            return None;
        }
        // SAFETY: it is the `context` field of a `Context` made by `open_context`.
        Some(unsafe { &*context.byte_sub(offset_of!(verbs_context, context)).cast::<Self>() })
    }

    /// Counts an object made in it.
    pub(crate) fn adopt(&self) {
        self.users.fetch_add(1, Relaxed);
    }

    /// Counts one less; the last one out of a closed context takes it along.
    ///
    /// # Safety
    /// `context` is from [`open_context`], and one of its objects, or its being open, has not been
    /// counted off yet; the caller counts that one off, and uses the context no more.
    pub(crate) unsafe fn release(context: *mut ibv_context) {
        // SAFETY: by the contract of this function.
        let ours = unsafe { context.byte_sub(offset_of!(verbs_context, context)).cast::<Self>() };
        // SAFETY: made by `Box::leak` in `open_context`, and there until its last one is counted off.
        if unsafe { (*ours).users.fetch_sub(1, AcqRel) } == 1 {
            // SAFETY: as above; nothing refers to it any more.
            drop(unsafe { Box::from_raw(ours) });
        }
    }
}

/// The device of this process, if a context is open.
static DEVICE: Mutex<Option<Weak<Adapter>>> = Mutex::new(None);

fn adapter() -> Result<Arc<Adapter>, OpenError> {
    let mut device = DEVICE.lock();
    let open = device.as_ref().and_then(Weak::upgrade);
    // After a fork the child opens a device of its own; the parent's is not its to use.
    if let Some(adapter) = open.filter(|adapter| !adapter.is_inherited()) {
        return adapter.check().map(|()| adapter);
    }
    DeviceName::chosen().map_err(|error| {
        let cause = io::Error::new(io::ErrorKind::InvalidInput, error);
        OpenError::new("reading TRANSOM_DEVICE_NAME", cause)
    })?;
    let opened = Adapter::open(options()?)?;
    *device = Some(Arc::downgrade(&opened));
    Ok(opened)
}

/// Device options from the environment: `TRANSOM_WINDOWS=2A` for windows of kind 2A (rule MWA-07),
/// `TRANSOM_CONGESTION=notify` to have packets marked where the network is congested,
/// `TRANSOM_LINK=wire` to send everything as packets, `TRANSOM_COPY=shared` to copy through shared
/// memory even where the kernel would, and what `transom run` asks for with `--fault` and `--capture`.
/// A program that has rights its user does not have gets the usual ones.
fn options() -> Result<Options, OpenError> {
    let is = |name, value| environment::variable(name).is_some_and(|found| found == value);
    Ok(Options {
        windows_2a: is("TRANSOM_WINDOWS", "2A"),
        wire_only: is("TRANSOM_LINK", "wire"),
        congestion: is("TRANSOM_CONGESTION", "notify"),
        copying: if is("TRANSOM_COPY", "shared") { Copying::SharedMemory } else { Copying::Best },
        faults: faults()?,
        capture: capture(),
    })
}

/// The file that `transom run --capture` names.
fn capture() -> Option<&'static Path> {
    static CAPTURE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let named = || environment::variable(capture::VARIABLE).filter(|path| !path.is_empty());
    CAPTURE.get_or_init(|| named().map(PathBuf::from)).as_deref()
}

/// The faults of this process, read once.
fn faults() -> Result<Option<&'static Faults>, OpenError> {
    static FAULTS: OnceLock<Option<Faults>> = OnceLock::new();
    if let Some(faults) = FAULTS.get() {
        return Ok(faults.as_ref());
    }
    let faults = match environment::variable(faults::VARIABLE) {
        Some(text) if !text.is_empty() => {
            let refuse = |error: FaultError| io::Error::new(io::ErrorKind::InvalidInput, error);
            let parsed = text.to_string_lossy().parse().map_err(refuse);
            Some(parsed.map_err(|cause| OpenError::new("reading TRANSOM_FAULT", cause))?)
        }
        _ => None,
    };
    Ok(FAULTS.get_or_init(|| faults).as_ref())
}

/// Opens the device; null, `EINVAL`, if it is another's.
pub extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    // A device that has failed is none to open; once it is closed, there may be a new one.
    let opened = || {
        if !device::is_the_device(device) {
            return Err(libc::EINVAL);
        }
        let adapter = adapter().map_err(|error| {
            say(format_args!("{error}"));
            error.errno().unwrap_or(libc::ENODEV)
        })?;
        open(adapter)
    };
    pointer_always(opened)
}

/// Makes a context on a device that the caller has opened.
pub fn open_context(adapter: Arc<Adapter>) -> *mut ibv_context {
    pointer_of(|| open(adapter))
}

fn open(adapter: Arc<Adapter>) -> Result<*mut ibv_context, c_int> {
    let command = adapter.command_descriptor();
    context_with(adapter, command.map_err(|error| error.raw_os_error().unwrap_or(libc::EMFILE))?)
}

/// Makes a context whose `cmd_fd` is `command`, a descriptor that names the device.
pub(crate) fn context_with(
    adapter: Arc<Adapter>,
    command: OwnedFd,
) -> Result<*mut ibv_context, c_int> {
    let events = EventQueue::new().map(Arc::new);
    let events = events.map_err(|error| error.raw_os_error().unwrap_or(libc::EMFILE))?;
    let port_events = adapter.tell_port_events(&events).map_err(|_| libc::ENOMEM)?;
    let context = ibv_context {
        device: device::the_device(),
        ops: ibv_context_ops {
            alloc_mw: Some(mw::alloc_mw),
            bind_mw: Some(mw::bind_mw),
            dealloc_mw: Some(mw::dealloc_mw),
            poll_cq: Some(cq::poll_cq),
            req_notify_cq: Some(cq::req_notify_cq),
            post_srq_recv: Some(srq::post_srq_recv),
            post_send: Some(post::post_send),
            post_recv: Some(post::post_recv),
            ..ibv_context_ops::default()
        },
        cmd_fd: command.as_raw_fd(),
        async_fd: events.descriptor().as_raw_fd(),
        num_comp_vectors: 1,
        mutex: Default::default(),
        abi_compat: __VERBS_ABI_IS_EXTENDED,
    };
    adapter.objects().add(ObjectKind::Context);
    import::note(&adapter);
    let abi = verbs_context {
        query_port: Some(device::query_port_ex),
        advise_mr: Some(on_demand::advise_mr),
        alloc_null_mr: Some(special_mr::alloc_null_mr),
        reg_dm_mr: Some(special_mr::reg_dm_mr),
        alloc_dm: Some(dm::alloc_dm),
        free_dm: Some(dm::free_dm),
        alloc_parent_domain: Some(parent_domain::alloc_parent_domain),
        dealloc_td: Some(td::dealloc_td),
        alloc_td: Some(td::alloc_td),
        create_srq_ex: Some(srq::create_srq_ex),
        get_srq_num: Some(srq::get_srq_num),
        post_srq_ops: Some(post_srq_ops::post_srq_ops),
        open_xrcd: Some(xrc::open_xrcd),
        close_xrcd: Some(xrc::close_xrcd),
        open_qp: Some(xrc::open_qp),
        create_qp_ex: Some(qp_ex::create_qp_ex),
        modify_qp_rate_limit: Some(qp::modify_qp_rate_limit),
        query_device_ex: Some(device_ex::query_device_ex),
        query_rt_values: Some(device_ex::query_rt_values),
        create_cq_ex: Some(cq_ex::create_cq_ex),
        modify_cq: Some(cq::modify_cq),
        sz: size_of::<verbs_context>(),
        context,
        ..verbs_context::default()
    };
    let ours = Context {
        abi,
        adapter,
        events,
        _port_events: port_events,
        _command: command,
        users: AtomicU32::new(1),
        open: AtomicU32::new(1),
    };
    let ours = Box::leak(Box::new(ours));
    Ok(&raw mut ours.abi.context)
}

/// Closes a context and ends what was made in it, windows first (rule MWA-22). What another context
/// still uses stays until that lets go.
///
/// # Safety
/// `context` is from [`ibv_open_device`] and not closed.
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    errno_always(|| {
        // SAFETY: by the contract of this verb.
        let Some(ours) = (unsafe { Context::of(context) }) else { return Err(libc::EINVAL) };
        if ours.open.swap(0, AcqRel) == 0 {
            return Err(libc::EINVAL);
        }
        mw::free_all(context);
        qp::free_all(context);
        srq::free_all(context);
        xrc::free_all(context);
        ah::free_all(context);
        mr::free_all(context);
        cq::free_all(context);
        comp_cntr::free_all(context);
        dm::free_all(context);
        pd::free_all(context);
        td::free_all(context);
        ours.adapter.objects().remove(ObjectKind::Context);
        // SAFETY: open until now, which is counted off once.
        unsafe { Context::release(context) };
        Ok(())
    })
}

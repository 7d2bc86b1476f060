//! `ibv_open_device(3)`, `ibv_import_device(3)`: contexts. A context is a view of a device of this process.

use std::ffi::c_int;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use transom_abi::{ibv_context, ibv_device};
use transom_host::{Adapter, OpenError};
use transom_system::failure::any_has_failed;
use transom_system::fork::{HeldOverForks, hold_too};
use transom_system::object_counts::ObjectKind;
use transom_system::{rehearsal, say};

use crate::context::Context;
use crate::entry::{errno_always, pointer_always, pointer_of};
use crate::operations::operations;
use crate::{
    adapters, ah, buf, check, checked, checked_ex, comp_cntr, cq, device, dm, exposure, mr, mw, pd,
    qp, rdma_cm, rehearse, rehearsed, srq, td, xrc,
};

/// Opens a device. Null, `EINVAL`, for one that is not of this library.
pub extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    // A failed device cannot be opened. After it is closed, a new one may be opened.
    let opened = || {
        let number = device::number_of_device("ibv_open_device", device).ok_or(libc::EINVAL)?;
        check::begin();
        exposure::begin();
        rehearsal::begin();
        rehearse::may_make()?;
        let adapter = open_adapter(number).map_err(|error| {
            say(format_args!("{error}"));
            error.errno().unwrap_or(libc::ENODEV)
        })?;
        open(adapter)
    };
    pointer_always("ibv_open_device", opened)
}

/// Opens it for a program. If it was removed, it is made anew, once nothing of it is left, and earlier listeners serve
/// it.
fn open_adapter(number: u8) -> Result<Arc<Adapter>, OpenError> {
    let mut opened = adapters::open(number);
    if opened.is_err() && any_has_failed() {
        rdma_cm::let_go(number);
        opened = adapters::open(number);
    }
    rdma_cm::serve_opened();
    opened
}

/// Makes a context on a device that the caller has opened.
pub fn open_context(adapter: Arc<Adapter>) -> *mut ibv_context {
    pointer_of("ibv_open_context", || open(adapter))
}

/// The locks of all objects.
fn locks() -> [&'static dyn HeldOverForks; 12] {
    [
        ah::lock(),
        buf::lock(),
        comp_cntr::lock(),
        cq::lock(),
        dm::lock(),
        mr::lock(),
        mw::lock(),
        pd::lock(),
        qp::lock(),
        srq::lock(),
        td::lock(),
        xrc::lock(),
    ]
}

fn open(adapter: Arc<Adapter>) -> Result<*mut ibv_context, c_int> {
    // A thread may hold one of them while another forks, and the child may open a device of its own.
    hold_too(&locks());
    hold_too(&rdma_cm::locks());
    let command = adapter.device().process().command_descriptor();
    let command = command.map_err(|error| error.raw_os_error().unwrap_or(libc::EMFILE))?;
    enter(adapter, command, false)
}

/// A context of a device, with the operations of the command that runs this process.
fn enter(
    adapter: Arc<Adapter>,
    command: OwnedFd,
    imported: bool,
) -> Result<*mut ibv_context, c_int> {
    let device = device::listed(adapter.device().options().number);
    let operations = exposure::operations(checked::operations(operations(device)));
    let operations = checked_ex::operations(operations);
    Context::enter(adapter, command, imported, rehearsed::operations(operations))
}

/// Makes a context on the device that a duplicate of a `cmd_fd` names. The context owns the descriptor from now on, and
/// closes it. A device of another process is `EOPNOTSUPP`.
pub extern "C" fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context {
    pointer_of("ibv_import_device", || {
        // SAFETY: this only queries the kernel about the number.
        if cmd_fd < 0 || unsafe { libc::fcntl(cmd_fd, libc::F_GETFD) } < 0 {
            return Err(libc::EBADF);
        }
        // SAFETY: it is open, as just checked, and the caller gives it to this verb.
        let fd = unsafe { BorrowedFd::borrow_raw(cmd_fd) };
        match adapters::named_by(fd) {
            Some(adapter) => {
                rehearse::may_make()?;
                // SAFETY: as above. The context owns it from now on.
                let command = unsafe { OwnedFd::from_raw_fd(cmd_fd) };
                enter(adapter, command, true)
            }
            None if names_a_device(cmd_fd) => Err(libc::EOPNOTSUPP),
            None => Err(libc::EINVAL),
        }
    })
}

/// Whether a descriptor names a Transom device of any process.
fn names_a_device(fd: c_int) -> bool {
    let file = std::fs::read_link(format!("/proc/thread-self/fd/{fd}"));
    file.is_ok_and(|file| file.as_os_str().as_encoded_bytes().starts_with(b"/memfd:transom"))
}

/// Closes a context and ends its objects, windows first (rule MWA-22). An object that another context still uses stays
/// until that context stops using it.
///
/// # Safety
/// `context` is from [`ibv_open_device`] and not closed.
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    errno_always("ibv_close_device", || {
        // SAFETY: by the contract of this verb.
        let Some(ours) = (unsafe { Context::of(context) }) else { return Err(libc::EINVAL) };
        if !ours.close() {
            return Err(libc::EINVAL);
        }
        if let Some(checker) = check::on() {
            checker.events_unread(None, context.addr(), &ours.fatal_events(None));
            checker.context_closes(context.addr());
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
        let process = ours.device().process();
        process.unlist(ours.listed);
        process.objects().remove(ObjectKind::Context);
        // SAFETY: this call counts off the open state, once.
        unsafe { Context::release(context) };
        Ok(())
    })
}

//! `ibv_open_xrcd(3)`: XRC domains.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use transom_abi::*;
use transom_check::ledger::Thing;
use transom_host::objects::{XrcDomain, XrcFile, XrcOpenError};
use transom_system::fork::HeldOverForks;

use crate::context::Context;
use crate::entry::{errno_always, pointer_of};
use crate::object::{Handled, InContext, Table};
use crate::wrong::Wrong;

/// The C struct, which has no handle of its own.
#[repr(C)]
pub(crate) struct Xrcd {
    abi: ibv_xrcd,
    handle: u32,
}

impl InContext for Xrcd {
    unsafe fn context(abi: *const Self) -> *mut ibv_context {
        // SAFETY: by the contract of this function.
        unsafe { (*abi).abi.context }
    }
}

impl Handled for Xrcd {
    const THING: Thing = Thing::XrcDomain;

    unsafe fn handle(abi: *const Self) -> u32 {
        // SAFETY: by the contract of this function.
        unsafe { (*abi).handle }
    }

    fn set_handle(&mut self, handle: u32) {
        self.handle = handle;
    }
}

static XRCDS: Table<Xrcd, Arc<XrcDomain>> = Table::new();

/// The lock of all of them.
pub(crate) fn lock() -> &'static dyn HeldOverForks {
    &XRCDS
}

/// The domain that a pointer names.
///
/// # Safety
/// `xrcd` is null or readable.
pub(crate) unsafe fn find(xrcd: *const ibv_xrcd) -> Result<Arc<XrcDomain>, c_int> {
    // SAFETY: by the contract of this function.
    unsafe { XRCDS.with(xrcd.cast(), |object| object.inner.clone()) }
}

/// Opens the XRC domain of a file, or a private one if there is no file.
///
/// # Safety
/// `context` is open; `init` is null or readable.
pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    init: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    pointer_of("ibv_open_xrcd", || {
        // SAFETY: by the contract of this verb.
        let opened = unsafe {
            let ours = Context::to_make_in(context)?;
            let init = init.as_ref().ok_or(libc::EINVAL)?;
            let told = |wrong: Wrong| match wrong.into() {
                libc::EAGAIN => libc::EAGAIN,
                _ => wrong.told(Some(ours.device()), "ibv_open_xrcd", 0),
            };
            open(ours, init).inspect(|_| ours.adopt()).map_err(told)
        };
        let xrcd = Xrcd { abi: ibv_xrcd { context }, handle: 0 };
        opened.map(|domain| XRCDS.insert(xrcd, |_| domain).cast())
    })
}

fn open(context: &Context, init: &ibv_xrcd_init_attr) -> Result<Arc<XrcDomain>, Wrong> {
    const NEEDED: u32 = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    if init.comp_mask != NEEDED {
        const SAID: &str =
            "comp_mask must be IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS: both are needed";
        return Err(Wrong::because(libc::EINVAL, SAID, ""));
    }
    // Other flags mean nothing, as for Linux.
    let (create, exclusive) = (init.oflags & libc::O_CREAT != 0, init.oflags & libc::O_EXCL != 0);
    let file = match init.fd {
        -1 => None,
        fd if fd < 0 => return Err(Wrong::unknown("fd", libc::EBADF, "")),
        fd => {
            // SAFETY: it is used only during this call. If it is not open, the call returns `EBADF`.
            let named = named_by(unsafe { BorrowedFd::borrow_raw(fd) });
            Some(named.map_err(|error| error.raw_os_error())?)
        }
    };
    XrcDomain::open(&context.adapter, file, create, exclusive).map_err(|error| match error {
        // A program may wait in a loop until another has created it.
        XrcOpenError::Absent => libc::EAGAIN.into(),
        XrcOpenError::Present => {
            Wrong::because(libc::EINVAL, "the file has a domain, and oflags have O_EXCL", "")
        }
    })
}

/// The file that a descriptor names, and a descriptor of ours that keeps the file alive. Ours can neither read nor
/// write, and closing it does not release the program's locks on the file.
fn named_by(fd: BorrowedFd<'_>) -> Result<(XrcFile, OwnedFd), Errno> {
    let path = format!("/proc/thread-self/fd/{}", fd.as_raw_fd());
    let held = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        // There is no /proc, or the descriptor is not open.
        .or_else(|_| rustix::io::fcntl_dupfd_cloexec(fd, 0))?;
    let status = rustix::fs::fstat(&held)?;
    Ok((XrcFile { device: status.st_dev, inode: status.st_ino }, held))
}

/// Closes an XRC domain. `EBUSY` while something belongs to it.
///
/// # Safety
/// `xrcd` is null or readable.
pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    errno_always("ibv_close_xrcd", || {
        // SAFETY: by the contract of this verb, and a live struct has its context.
        let context = unsafe { XRCDS.with(xrcd.cast(), |object| Xrcd::context(object.abi)) }?;
        let busy = |domain: &Arc<XrcDomain>| {
            // SAFETY: a context outlives its domains.
            let ours = unsafe { Context::of(context) };
            let holders = ours.map(|ours| ours.adapter.holders_of_xrc(domain));
            Wrong::held(holders.unwrap_or_default(), "").told(None, "ibv_close_xrcd", 0)
        };
        // SAFETY: by the contract of this verb.
        unsafe { XRCDS.check_unused(xrcd.cast(), |domain| domain.check_unused(), busy) }?;
        // SAFETY: by the contract of this verb.
        let mut taken = unsafe { XRCDS.take(xrcd.cast()) }?;
        let domain = taken.inner.take().ok_or(libc::ENOENT)?;
        if domain.close().is_err() {
            taken.put_back(domain);
            return Err(libc::EBUSY);
        }
        // SAFETY: the struct stays readable, and a context outlives its domains.
        unsafe { Context::release((*xrcd).context) };
        Ok(())
    })
}

/// Closes the XRC domains of a context, which is being closed.
pub(crate) fn free_all(context: *mut ibv_context) {
    for mut taken in XRCDS.take_all(context) {
        let Some(domain) = taken.inner.take() else { continue };
        if domain.close().is_err() {
            taken.put_back(domain);
            continue;
        }
        // SAFETY: this call counts off this domain.
        unsafe { Context::release(context) };
    }
}

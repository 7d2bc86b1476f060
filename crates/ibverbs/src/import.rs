//! `ibv_import_device(3)`: one more context of a device that this process has opened.

use std::ffi::c_int;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use transom_abi::ibv_context;
use transom_host::Adapter;

use crate::context::context_with;
use crate::entry::pointer_of;

/// The devices that contexts were made on.
static DEVICES: Mutex<Vec<Weak<Adapter>>> = Mutex::new(Vec::new());

/// Remembers a device, for descriptors that name it.
pub(crate) fn note(adapter: &Arc<Adapter>) {
    let mut devices = DEVICES.lock();
    devices.retain(|known| known.strong_count() > 0);
    if !devices.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(adapter))) {
        devices.push(Arc::downgrade(adapter));
    }
}

/// The device of this process, if contexts were made on one only.
pub(crate) fn only_device() -> Option<Arc<Adapter>> {
    let devices = DEVICES.lock();
    let mut known = devices.iter().filter_map(Weak::upgrade);
    known.next().filter(|_| known.next().is_none())
}

/// Makes a context on the device that a duplicate of a `cmd_fd` names. The descriptor is the
/// context's from now on, and closed with it. A device of another process is `EOPNOTSUPP`.
pub extern "C" fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context {
    pointer_of(|| {
        // SAFETY: this only asks the kernel about the number.
        if cmd_fd < 0 || unsafe { libc::fcntl(cmd_fd, libc::F_GETFD) } < 0 {
            return Err(libc::EBADF);
        }
        // SAFETY: it is open, as was just seen, and the caller leaves it to this verb.
        let fd = unsafe { BorrowedFd::borrow_raw(cmd_fd) };
        let known: Vec<_> = DEVICES.lock().iter().filter_map(Weak::upgrade).collect();
        match known.into_iter().find(|adapter| adapter.is_named_by(fd)) {
            // SAFETY: as above; the context owns it from now on.
            Some(adapter) => context_with(adapter, unsafe { OwnedFd::from_raw_fd(cmd_fd) }),
            None if names_a_device(cmd_fd) => Err(libc::EOPNOTSUPP),
            None => Err(libc::EINVAL),
        }
    })
}

/// Whether a descriptor names a Transom device, be it of this process or not.
fn names_a_device(fd: c_int) -> bool {
    let file = std::fs::read_link(format!("/proc/self/fd/{fd}"));
    file.is_ok_and(|file| file.as_os_str().as_encoded_bytes().starts_with(b"/memfd:transom"))
}

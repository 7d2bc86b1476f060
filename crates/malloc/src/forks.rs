//! Forks: a child is to have its copy of shared memory before any other code runs in it, so the device's handlers are
//! the last before a fork and the first behind it. The C library calls handlers in the order in which they were
//! registered, and in the reverse order before a fork; so these are registered before any other.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering::*};

use libc::ENOSYS;

use crate::next;
use crate::servers::all;

type Handler = Option<unsafe extern "C" fn()>;

unsafe extern "C" fn before_fork() {
    // SAFETY: the functions of devices, at the time that they are for.
    all().for_each(|server| unsafe { (server.before_fork)() });
}

unsafe extern "C" fn in_parent() {
    // SAFETY: as above.
    all().rev().for_each(|server| unsafe { (server.in_parent)() });
}

unsafe extern "C" fn in_child() {
    // SAFETY: as above.
    all().rev().for_each(|server| unsafe { (server.in_child)() });
}

/// Registers the handlers, unless that has been done.
pub(crate) fn watch() {
    static WATCHING: AtomicBool = AtomicBool::new(false);
    if !WATCHING.swap(true, AcqRel)
        && let Some(register) = next::register_atfork()
    {
        // SAFETY: functions that stay, for this library is not unloaded.
        unsafe { register(Some(before_fork), Some(in_parent), Some(in_child), null_mut()) };
    }
}

/// What `pthread_atfork(3)` calls, of any library.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn __register_atfork(
    before: Handler,
    parent: Handler,
    child: Handler,
    library: *mut c_void,
) -> c_int {
    watch();
    match next::register_atfork() {
        // SAFETY: by the contract of the C library's function.
        Some(register) => unsafe { register(before, parent, child, library) },
        None => ENOSYS,
    }
}

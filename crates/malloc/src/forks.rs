//! Forks. A child must have its copy of shared memory before any other code runs in it. So the device's handlers must
//! be the last ones before a fork, and the first ones after it. The C library calls handlers after a fork in the order
//! of their registration, and before it in the reverse order. So these are registered before all others.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering::*};

use libc::ENOSYS;

use crate::next;
use crate::servers::all;

type Handler = Option<unsafe extern "C" fn()>;

unsafe extern "C" fn before_fork() {
    // SAFETY: the device offers these functions for this moment.
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

/// Registers the handlers, once.
pub(crate) fn watch() {
    static WATCHING: AtomicBool = AtomicBool::new(false);
    if !WATCHING.swap(true, AcqRel)
        && let Some(register) = next::register_atfork()
    {
        // SAFETY: the functions stay, because this library is never unloaded.
        unsafe { register(Some(before_fork), Some(in_parent), Some(in_child), null_mut()) };
    }
}

/// `pthread_atfork(3)` of any library calls this.
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

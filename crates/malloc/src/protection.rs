//! Changes of rights. A program may protect a part of a block and free the block. Its next owner must find the memory
//! as new. So the device is told which of its memory the program has protected, and repairs that when the block is
//! freed.
//!
//! `mmap` and `munmap` are not interposed. Go's runtime calls them on stacks of its own, and a Go program failed once
//! with them interposed. The cause was not found.

use std::ffi::{c_int, c_void};

use libc::{ENOSYS, size_t};
use transom_thread::set_errno;

use crate::next;
use crate::servers::all;

/// Tells every device. Each ignores memory that is not its own.
#[inline]
fn tell(first: *const c_void, length: size_t) {
    // SAFETY: the function of a device, which takes any range.
    all().for_each(|server| unsafe { (server.protected)(first, length) });
}

/// `mprotect(2)`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn mprotect(first: *mut c_void, length: size_t, rights: c_int) -> c_int {
    tell(first, length);
    match next::mprotect() {
        // SAFETY: by the contract of the C library's function.
        Some(mprotect) => unsafe { mprotect(first, length, rights) },
        None => without(),
    }
}

/// `pkey_mprotect(2)`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn pkey_mprotect(
    first: *mut c_void,
    length: size_t,
    rights: c_int,
    key: c_int,
) -> c_int {
    tell(first, length);
    match next::pkey_mprotect() {
        // SAFETY: by the contract of the C library's function.
        Some(pkey_mprotect) => unsafe { pkey_mprotect(first, length, rights, key) },
        None => without(),
    }
}

/// The answer if the C library does not have the function.
fn without() -> c_int {
    set_errno(ENOSYS);
    -1
}

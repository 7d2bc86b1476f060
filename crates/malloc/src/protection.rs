//! Changes of rights. A program may free memory of which it has protected a part; whoever has it next is to find it as it
//! was. So the device is told what of its memory the program has protected, and mends that when it is freed.
//!
//! Not so what unmaps: the runtime of Go calls `mmap` and `munmap` on stacks of its own, and a program of it failed once
//! with those interposed. Why was not found out.

use std::ffi::{c_int, c_void};

use libc::{ENOSYS, size_t};
use transom_thread::set_errno;

use crate::next;
use crate::servers::all;

/// Tells the device, if that memory is of one.
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

/// What a function answers that the C library does not have.
fn without() -> c_int {
    set_errno(ENOSYS);
    -1
}

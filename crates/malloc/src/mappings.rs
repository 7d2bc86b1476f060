//! Changes of mappings. A program may do anything with the pages that it has; whoever has them next is to find them as
//! they were. So the device is told what of its memory the program has changed, and mends that when it is freed.

use std::ffi::{c_int, c_void};

use libc::{ENOSYS, MAP_FAILED, off_t, size_t};
use transom_thread::set_errno;

use crate::next;
use crate::servers::all;

/// Tells the device, if that memory is of one.
#[inline]
fn tell(first: *const c_void, length: size_t) {
    // SAFETY: the function of a device, which takes any range.
    all().for_each(|server| unsafe { (server.changed)(first, length) });
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

/// `munmap(2)`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(first: *mut c_void, length: size_t) -> c_int {
    tell(first, length);
    match next::munmap() {
        // SAFETY: by the contract of the C library's function.
        Some(munmap) => unsafe { munmap(first, length) },
        None => without(),
    }
}

/// `mremap(2)`, whose last argument only some flags need.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn mremap(
    first: *mut c_void,
    length: size_t,
    new_length: size_t,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    tell(first, length);
    if flags & libc::MREMAP_FIXED != 0 {
        tell(to, new_length);
    }
    match next::mremap() {
        // SAFETY: by the contract of the C library's function.
        Some(mremap) => unsafe { mremap(first, length, new_length, flags, to) },
        None => {
            without();
            MAP_FAILED
        }
    }
}

/// `mmap(2)`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    first: *mut c_void,
    length: size_t,
    rights: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    if flags & libc::MAP_FIXED != 0 {
        tell(first, length);
    }
    match next::mmap() {
        // SAFETY: by the contract of the C library's function.
        Some(mmap) => unsafe { mmap(first, length, rights, flags, file, offset) },
        None => {
            without();
            MAP_FAILED
        }
    }
}

/// `mmap(2)`, as programs with large files have it.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap64(
    first: *mut c_void,
    length: size_t,
    rights: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: as above.
    unsafe { mmap(first, length, rights, flags, file, offset) }
}

/// What a function answers that the C library does not have.
fn without() -> c_int {
    set_errno(ENOSYS);
    -1
}

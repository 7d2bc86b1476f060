//! Advice about memory. The pages of shared memory stay in its file when the program empties a mapping of them. So the
//! device empties the file too.

use std::ffi::{c_int, c_void};

use libc::{ENOSYS, size_t};
use transom_thread::{errno, set_errno};

use crate::next;
use crate::servers::all;

/// `madvise(2)`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn madvise(first: *mut c_void, length: size_t, advice: c_int) -> c_int {
    let Some(next) = next::madvise() else {
        set_errno(ENOSYS);
        return -1;
    };
    match advice {
        libc::MADV_DONTNEED | libc::MADV_FREE if all().next().is_some() => {
            // SAFETY: by the contract of the C library's function the caller has these pages.
            unsafe { empty(next, first, length, advice) }
        }
        // A child gets a copy in any case, and nothing of the mapping itself. So there is nothing to do.
        libc::MADV_DOFORK if length > 0 && is_shared(first, length) => 0,
        // SAFETY: by the contract of the C library's function.
        _ => unsafe { next(first, length, advice) },
    }
}

type Madvise = unsafe extern "C" fn(*mut c_void, size_t, c_int) -> c_int;

/// Empties pages of the program or of a device. The kernel goes first and decides whether it is allowed, because it
/// knows which pages are locked or not mapped. Rights do not matter.
///
/// # Safety
/// As for `madvise`.
unsafe fn empty(next: Madvise, first: *mut c_void, length: size_t, advice: c_int) -> c_int {
    // `MADV_FREE` does not work on shared memory.
    let advice = if is_shared(first, length) { libc::MADV_DONTNEED } else { advice };
    // SAFETY: as the caller says.
    let told = unsafe { next(first, length, advice) };
    if told != 0 {
        return told;
    }
    let before = errno();
    // SAFETY: the function of a device, which takes any range.
    let failed = all().map(|server| unsafe { (server.empty)(first, length) }).find(|it| *it != 0);
    set_errno(failed.unwrap_or(before));
    if failed.is_some() { -1 } else { 0 }
}

fn is_shared(first: *const c_void, length: size_t) -> bool {
    // SAFETY: the function of a device, which takes any range.
    all().any(|server| unsafe { (server.is_shared)(first, length) })
}

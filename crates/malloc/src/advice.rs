//! Advice about memory. The pages of shared memory stay in its file when a mapping of them is emptied, so that advice
//! is given as the one that empties the file.

use std::ffi::{c_int, c_void};

use libc::{EINVAL, ENOSYS, size_t};
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
    // SAFETY: the function of a device, which takes any range.
    let is_shared = || all().any(|server| unsafe { (server.is_shared)(first, length) });
    match advice {
        libc::MADV_DONTNEED | libc::MADV_FREE if length > 0 && is_shared() => {
            let before = errno();
            // SAFETY: by the contract of the C library's function the caller has these pages.
            match unsafe { next(first, length, libc::MADV_REMOVE) } {
                0 => return 0,
                // The program has mapped something else there.
                _ if errno() == EINVAL => set_errno(before),
                failed => return failed,
            }
        }
        // A child gets a copy, and nothing of the mapping itself.
        libc::MADV_DOFORK if length > 0 && is_shared() => return 0,
        _ => {}
    }
    // SAFETY: by the contract of the C library's function.
    unsafe { next(first, length, advice) }
}

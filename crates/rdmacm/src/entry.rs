//! The entry of every call from C, and its answer.
//!
//! A function is a closure that returns a value or a fault. The fault's errno is written to `errno`. Its sentence is
//! recorded for `transom explain`, with the function's name. A panic is a mistake of this library: it becomes `EIO`,
//! and does not unwind into the program. A function that waits for an event does so between two such closures, because
//! a waiting thread may be cancelled, which unwinds too.

use std::ffi::{CStr, CString, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use transom_thread::{set_errno, uncancelled};

use crate::wrong::Wrong;
use crate::{check, provider, sanitized};

/// Runs a part of a function.
pub(crate) fn attempt<T>(part: impl FnOnce() -> Result<T, Wrong>) -> Result<T, Wrong> {
    let _inside = sanitized::inside();
    let answer = catch_unwind(AssertUnwindSafe(|| uncancelled(part)));
    answer.unwrap_or_else(|panic| {
        // The payload of a panic may panic when it is dropped.
        std::mem::forget(panic);
        Err(Wrong::new(libc::EIO, "a mistake in librdmacm; please report it"))
    })
}

/// The result of a function. A fault is recorded, and its errno is in `errno` afterwards.
pub(crate) fn answered<T>(function: &'static CStr, result: Result<T, Wrong>) -> Option<T> {
    result
        .inspect_err(|wrong| {
            wrong.ended().into_iter().for_each(|address| check::given(function, address));
            note(function, wrong);
            set_errno(wrong.errno());
        })
        .ok()
}

/// Records a fault for `transom explain`.
#[cold]
pub(crate) fn note(function: &'static CStr, wrong: &Wrong) {
    let Some(said) = wrong.said() else { return };
    let _ = attempt(|| {
        let said = CString::new(said.replace('\0', " ")).unwrap_or_default();
        provider::current().map(|current| current.calls.note(function, wrong.errno(), &said))
    });
}

/// Zero, or -1, from the result of a function.
pub(crate) fn zero(function: &'static CStr, result: Result<(), Wrong>) -> c_int {
    answered(function, result).map_or(-1, |()| 0)
}

/// Zero, or -1.
pub(crate) fn zero_of(function: &'static CStr, body: impl FnOnce() -> Result<(), Wrong>) -> c_int {
    zero(function, attempt(body))
}

/// A pointer, or null.
pub(crate) fn pointer_of<T>(
    function: &'static CStr,
    body: impl FnOnce() -> Result<*mut T, Wrong>,
) -> *mut T {
    answered(function, attempt(body)).unwrap_or(null_mut())
}

/// Nothing.
pub(crate) fn effect_of(function: &'static CStr, body: impl FnOnce() -> Result<(), Wrong>) {
    let _ = answered(function, attempt(body));
}

/// Whether a call goes on after a signal has interrupted it (`SA_RESTART`). Nothing tells which signal it was. So the
/// call goes on if it would after every signal that the program handles. A fault of the thread itself interrupts no
/// call, and sanitizers handle faults without `SA_RESTART`.
pub(crate) fn restarts() -> bool {
    const FAULTS: [c_int; 5] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];
    let mut signals = (1..=libc::SIGRTMAX()).filter(|signal| !FAULTS.contains(signal));
    signals.all(|signal| {
        let mut action = std::mem::MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: there is room for the action, and it is read only if it was filled.
        let action = unsafe {
            let told = libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0;
            told.then(|| action.assume_init())
        };
        action.is_none_or(|action| {
            matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)
                || action.sa_flags & libc::SA_RESTART != 0
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wrong::last_errno;

    #[test]
    fn an_error_is_in_errno_and_so_is_a_panic() {
        let taken = || Err(Wrong::new(libc::EADDRINUSE, "it is taken"));
        assert_eq!(zero_of(c"a_function", taken), -1);
        assert_eq!(last_errno(), libc::EADDRINUSE);
        assert!(pointer_of::<u8>(c"a_function", || panic!("a mistake")).is_null());
        assert_eq!(last_errno(), libc::EIO);
        assert_eq!(zero_of(c"a_function", || Ok(())), 0);
    }
}

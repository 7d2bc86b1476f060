//! How a call from C comes in, and what it answers.
//!
//! A function is a closure that answers a value or what is wrong. The errno of that goes where C looks for it,
//! and its sentence, with the function's name, to where `transom explain` finds it. A panic, a mistake of this
//! library, ends as `EIO` and not in a stranger's program. What waits for an event does so between two such
//! closures: a thread that waits may be cancelled, which unwinds too.

use std::ffi::{CStr, CString, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use transom_thread::{set_errno, uncancelled};

use crate::provider;
use crate::wrong::Wrong;

/// Runs a part of a function.
pub(crate) fn attempt<T>(part: impl FnOnce() -> Result<T, Wrong>) -> Result<T, Wrong> {
    let answer = catch_unwind(AssertUnwindSafe(|| uncancelled(part)));
    answer.unwrap_or_else(|panic| {
        // What a panic carries may panic when it is dropped.
        std::mem::forget(panic);
        Err(Wrong::new(
            libc::EIO,
            "a mistake in librdmacm, which whoever maintains it wants to hear of",
        ))
    })
}

/// What a function has come to: what is wrong is kept, and its errno in `errno` afterwards.
pub(crate) fn answered<T>(function: &'static CStr, result: Result<T, Wrong>) -> Option<T> {
    result
        .inspect_err(|wrong| {
            note(function, wrong);
            set_errno(wrong.errno());
        })
        .ok()
}

/// Keeps what is wrong for `transom explain`.
#[cold]
pub(crate) fn note(function: &'static CStr, wrong: &Wrong) {
    let Some(said) = wrong.said() else { return };
    let _ = attempt(|| {
        let said = CString::new(said.replace('\0', " ")).unwrap_or_default();
        provider::current().map(|current| current.calls.note(function, wrong.errno(), &said))
    });
}

/// Zero, or -1, of what a function has come to.
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

/// Whether a call that a signal has interrupted goes on (`SA_RESTART`). Which signal it was, nobody tells: it
/// goes on if it would after every signal that the program handles.
pub(crate) fn restarts() -> bool {
    let mut signals = 1..=libc::SIGRTMAX();
    signals.all(|signal| {
        let mut action = std::mem::MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: room for the action; it is read if it was filled.
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

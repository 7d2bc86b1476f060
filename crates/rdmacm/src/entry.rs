//! How a call from C comes in, and what it answers.
//!
//! A function is a closure that answers a value or an errno, which goes where C looks for it. A panic, a
//! mistake of this library, ends as `EIO` and not in a stranger's program. What waits for an event
//! does so between two such closures: a thread that waits may be cancelled, which unwinds too.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use transom_thread::{errno, set_errno, uncancelled};

/// Runs a part of a function; an error is in `errno` afterwards.
pub(crate) fn guarded<T>(part: impl FnOnce() -> Result<T, c_int>) -> Result<T, c_int> {
    let answer = catch_unwind(AssertUnwindSafe(|| uncancelled(part)));
    let answer = answer.unwrap_or_else(|panic| {
        // What a panic carries may panic when it is dropped.
        std::mem::forget(panic);
        Err(libc::EIO)
    });
    answer.inspect_err(|errno| set_errno(*errno))
}

/// Zero, or -1.
pub(crate) fn zero_of(function: impl FnOnce() -> Result<(), c_int>) -> c_int {
    if guarded(function).is_ok() { 0 } else { -1 }
}

/// A pointer, or null.
pub(crate) fn pointer_of<T>(function: impl FnOnce() -> Result<*mut T, c_int>) -> *mut T {
    guarded(function).unwrap_or(null_mut())
}

/// Nothing.
pub(crate) fn effect_of(function: impl FnOnce() -> Result<(), c_int>) {
    let _ = guarded(function);
}

/// The errno that a call of C's has just left.
pub(crate) fn last_errno() -> c_int {
    match errno() {
        0 => libc::EIO,
        errno => errno,
    }
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

    #[test]
    fn an_error_is_in_errno_and_so_is_a_panic() {
        assert_eq!(zero_of(|| Err(libc::EADDRINUSE)), -1);
        assert_eq!(last_errno(), libc::EADDRINUSE);
        assert!(pointer_of::<u8>(|| panic!("a mistake")).is_null());
        assert_eq!(last_errno(), libc::EIO);
        assert_eq!(zero_of(|| Ok(())), 0);
    }
}

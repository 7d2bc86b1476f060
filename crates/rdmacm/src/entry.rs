//! How a call from C comes in, and what it answers.
//!
//! A function is a closure that answers a value or an errno, which goes where C looks for it. A panic, a
//! mistake of this library, ends as `EIO` and not in a stranger's program. What waits for an event
//! does so between two such closures: a thread that waits may be cancelled, which unwinds too.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

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
    // SAFETY: the address of this thread's own errno.
    match unsafe { *libc::__errno_location() } {
        0 => libc::EIO,
        errno => errno,
    }
}

fn set_errno(errno: c_int) {
    // SAFETY: the address of this thread's own errno.
    unsafe { *libc::__errno_location() = errno };
}

/// Runs what makes calls of the C library's at which a thread can be cancelled: locks would stay locked.
fn uncancelled<T>(part: impl FnOnce() -> T) -> T {
    unsafe extern "C" {
        fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    }
    const DISABLE: c_int = 1;

    /// Puts back what was.
    struct State(c_int);
    impl Drop for State {
        fn drop(&mut self) {
            // SAFETY: a state that this function has answered, and nowhere to put the other.
            unsafe { pthread_setcancelstate(self.0, null_mut()) };
        }
    }

    let mut old = State(0);
    // SAFETY: one of its two states, and a place for the other.
    unsafe { pthread_setcancelstate(DISABLE, &mut old.0) };
    part()
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

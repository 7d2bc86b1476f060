//! What the C library keeps for each thread, as functions that C calls need it: its errno, and whether it
//! may be cancelled.

#![deny(clippy::print_stderr, clippy::print_stdout)]

use std::ffi::c_int;
use std::ptr::null_mut;

/// This thread's errno.
pub fn errno() -> c_int {
    // SAFETY: the address of this thread's own errno.
    unsafe { *libc::__errno_location() }
}

/// Puts an errno where C looks for it.
pub fn set_errno(errno: c_int) {
    // SAFETY: the address of this thread's own errno.
    unsafe { *libc::__errno_location() = errno };
}

/// Runs what may make calls of the C library's at which a thread can be cancelled: locks would stay
/// locked. The thread ends at the next such call of its own.
pub fn uncancelled<T>(part: impl FnOnce() -> T) -> T {
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

//! What the C library keeps for each thread, as functions that C calls need it: its errno, and whether and
//! where it may be cancelled; and threads of ours, and how they wait.

#![deny(clippy::print_stderr, clippy::print_stdout)]

mod own;
mod wait;

use std::ffi::c_int;
use std::ptr::null_mut;

pub use own::{SignalsBlocked, have_names, start};
pub use wait::poll;

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

/// Makes a system call at which the thread can be cancelled, as at those of the C library that wait: it then
/// unwinds from here, and what the call has brought is lost.
pub fn cancelled_at_once<T>(call: impl FnOnce() -> T) -> T {
    unsafe extern "C-unwind" {
        fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
    }
    const ASYNCHRONOUS: c_int = 1;

    let mut old = 0;
    // SAFETY: one of its two kinds, and a place for the other. The thread unwinds from the call below only,
    // which has nothing to drop and is alone with the kernel, or from here.
    unsafe { pthread_setcanceltype(ASYNCHRONOUS, &mut old) };
    let came = call();
    // SAFETY: a kind that this function has answered, and nowhere to put the other.
    unsafe { pthread_setcanceltype(old, null_mut()) };
    came
}

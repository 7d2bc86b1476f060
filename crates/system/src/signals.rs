//! Calls of this library that must not send the program a signal.

use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// Makes a call that writes for this library, without the signals that would end or stop the program: the pipe has no
/// reader, the file has reached the program's size limit (`ulimit -f`), or another job has the terminal. The call's own
/// error tells.
pub(crate) fn without_signals<T>(call: impl FnOnce() -> T) -> T {
    /// The signals that a write may send to its thread.
    const OF_WRITES: [libc::c_int; 3] = [libc::SIGPIPE, libc::SIGXFSZ, libc::SIGTTOU];
    let empty = || {
        let mut set = MaybeUninit::uninit();
        // SAFETY: it initialises the set, and cannot fail.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            set.assume_init()
        }
    };
    let (mut waiting, mut blocked, mut before) = (empty(), empty(), empty());
    // SAFETY: sets of this call's own; numbers of signals that there are.
    unsafe {
        libc::sigpending(&mut waiting);
        for signal in
            OF_WRITES.into_iter().filter(|signal| libc::sigismember(&waiting, *signal) == 0)
        {
            libc::sigaddset(&mut blocked, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &blocked, &mut before);
    }
    let result = call();
    // If the signal was pending before, it is the program's; the others are this call's. It is made by its number,
    // because the C library's function is a cancellation point.
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // The kernel's sets have 64 signals, the C library's more.
    const KERNEL_SET: usize = 8;
    // SAFETY: sets and a time of this call's own, no description wanted; then the mask as it was.
    unsafe {
        let take = |signals: &libc::sigset_t| {
            let no_description = null_mut::<libc::siginfo_t>();
            let number = libc::SYS_rt_sigtimedwait;
            libc::syscall(number, signals, no_description, &raw const at_once, KERNEL_SET) > 0
        };
        while take(&blocked) {}
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, null_mut());
    }
    result
}

//! Waiting with another signal mask than the thread's, as `ppoll(2)` and `pselect(2)` do.
//!
//! `rpoll` takes no mask. Suppose that a thread blocks a signal and wants to receive it only during the wait. If the
//! mask were simply changed, the signal could arrive between the change and the wait, and the wait would not end. So
//! the signal stays blocked, and a `signalfd(2)` descriptor becomes readable when it arrives. That ends the wait; then
//! the signal is let in.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use libc::sigset_t;
use transom_thread::errno;

/// The changed signal mask of this thread, until it has waited.
pub(crate) struct Masked {
    /// The mask before.
    old: sigset_t,
    /// The mask for the wait.
    mask: sigset_t,
    /// The `signalfd(2)` descriptor. It is readable when a signal to be let in has arrived.
    told: Option<c_int>,
}

/// Whether the signal would interrupt a wait, or end the process.
fn interrupts(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: there is room for the action.
    if unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: the call succeeded, so it is filled.
    match unsafe { action.assume_init() }.sa_sigaction {
        libc::SIG_IGN => false,
        libc::SIG_DFL => {
            !matches!(signal, libc::SIGCHLD | libc::SIGCONT | libc::SIGURG | libc::SIGWINCH)
        }
        _ => true,
    }
}

impl Masked {
    /// Blocks the signals of `mask`.
    ///
    /// # Safety
    /// `mask` is a mask.
    pub(crate) unsafe fn new(mask: *const sigset_t) -> Result<Self, c_int> {
        let (mut old, mut let_in) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: by the contract of this function. There is room for the old mask, and `let_in` is emptied before it
        // is used.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, mask, old.as_mut_ptr());
            libc::sigemptyset(let_in.as_mut_ptr());
            let mut masked = Self { old: old.assume_init(), mask: mask.read(), told: None };
            let waiting = (1..=libc::SIGRTMAX()).filter(|signal| {
                libc::sigismember(&masked.old, *signal) == 1
                    && libc::sigismember(&masked.mask, *signal) == 0
                    && interrupts(*signal)
            });
            let count = waiting.inspect(|at| _ = libc::sigaddset(let_in.as_mut_ptr(), *at)).count();
            if count > 0 {
                let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
                match libc::signalfd(-1, let_in.as_ptr(), flags) {
                    ..0 => return Err(errno()),
                    told => masked.told = Some(told),
                }
            }
            Ok(masked)
        }
    }

    /// The descriptor to wait for too, if a signal may be let in.
    pub(crate) fn told(&self) -> Option<c_int> {
        self.told
    }

    /// Lets in the signals that have arrived.
    pub(crate) fn let_in(mut self) {
        self.close();
        // SAFETY: a mask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.mask, null_mut()) };
    }

    fn close(&mut self) {
        if let Some(told) = self.told.take() {
            // SAFETY: the descriptor belongs to this value.
            unsafe { libc::close(told) };
        }
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        self.close();
        // SAFETY: a mask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.old, null_mut()) };
    }
}

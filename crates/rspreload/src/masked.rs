//! Waiting with other signals blocked than the thread has, as `ppoll(2)` and `pselect(2)` do.
//!
//! `rpoll` takes no mask. A signal that the thread has blocked, and lets in for the wait, could come between
//! the change of masks and the wait, which would then not end. So it stays blocked, and a descriptor tells
//! that it is there (`signalfd(2)`): the wait ends, and then it is let in.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use libc::sigset_t;
use transom_thread::errno;

/// Signals of this thread, until it has waited.
pub(crate) struct Masked {
    /// What was blocked.
    old: sigset_t,
    /// What is to be blocked while the thread waits.
    mask: sigset_t,
    /// Readable when a signal is there that is to be let in.
    told: Option<c_int>,
}

/// Whether it would interrupt a wait, or end the process.
fn interrupts(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: room for the action.
    if unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: it was filled.
    match unsafe { action.assume_init() }.sa_sigaction {
        libc::SIG_IGN => false,
        libc::SIG_DFL => {
            !matches!(signal, libc::SIGCHLD | libc::SIGCONT | libc::SIGURG | libc::SIGWINCH)
        }
        _ => true,
    }
}

impl Masked {
    /// Blocks what is to be blocked.
    ///
    /// # Safety
    /// It is a mask.
    pub(crate) unsafe fn new(mask: *const sigset_t) -> Result<Self, c_int> {
        let (mut old, mut let_in) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: by the contract of this function; there is room for what was blocked, and for a set that is
        // emptied before it is used.
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

    /// The descriptor that tells, if a signal may be let in.
    pub(crate) fn told(&self) -> Option<c_int> {
        self.told
    }

    /// Lets in what has come.
    pub(crate) fn let_in(mut self) {
        self.close();
        // SAFETY: a mask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.mask, null_mut()) };
    }

    fn close(&mut self) {
        if let Some(told) = self.told.take() {
            // SAFETY: it is this value's own.
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

//! Threads of ours in a program.

use std::io;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::thread::{Builder, JoinHandle};

/// Starts a thread of ours. No handler of the program ever runs in it: signals are for the program's own threads, and a
/// wait of one of these may be what a signal is to end.
///
/// # Errors
///
/// The system's error, `EAGAIN` if the user may have no more threads.
pub fn start<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    // The new thread begins with the signals of the one that starts it. If it blocked them itself, one could come before.
    let _blocked = SignalsBlocked::all();
    Builder::new().name(name.to_owned()).spawn(work)
}

/// All signals are blocked in this thread until this is dropped.
#[must_use]
pub struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    /// Blocks them.
    pub fn all() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: sets of this call's own. The first one is filled before it is read, and the call writes the other.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
            Self(before.assume_init())
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: a set that this thread has had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(signal: libc::c_int) -> bool {
        let mut now = MaybeUninit::uninit();
        // SAFETY: asks for this thread's set only.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), now.as_mut_ptr());
            libc::sigismember(now.as_ptr(), signal) == 1
        }
    }

    /// From its first instruction on, and the thread that starts it is as it was.
    #[test]
    fn a_thread_of_ours_begins_with_its_signals_blocked() {
        let signals = [libc::SIGINT, libc::SIGPROF, libc::SIGUSR1, libc::SIGRTMIN()];
        let ours = start("ours", move || signals.map(blocks)).expect("a thread");
        assert_eq!(ours.join().expect("it ends"), [true; 4]);
        assert_eq!(signals.map(blocks), [false; 4]);
    }
}

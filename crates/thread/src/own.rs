//! Threads of ours in a program.

use std::io;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread::{Builder, JoinHandle};

/// How many threads of ours have yet to begin. Until then the system has the name of the thread that starts them.
static BEGINNING: AtomicUsize = AtomicUsize::new(0);

/// A thread has yet to begin.
struct Beginning;

impl Beginning {
    fn new() -> Self {
        BEGINNING.fetch_add(1, SeqCst);
        Self
    }
}

impl Drop for Beginning {
    fn drop(&mut self) {
        BEGINNING.fetch_sub(1, SeqCst);
    }
}

/// Whether all threads of ours that were started have their names.
pub fn have_names() -> bool {
    BEGINNING.load(SeqCst) == 0
}

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
    let beginning = Beginning::new();
    Builder::new().name(name.to_owned()).spawn(move || {
        drop(beginning);
        work()
    })
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

    #[test]
    fn a_thread_of_ours_has_its_name_once_it_counts_as_begun() {
        let name = || std::fs::read_to_string("/proc/thread-self/comm").expect("it is there");
        let ours = start("ours", move || (have_names(), name())).expect("a thread");
        // Another test's may begin just now.
        let (_, name) = ours.join().expect("it ends");
        assert_eq!(name, "ours\n");
        while !have_names() {
            std::thread::yield_now();
        }
    }
}

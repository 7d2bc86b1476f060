//! What this library says to the person who runs a program: a sentence on standard error.
//!
//! The program is a stranger's, and may be a daemon whose log has gone. So nothing that becomes of a
//! sentence is the program's trouble: what cannot be written is left unsaid. `eprintln!` would panic
//! where it cannot write, wait where a pipe is full, and let SIGPIPE end a program of C.

use std::fmt::{self, Write};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::BorrowedFd;

/// A longer sentence is cut off: what is no longer goes into a pipe in one piece.
const LONGEST: usize = 1024;

/// Says a sentence on standard error, with the name of this library before it. It takes no memory and
/// no lock, and does not wait.
pub fn say(sentence: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; LONGEST], length: 0 };
    // Cut off is good enough, and so is what somebody's `Display` had to say before it failed.
    let _ = write!(line, "transom: {sentence}");
    line.end();
    // Ready means that a page fits into a pipe. What another thread of the program writes in between
    // may still make this wait, as it makes that thread wait.
    // SAFETY: it is only asked and written to; one that the program has closed is answered as that.
    let stderr = unsafe { BorrowedFd::borrow_raw(libc::STDERR_FILENO) };
    let mut ready = [PollFd::from_borrowed_fd(stderr, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    if rustix::event::poll(&mut ready, Some(&at_once)).is_ok_and(|ready| ready > 0) {
        let _ = without_signals(|| rustix::io::write(stderr, &line.bytes[..line.length]));
    }
}

/// A line as far as there is room for it.
struct Line {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // One byte is left for the end.
        let room = &mut self.bytes[self.length..LONGEST - 1];
        let taken = text.floor_char_boundary(room.len());
        room[..taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.length += taken;
        if taken == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

impl Line {
    fn end(&mut self) {
        self.bytes[self.length] = b'\n';
        self.length += 1;
    }
}

/// Makes a call that writes for this library, without the signals that would end or stop a program for
/// it: nobody reads the pipe any more, the file is as long as the program's limit allows
/// (`ulimit -f`), or another job has the terminal. The call's own error says so.
pub(crate) fn without_signals<T>(call: impl FnOnce() -> T) -> T {
    /// What a write may bring upon the thread that writes.
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
    // One that waited before is the program's; the others are of this call. By its number, for the C
    // library's function is a cancellation point.
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

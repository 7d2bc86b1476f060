//! Staying between the program and whoever has started it, where both would end in one moment.
//!
//! When the first process of a PID namespace ends, as a container has one, the kernel kills all others there: nobody
//! beside the program would be left to speak for it. That first process is this command, or is likely to end at once when
//! this command's process does (`docker run`, with `--init` or a shell). So this process stays there, the program is its
//! child, and it ends when all has been said: with the program's status, by the same signal. What is sent to it goes to the
//! program; what a terminal sends goes to both by itself. As the first process it also takes what others leave behind.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use super::watcher::{Vigil, Watching, close_what_is_the_programs};

/// The number of the first PID namespace of a machine, which does not end before that (`ioctl_ns(2)`).
const FIRST: u64 = 0xefff_fffc;

/// Whether the program's end is likely to be that of the PID namespace.
pub(super) fn is_needed() -> bool {
    let namespace = fs::metadata("/proc/self/ns/pid").map_or(FIRST, |it| it.ino());
    // SAFETY: both take nothing and cannot fail.
    let (this, parent) = unsafe { (libc::getpid(), libc::getppid()) };
    namespace != FIRST && (this == 1 || parent == 1)
}

/// Comes back in a child, which becomes the program; this process ends as that does.
pub(super) fn stay(watching: Watching) -> io::Result<()> {
    let signals = Signals::block()?;
    // SAFETY: this process has one thread, so the child has all that it may need.
    let child = match unsafe { libc::fork() } {
        -1 => {
            let error = io::Error::last_os_error();
            signals.unblock();
            return Err(error);
        }
        0 => {
            signals.unblock();
            // Its name is there as long as the other process is.
            std::mem::forget(watching);
            return Ok(());
        }
        child => child,
    };
    let _ = close_what_is_the_programs();
    let mut vigil = Vigil::new(&watching);
    let status = loop {
        signals.forward(child);
        let ended = reap(child);
        vigil.look();
        if let Some(status) = ended {
            break status;
        }
        vigil.sleep(Some(signals.descriptor.as_fd()), None);
    };
    // SAFETY: takes nothing and cannot fail.
    let is_first = unsafe { libc::getpid() } == 1;
    if is_first {
        vigil.end();
    }
    drop(vigil);
    drop(watching);
    end_like(status, is_first)
}

/// The signals of this process, which are read instead of taking effect.
struct Signals {
    descriptor: OwnedFd,
    /// What was blocked before.
    before: libc::sigset_t,
}

impl Signals {
    fn block() -> io::Result<Self> {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the sets are this call's own, and each is written before it is read. A descriptor that is made is
        // nobody else's.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            if libc::sigprocmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            let before = before.assume_init();
            match libc::signalfd(-1, all.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
                -1 => {
                    let error = io::Error::last_os_error();
                    libc::sigprocmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
                    Err(error)
                }
                fd => Ok(Self { descriptor: OwnedFd::from_raw_fd(fd), before }),
            }
        }
    }

    fn unblock(&self) {
        // SAFETY: the set was written by the system.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }

    /// Hands on what somebody has sent to this process. What a terminal sends the program has got by itself.
    fn forward(&self, program: libc::pid_t) {
        let mut sent = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        let size = size_of::<libc::signalfd_siginfo>();
        loop {
            // SAFETY: the room is as long as is said, and any bytes are one.
            let (read, signal) = unsafe {
                let read = libc::read(self.descriptor.as_raw_fd(), sent.as_mut_ptr().cast(), size);
                (read, sent.assume_init())
            };
            if read != size as isize {
                return;
            }
            let number = signal.ssi_signo as i32;
            let is_from_somebody = signal.ssi_code <= 0 && signal.ssi_pid != program as u32;
            if number != libc::SIGCHLD && is_from_somebody {
                // SAFETY: a child that has not been waited for, so the PID is its.
                unsafe { libc::kill(program, number) };
            }
        }
    }
}

/// Waits for what has ended: how the program has, if it has. If it has been stopped, so is this process, for whoever
/// controls the jobs of a terminal.
fn reap(program: libc::pid_t) -> Option<ExitStatus> {
    loop {
        let mut status = 0;
        let flags = libc::WNOHANG | libc::WUNTRACED;
        // SAFETY: the status is this call's own.
        let found = unsafe { libc::waitpid(-1, &mut status, flags) };
        match found {
            0 | -1 => return None,
            _ if found != program => {}
            // SAFETY: stops this process, until whoever sees that has it go on.
            _ if libc::WIFSTOPPED(status) => unsafe {
                libc::raise(libc::SIGSTOP);
            },
            _ => return Some(ExitStatus::from_raw(status)),
        }
    }
}

/// Ends as the program has. The first process of a namespace cannot end by a signal of its own.
fn end_like(status: ExitStatus, is_first: bool) -> ! {
    if let (Some(signal), false) = (status.signal(), is_first) {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: this process ends here, and has no handlers. The set is this call's own.
        unsafe {
            // The program has left its memory, if that was wanted.
            libc::setrlimit(libc::RLIMIT_CORE, &none);
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
            let mut only = MaybeUninit::uninit();
            libc::sigemptyset(only.as_mut_ptr());
            libc::sigaddset(only.as_mut_ptr(), signal);
            libc::sigprocmask(libc::SIG_UNBLOCK, only.as_ptr(), std::ptr::null_mut());
        }
    }
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    // SAFETY: ends this process. What this command would do at its end is not this one's to do.
    unsafe { libc::_exit(code) }
}

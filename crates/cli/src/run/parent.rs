//! This command as the parent of the program. Its own parent must not notice the difference. It forwards signals to the
//! program, except those of a terminal, which the program gets itself. When the program is stopped, this process stops
//! too, if it has a terminal. It ends as the program does.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::ptr::null_mut;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};

use crate::failure::Result;

/// The signals of this process. They are read and do not take effect.
pub(super) struct Signals {
    descriptor: OwnedFd,
    /// The signals that were blocked before.
    before: libc::sigset_t,
}

impl Signals {
    pub(super) fn block() -> io::Result<Self> {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the sets are this call's own, and each is written before it is read. Nobody else has the
        // new descriptor.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            if libc::sigprocmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            let before = before.assume_init();
            match libc::signalfd(-1, all.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
                -1 => {
                    let error = io::Error::last_os_error();
                    restore(&before);
                    Err(error)
                }
                fd => Ok(Self { descriptor: OwnedFd::from_raw_fd(fd), before }),
            }
        }
    }

    pub(super) fn unblock(&self) {
        restore(&self.before);
    }

    /// Gives the program the mask that this process had.
    pub(super) fn leave_to(&self, command: &mut Command) {
        let before = self.before;
        // SAFETY: the closure calls only functions that may be called between `fork` and `exec`.
        unsafe {
            command.pre_exec(move || {
                restore(&before);
                Ok(())
            });
        }
    }

    /// Readable when a signal has come, including that of a child's end.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Waits until the program has ended, and forwards the signals that come. Calls `look` each time `watched` is
    /// readable, and after each such time in which nothing has come.
    pub(super) fn wait_for(
        &self,
        program: libc::pid_t,
        watched: Option<BorrowedFd<'_>>,
        every: Option<Duration>,
        look: &mut dyn FnMut(),
    ) -> ExitStatus {
        let every = every.and_then(|time| Timespec::try_from(time).ok());
        loop {
            self.forward(program);
            if let Some(status) = reap(program, || ()) {
                return status;
            }
            let all = [self.descriptor()].into_iter().chain(watched);
            let mut all: Vec<_> =
                all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            let waited = poll(&mut all, every.as_ref());
            if waited == Ok(0) || all.get(1).is_some_and(|watched| !watched.revents().is_empty()) {
                look();
            }
        }
    }

    /// Forwards the signals that somebody has sent to this process.
    pub(super) fn forward(&self, program: libc::pid_t) {
        let mut sent = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        let size = size_of::<libc::signalfd_siginfo>();
        loop {
            // SAFETY: the buffer has the given size, and any bytes are a valid value.
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
                // SAFETY: the child has not been waited for, so the PID is its.
                unsafe { libc::kill(program, number) };
            }
        }
    }
}

fn restore(blocked: &libc::sigset_t) {
    // SAFETY: the system wrote the set.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, blocked, null_mut()) };
}

/// Reaps children that have ended. Returns the program's status if it has ended. If the program was stopped, stops this
/// process too, so that a shell's job control sees it. The shell then lets both continue. Without a terminal there is no
/// such shell: whoever stopped the program lets it alone continue.
pub(super) fn reap(program: libc::pid_t, mut stops: impl FnMut()) -> Option<ExitStatus> {
    loop {
        let mut status = 0;
        let flags = libc::WNOHANG | libc::WUNTRACED;
        // SAFETY: the status is this call's own.
        let found = unsafe { libc::waitpid(-1, &mut status, flags) };
        match found {
            0 | -1 => return None,
            _ if found != program => {}
            _ if libc::WIFSTOPPED(status) && !has_terminal() => {}
            _ if libc::WIFSTOPPED(status) => {
                stops();
                // SAFETY: stops this process, until somebody lets it continue.
                unsafe { libc::raise(libc::SIGSTOP) };
            }
            _ => return Some(ExitStatus::from_raw(status)),
        }
    }
}

/// Whether this process has a controlling terminal.
fn has_terminal() -> bool {
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open("/dev/tty", flags, Mode::empty()).is_ok()
}

/// Whether this is the first process of its PID namespace.
pub(super) fn is_first() -> bool {
    // SAFETY: it has no arguments and cannot fail.
    unsafe { libc::getpid() == 1 }
}

/// How a command ends whose program has ended. If the program has failed, this ends as it has, whatever the command
/// found; a failure of the command's own is still told. Otherwise the verdict comes first, and then whether the reports
/// could be written: a reader that has seen enough changes no verdict.
pub(crate) fn conclude<T>(
    status: ExitStatus,
    found: Result<T>,
    written: Result,
    verdict: impl FnOnce(T) -> Result,
) -> Result {
    if status.success() {
        return found.and_then(verdict).and(written);
    }
    for failure in found.err().into_iter().chain(written.err()) {
        let _ = failure.report();
    }
    end_like(status)
}

/// Ends as the program has. The first process of a PID namespace cannot end by a signal of its own.
pub(crate) fn end_like(status: ExitStatus) -> ! {
    if let (Some(signal), false) = (status.signal(), is_first()) {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: this process ends here, and has no handlers. The set is this call's own.
        unsafe {
            // The program has already dumped its core, if that was wanted.
            libc::setrlimit(libc::RLIMIT_CORE, &none);
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
            let mut only = MaybeUninit::uninit();
            libc::sigemptyset(only.as_mut_ptr());
            libc::sigaddset(only.as_mut_ptr(), signal);
            libc::sigprocmask(libc::SIG_UNBLOCK, only.as_ptr(), null_mut());
        }
    }
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    // SAFETY: ends this process. It skips the exit handlers of this command, which are not this process's.
    unsafe { libc::_exit(code) }
}

//! This command as the parent of the program, which its own parent must not notice. It forwards signals to the program,
//! but for those of a terminal, which the program gets itself. When the program is stopped, this process stops too. It
//! ends as the program does.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::ptr::null_mut;

use rustix::event::{PollFd, PollFlags, poll};

/// The signals of this process, which are read instead of taking effect.
pub(super) struct Signals {
    descriptor: OwnedFd,
    /// What was blocked before.
    before: libc::sigset_t,
}

impl Signals {
    pub(super) fn block() -> io::Result<Self> {
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

    /// The program has them as this process had them.
    pub(super) fn leave_to(&self, command: &mut Command) {
        let before = self.before;
        // SAFETY: what is called may be called between a fork and `exec`.
        unsafe {
            command.pre_exec(move || {
                restore(&before);
                Ok(())
            });
        }
    }

    /// Readable when one has come, that of a child's end among them.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Waits until a child has ended, and hands it the signals that come. Calls `look` each time `watched` has something
    /// to be read.
    pub(super) fn wait_for(
        &self,
        program: libc::pid_t,
        watched: Option<BorrowedFd<'_>>,
        look: &mut dyn FnMut(),
    ) -> ExitStatus {
        loop {
            self.forward(program);
            if let Some(status) = reap(program) {
                return status;
            }
            let all = [self.descriptor()].into_iter().chain(watched);
            let mut all: Vec<_> =
                all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            let _ = poll(&mut all, None);
            if all.get(1).is_some_and(|watched| !watched.revents().is_empty()) {
                look();
            }
        }
    }

    /// Hands on what somebody has sent to this process.
    pub(super) fn forward(&self, program: libc::pid_t) {
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

fn restore(blocked: &libc::sigset_t) {
    // SAFETY: the set was written by the system.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, blocked, null_mut()) };
}

/// Reaps children that have ended: how the program has, if it has. If the program was stopped, stops this process too, so
/// that a shell's job control sees it.
pub(super) fn reap(program: libc::pid_t) -> Option<ExitStatus> {
    loop {
        let mut status = 0;
        let flags = libc::WNOHANG | libc::WUNTRACED;
        // SAFETY: the status is this call's own.
        let found = unsafe { libc::waitpid(-1, &mut status, flags) };
        match found {
            0 | -1 => return None,
            _ if found != program => {}
            // SAFETY: stops this process, until somebody lets it continue.
            _ if libc::WIFSTOPPED(status) => unsafe {
                libc::raise(libc::SIGSTOP);
            },
            _ => return Some(ExitStatus::from_raw(status)),
        }
    }
}

/// Whether this is the first process of its PID namespace.
pub(super) fn is_first() -> bool {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::getpid() == 1 }
}

/// Ends as the program has. The first process of a namespace cannot end by a signal of its own.
pub(crate) fn end_like(status: ExitStatus) -> ! {
    if let (Some(signal), false) = (status.signal(), is_first()) {
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
            libc::sigprocmask(libc::SIG_UNBLOCK, only.as_ptr(), null_mut());
        }
    }
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    // SAFETY: ends this process. What this command would do at its end is not this one's to do.
    unsafe { libc::_exit(code) }
}

//! `transom run --explain`: a program that is waited for, and what was refused meanwhile if it fails.
//!
//! This command stays, and does for the program what a shell would: signals that are sent to it, it sends on, and
//! it ends as the program does. What a terminal sends, the program gets by itself.

use super::not_run;
use crate::clock;
use crate::explain;
use crate::failure::Result;
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::ptr::null_mut;

/// Signals that are for the program.
const SENT_ON: [i32; 6] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

/// Runs the program, and does not come back unless that fails.
pub(super) fn run(program: &OsStr, command: &mut Command) -> Result {
    let since = clock::now();
    let signals = Signals::take();
    signals.leave_to(command);
    let mut child = command.spawn().map_err(|error| not_run(program, &error))?;
    let status = signals.wait_for(&mut child)?;
    if !status.success() {
        anstream::eprintln!(
            "\ntransom: {} {}. What was refused meanwhile:",
            program.display(),
            Ended(status)
        );
        if let Err(failure) = explain::print_since(since) {
            let _ = failure.report();
        }
    }
    end_as(status)
}

/// How it ended, as the rest of a sentence.
struct Ended(ExitStatus);

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.0.code(), self.0.signal()) {
            (Some(code), _) => write!(f, "ended with status {code}"),
            (None, signal) => write!(f, "was ended by signal {}", signal.unwrap_or(0)),
        }
    }
}

/// Signals that this command waits for, and which were let through before.
struct Signals {
    waited_for: libc::sigset_t,
    before: libc::sigset_t,
}

impl Signals {
    /// From now on they wait until they are asked for.
    fn take() -> Self {
        let mut waited_for = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: both sets are filled in; this command has one thread.
        unsafe {
            libc::sigemptyset(waited_for.as_mut_ptr());
            for signal in SENT_ON.iter().chain(&[libc::SIGCHLD]) {
                libc::sigaddset(waited_for.as_mut_ptr(), *signal);
            }
            libc::sigprocmask(libc::SIG_BLOCK, waited_for.as_ptr(), before.as_mut_ptr());
            Self { waited_for: waited_for.assume_init(), before: before.assume_init() }
        }
    }

    /// The program has them as this command had them.
    fn leave_to(&self, command: &mut Command) {
        let before = self.before;
        // SAFETY: what is called may be called between a fork and `exec`.
        unsafe {
            command.pre_exec(move || {
                libc::sigprocmask(libc::SIG_SETMASK, &before, null_mut());
                Ok(())
            });
        }
    }

    /// Waits for the program, and sends on what comes for it.
    fn wait_for(&self, child: &mut Child) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            let mut about = MaybeUninit::<libc::siginfo_t>::uninit();
            // SAFETY: there is a place for what is told of the signal, which is filled in if there is one.
            let (signal, from_a_process) = unsafe {
                let signal = libc::sigwaitinfo(&self.waited_for, about.as_mut_ptr());
                (signal, signal > 0 && about.assume_init().si_code <= 0)
            };
            if from_a_process && SENT_ON.contains(&signal) {
                // SAFETY: the child has not been waited for, so the number is its own.
                unsafe { libc::kill(child.id() as libc::pid_t, signal) };
            }
        }
    }
}

/// Ends this command as the program has ended.
fn end_as(status: ExitStatus) -> ! {
    if let Some(signal) = status.signal() {
        let mut all = MaybeUninit::uninit();
        let nothing = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: plain numbers, and a set that is filled in. The program has left its core already.
        unsafe {
            libc::setrlimit(libc::RLIMIT_CORE, &nothing);
            libc::signal(signal, libc::SIG_DFL);
            libc::sigfillset(all.as_mut_ptr());
            libc::sigprocmask(libc::SIG_UNBLOCK, all.as_ptr(), null_mut());
            libc::raise(signal);
        }
    }
    std::process::exit(status.code().unwrap_or(1))
}

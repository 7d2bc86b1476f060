//! Signals that a command waits for, so that it can tidy up before it ends.

use crate::failure::{Failure, Result};
use std::ffi::c_int;
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr::null_mut;
use std::time::Duration;

/// Signals that wait until they are asked for.
#[derive(Clone, Copy)]
pub(crate) struct Signals {
    all: libc::sigset_t,
    /// The signals that waited before.
    before: libc::sigset_t,
}

fn is_ignored(signal: c_int) -> bool {
    // SAFETY: asks for the action of a signal, for which there is room.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

impl Signals {
    /// Has them wait, in this thread and in those that it starts from now on. Those that are ignored stay so, as under
    /// `nohup`: the kernel keeps a signal that waits, whoever ignores it.
    pub(crate) fn block(signals: &[c_int]) -> Result<Self> {
        // SAFETY: `sigemptyset` fills the set in before anything reads it, and each call gets valid pointers.
        let (all, before, blocked) = unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigemptyset(&raw mut all);
            for signal in signals.iter().filter(|signal| !is_ignored(**signal)) {
                libc::sigaddset(&raw mut all, *signal);
            }
            let blocked = libc::sigprocmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
            (all, before, blocked)
        };
        if blocked != 0 {
            return Err(Failure::new(io::Error::last_os_error()));
        }
        Ok(Self { all, before })
    }

    /// They do not wait in a program that is started, unless they did so before.
    pub(crate) fn leave_to(&self, command: &mut Command) {
        let before = self.before;
        // SAFETY: the closure calls only functions that may be called between `fork` and `exec`.
        unsafe {
            command.pre_exec(move || {
                libc::sigprocmask(libc::SIG_SETMASK, &raw const before, null_mut());
                Ok(())
            });
        }
    }

    /// A descriptor that is readable when one has come.
    pub(crate) fn descriptor(&self) -> Result<OwnedFd> {
        // SAFETY: the set is valid, and nobody else has the new descriptor.
        unsafe {
            match libc::signalfd(-1, &raw const self.all, libc::SFD_CLOEXEC) {
                -1 => Err(Failure::new(io::Error::last_os_error())),
                fd => Ok(OwnedFd::from_raw_fd(fd)),
            }
        }
    }

    /// The next one that comes within this time.
    pub(crate) fn next_within(&self, time: Duration) -> Option<c_int> {
        let time = libc::timespec {
            tv_sec: time.as_secs() as libc::time_t,
            tv_nsec: time.subsec_nanos().into(),
        };
        // SAFETY: both are valid, and nothing else is told of the signal.
        let signal =
            unsafe { libc::sigtimedwait(&raw const self.all, null_mut(), &raw const time) };
        (signal > 0).then_some(signal)
    }

    /// The next one that comes.
    pub(crate) fn next(&self) -> c_int {
        loop {
            if let Some(signal) = self.next_within(Duration::from_secs(3600)) {
                return signal;
            }
        }
    }
}

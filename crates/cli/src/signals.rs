//! Signals that a command waits for, so that it can tidy up before it ends.

use crate::failure::{Failure, Result};
use std::ffi::c_int;
use std::io;
use std::ptr::null_mut;
use std::time::Duration;

/// Signals that wait until they are asked for.
#[derive(Clone, Copy)]
pub(crate) struct Signals(libc::sigset_t);

impl Signals {
    /// Has them wait, in this thread and in those that it starts from now on.
    pub(crate) fn block(signals: &[c_int]) -> Result<Self> {
        // SAFETY: `sigemptyset` fills the set in before anything reads it, and each call gets valid pointers.
        let (set, blocked) = unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in signals {
                libc::sigaddset(&raw mut set, *signal);
            }
            (set, libc::sigprocmask(libc::SIG_BLOCK, &raw const set, null_mut()))
        };
        if blocked != 0 {
            return Err(Failure::new(io::Error::last_os_error()));
        }
        Ok(Self(set))
    }

    /// The next one that comes within this time.
    pub(crate) fn next_within(&self, time: Duration) -> Option<c_int> {
        let time = libc::timespec {
            tv_sec: time.as_secs() as libc::time_t,
            tv_nsec: time.subsec_nanos().into(),
        };
        // SAFETY: both are valid, and nothing else is told of the signal.
        let signal = unsafe { libc::sigtimedwait(&raw const self.0, null_mut(), &raw const time) };
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

//! `transom run --explain`: waits for the program, and says what was refused meanwhile if it fails.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use rustix::event::{PollFd, PollFlags, poll};

use super::not_run;
use super::parent::{Signals, end_like, reap};
use crate::clock;
use crate::explain;
use crate::failure::Result;
use crate::layout;

/// Runs the program, and does not come back unless that fails.
pub(super) fn run(program: &OsStr, command: &mut Command) -> Result {
    let since = clock::now();
    let signals = Signals::block()?;
    signals.leave_to(command);
    let child = command.spawn().map_err(|error| not_run(program, &error))?;
    let status = wait_for(child.id() as libc::pid_t, &signals);
    signals.unblock();
    if !status.success() {
        let ended = format!("\ntransom: {} {}.", program.display(), Ended(status));
        // There is nobody to tell that it cannot be said.
        let _ = layout::stderr().text(format_args!("{ended} These were refused meanwhile:"));
        if let Err(failure) = explain::print_since(since) {
            let _ = failure.report();
        }
    }
    end_like(status)
}

fn wait_for(program: libc::pid_t, signals: &Signals) -> ExitStatus {
    loop {
        signals.forward(program);
        if let Some(status) = reap(program) {
            return status;
        }
        let _ = poll(&mut [PollFd::from_borrowed_fd(signals.descriptor(), PollFlags::IN)], None);
    }
}

/// How it ended, as the rest of a sentence.
struct Ended(ExitStatus);

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.0.code(), self.0.signal()) {
            (Some(code), _) => write!(f, "exited with status {code}"),
            (None, signal) => write!(f, "was killed by signal {}", signal.unwrap_or(0)),
        }
    }
}

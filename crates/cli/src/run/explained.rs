//! `transom run --explain`: waits for the program. If it fails, prints what was refused meanwhile.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use super::Program;
use super::end_like;
use crate::clock;
use crate::explain;
use crate::failure::Result;
use crate::layout;

/// Runs the program. Returns only if the program could not be run.
pub(super) fn run(mut program: Program) -> Result {
    let since = clock::now();
    let status = program.wait(None, &mut || {})?;
    if !status.success() {
        let ended = format!("\ntransom: {} {}.", program.name.display(), Ended(status));
        // If standard error cannot be written, there is no other place to report it.
        let _ = layout::stderr().text(format_args!("{ended} These were refused meanwhile:"));
        if let Err(failure) = explain::print_since(since) {
            let _ = failure.report();
        }
    }
    end_like(status)
}

/// How the program ended, as the rest of a sentence.
struct Ended(ExitStatus);

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.0.code(), self.0.signal()) {
            (Some(code), _) => write!(f, "exited with status {code}"),
            (None, signal) => write!(f, "was killed by signal {}", signal.unwrap_or(0)),
        }
    }
}

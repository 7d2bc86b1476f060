//! `transom run --explain`: waits for the program. If it fails, prints what it was refused.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use super::Program;
use super::end_like;
use crate::explain::OfProgram;
use crate::failure::Result;
use crate::layout;

/// Runs the program. Returns only if the program could not be run.
pub(super) fn run(mut program: Program) -> Result {
    let explained = OfProgram::prepare(&mut program.command);
    let mut explained = explained.inspect_err(|problem| {
        layout::warn(format_args!("what the program is refused will not be told: {problem}"));
    });
    let status = match &mut explained {
        Ok(explained) => {
            explained.during(|comes, every, look| program.wait(Some(comes), Some(every), look))?
        }
        Err(_) => program.wait(None, None, &mut || ())?,
    };
    if let (false, Ok(explained)) = (status.success(), &explained) {
        let ended = format!("\ntransom: {} {}.", program.name.display(), Ended(status));
        if let Err(failure) = explained.print(ended) {
            let _ = failure.report();
        }
    }
    // This process ends without dropping anything.
    drop(explained);
    end_like(status)
}

/// How the program ended, as the rest of a sentence.
pub(crate) struct Ended(pub(crate) ExitStatus);

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.0.code(), self.0.signal()) {
            (Some(code), _) => write!(f, "exited with status {code}"),
            (None, signal) => write!(f, "was killed by signal {}", signal.unwrap_or(0)),
        }
    }
}

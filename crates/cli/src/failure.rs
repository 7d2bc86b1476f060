//! Failures of commands: a message for people, and an exit status.

use crate::layout;
use anstyle::{AnsiColor, Style};
use std::fmt::{self, Display};
use std::io;
use std::process::ExitCode;

pub(crate) type Result<T = ()> = std::result::Result<T, Failure>;

/// The reason why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What happened, to what, and how to fix it. Empty if nobody is there to read it.
    message: String,
    status: u8,
}

impl Failure {
    pub(crate) fn new(message: impl Display) -> Self {
        Self::with_status(1, message)
    }

    pub(crate) fn with_status(status: u8, message: impl Display) -> Self {
        Self { message: message.to_string(), status }
    }

    /// Prints the message and returns the exit status.
    pub(crate) fn report(self) -> ExitCode {
        const ERROR: Style = AnsiColor::Red.on_default().bold();
        if !self.message.is_empty() {
            // If standard error cannot be written, there is no other place to report it.
            let _ = layout::stderr().item(format_args!("{ERROR}error:{ERROR:#} "), self.message);
        }
        ExitCode::from(self.status)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Standard output could not be written to.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // The reader has seen enough, as in `transom explain | head`.
            io::ErrorKind::BrokenPipe => Self::with_status(0, ""),
            _ => Self::new(format_args!("cannot write to standard output: {error}")),
        }
    }
}

impl From<transom::Error> for Failure {
    fn from(error: transom::Error) -> Self {
        Self::new(error)
    }
}

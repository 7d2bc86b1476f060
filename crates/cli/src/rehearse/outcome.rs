//! How a run has ended.

use std::collections::HashSet;
use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use transom_check::Kind;

#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Passed,
    /// The program ended with an error, or was killed.
    Ended(ExitStatus),
    /// A process of the program was killed by a signal that tells of a mistake. The program has gone on.
    Died {
        program: String,
        signal: i32,
    },
    /// It was still running after this time.
    TimedOut(Duration),
    /// The program succeeded, and made mistakes of these kinds: one for each finding.
    Found(Vec<Kind>),
}

impl Outcome {
    pub(super) fn is_failure(&self) -> bool {
        !matches!(self, Self::Passed)
    }

    /// How to learn why, behind the advice to mend it.
    pub(super) fn help(&self) -> &'static str {
        match self {
            Self::Ended(_) | Self::Died { .. } => {
                ": `transom run --explain` says what was refused, `transom check` looks for mistakes"
            }
            Self::TimedOut(_) => {
                ": `transom explain` says what it waits for, while it runs. If it only takes long, give a \
                 longer --limit"
            }
            Self::Passed | Self::Found(_) => ", by `transom check`",
        }
    }

    /// Whether it is the same failure.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ended(one), Self::Ended(other)) => one == other,
            (Self::Died { program, signal }, Self::Died { program: other, signal: its_signal }) => {
                (program, signal) == (other, its_signal)
            }
            (Self::TimedOut(_), Self::TimedOut(_)) => true,
            (Self::Found(one), Self::Found(other)) => {
                let kinds: HashSet<_> = one.iter().collect();
                other.iter().any(|kind| kinds.contains(kind))
            }
            _ => false,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => write!(f, "the program succeeds"),
            Self::Ended(status) => match (status.code(), status.signal()) {
                (Some(code), _) => write!(f, "the program exits with status {code}"),
                (None, signal) => {
                    write!(f, "the program is killed by signal {}", signal.unwrap_or(0))
                }
            },
            Self::Died { program, signal } => {
                write!(f, "the program's process {program} is killed by signal {signal}")
            }
            Self::TimedOut(limit) => {
                write!(f, "the program still runs after {} s", limit.as_secs())
            }
            Self::Found(kinds) if kinds.len() == 1 => write!(f, "the check has a finding"),
            Self::Found(kinds) => write!(f, "the check has {} findings", kinds.len()),
        }
    }
}

//! The lines of the demo.

use crate::failure::Result;
use crate::layout;
use anstyle::{AnsiColor, Style};
use std::fmt::Display;

/// The party that acts.
#[derive(Clone, Copy)]
pub(super) enum Role {
    Owner,
    Guest,
}

/// Numbers the steps and prints them, coloured on a terminal.
pub(super) struct Narrator {
    steps: u32,
}

impl Narrator {
    pub(super) fn new() -> Self {
        Self { steps: 0 }
    }

    pub(super) fn plain(&self, line: &str) -> Result {
        Ok(layout::stdout().text(line)?)
    }

    /// Prints what a party did, or tries to do.
    pub(super) fn step(&mut self, role: Role, what: impl Display) -> Result {
        self.steps += 1;
        let (name, style) = match role {
            Role::Owner => ("owner", AnsiColor::Cyan.on_default().bold()),
            Role::Guest => ("guest", AnsiColor::Yellow.on_default().bold()),
        };
        let first = format!("{:>2}. {style}{name}{style:#}  ", self.steps);
        Ok(layout::stdout().item(first, what)?)
    }

    /// Prints that the last step was refused, and why.
    pub(super) fn refused(&self, why: &str) -> Result {
        let seen = "The guest's program sees only IBV_WC_REM_ACCESS_ERR. The reason:";
        told("Refused.", seen, why)
    }

    /// Prints that the last step used what was open for nothing, and what the account of it says.
    pub(super) fn open(&self, account: &str) -> Result {
        let seen = "Neither program sees an error. `transom exposure` kept the account, and says:";
        told("Open.", seen, account)
    }

    /// Prints that the last step was a mistake, and which.
    pub(super) fn found(&self, mistake: &str) -> Result {
        let seen = "The guest's program sees no error. `transom check` watched it, and says:";
        told("Found.", seen, mistake)
    }
}

/// Prints below a step what came of it: in one word, what its program sees of it, and what Transom says.
fn told(word: &str, seen: &str, says: &str) -> Result {
    const WORD: Style = AnsiColor::Red.on_default().bold();
    const INDENT: &str = "           ";
    let mut out = layout::stdout();
    out.item(INDENT, format_args!("{WORD}{word}{WORD:#} {seen}"))?;
    Ok(out.item(INDENT, says)?)
}

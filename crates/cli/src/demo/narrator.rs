//! The lines of the demo.

use crate::failure::Result;
use anstyle::{AnsiColor, Style};
use std::fmt::Display;
use std::io::Write;

/// Who does something.
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
        Ok(writeln!(anstream::stdout(), "{line}")?)
    }

    /// Says what somebody did, or is about to have refused.
    pub(super) fn step(&mut self, role: Role, what: impl Display) -> Result {
        self.steps += 1;
        let (name, style) = match role {
            Role::Owner => ("owner", AnsiColor::Cyan.on_default().bold()),
            Role::Guest => ("guest", AnsiColor::Yellow.on_default().bold()),
        };
        Ok(writeln!(anstream::stdout(), "{:>2}. {style}{name}{style:#}  {what}", self.steps)?)
    }

    /// Says that the last step was refused, and why.
    pub(super) fn refused(&self, why: impl Display) -> Result {
        const REFUSED: Style = AnsiColor::Red.on_default().bold();
        let mut out = anstream::stdout();
        writeln!(
            out,
            "           {REFUSED}Refused.{REFUSED:#} All the guest's program sees is \
             IBV_WC_REM_ACCESS_ERR. The reason:"
        )?;
        Ok(writeln!(out, "           {why}")?)
    }
}

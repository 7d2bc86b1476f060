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
    pub(super) fn refused(&self, why: &str) -> Result {
        const REFUSED: Style = AnsiColor::Red.on_default().bold();
        let mut out = anstream::stdout();
        writeln!(
            out,
            "           {REFUSED}Refused.{REFUSED:#} All the guest's program sees is \
             IBV_WC_REM_ACCESS_ERR. The reason:"
        )?;
        for line in wrapped(why, 85) {
            writeln!(out, "           {line}")?;
        }
        Ok(())
    }
}

/// Breaks a text between words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("interminable, is it", 5), ["interminable,", "is it"]);
        assert_eq!(wrapped("", 5), [""]);
    }
}

//! `transom manual`: makes the man pages of this command from its `--help` texts. Packages install them.

use crate::failure::{Failure, Result};
use crate::layout;
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The width of lines that `man` does not fill.
const COLUMNS: usize = 78;

/// Write the manual pages of the command and its subcommands into a directory.
#[derive(clap::Args)]
pub(crate) struct ManualArgs {
    /// The directory.
    directory: PathBuf,
}

/// `command` is the whole command line.
pub(crate) fn run(args: &ManualArgs, command: Command) -> Result {
    let directory = &args.directory;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let subcommands = command.get_subcommands().filter(|command| !command.is_hide_set());
    let pages = subcommands.chain([&command]).try_for_each(|command| page(command, directory));
    pages.map_err(|error| Failure::new(format_args!("{}: {error}", directory.display())))
}

fn page(command: &Command, directory: &Path) -> io::Result<()> {
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_subcommands().any(|command| !command.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(text) = command.get_after_long_help().or(command.get_after_help()) {
        notes(&layout::help(&text.to_string(), COLUMNS)).to_writer(&mut page)?;
    }
    let mut others = Roff::new();
    others.control("SH", ["SEE ALSO"]).text([roman("transom(1), transom(7)")]);
    others.to_writer(&mut page)?;
    fs::write(directory.join(man.get_filename()), page)
}

/// The text after the options in `--help`. Its indented lines stay lines.
fn notes(text: &str) -> Roff {
    let mut roff = Roff::new();
    let lines: Vec<_> = text.lines().collect();
    let is_indented = |line: &str| line.starts_with(' ');
    if lines.first().is_some_and(|line| heading(line).is_none()) {
        roff.control("SH", ["NOTES"]);
    }
    let mut kept = false;
    for line in lines {
        if is_indented(line) != kept {
            kept = !kept;
            roff.control(if kept { "nf" } else { "fi" }, []);
        }
        match heading(line) {
            Some(words) => roff.control("SH", [words.to_uppercase().as_str()]),
            None if line.is_empty() => roff.control("PP", []),
            None => roff.text([roman(line)]),
        };
    }
    if kept {
        roff.control("fi", []);
    }
    roff
}

/// The words of a line that is a heading.
fn heading(line: &str) -> Option<&str> {
    let words = line.strip_suffix(':')?;
    let is_one = words.starts_with(char::is_uppercase)
        && words.chars().all(|char| char.is_alphabetic() || char == ' ');
    is_one.then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_indented_stay_lines() {
        let roff =
            notes("Some words,\nand more:\n  -a  one\n  -b  two\n\nExit status:\n  0  it worked");
        let expected = ".SH NOTES\nSome words,\nand more:\n.nf\n  \\-a  one\n  \\-b  two\n.fi\n.PP\n\
                        .SH \"EXIT STATUS\"\n.nf\n  0  it worked\n.fi\n";
        assert!(roff.to_roff().ends_with(expected), "{}", roff.to_roff());
    }
}

//! Text for people, in lines that fit the terminal.
//!
//! JSON and `rdma`'s answers are for programs. Their lines are never broken.

use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::AsFd;

use anstream::AutoStream;
use anstream::adapter::strip_str;
use terminal_size::{Width, terminal_size_of};

/// The columns if the output is not a terminal.
const USUAL: usize = 80;
/// The most columns: longer lines are hard to read, even on a wide terminal.
const MOST: usize = 100;
/// Text that would have fewer columns than this begins on a line of its own.
const NARROW: usize = 20;

/// The number of columns for lines to this output.
pub(crate) fn columns(to: impl AsFd) -> usize {
    terminal_size_of(to).map_or(USUAL, |(Width(columns), _)| MOST.min(columns.into()))
}

/// An output for text for people.
pub(crate) struct Page<W> {
    pub(crate) to: W,
    columns: usize,
}

/// Standard output. Coloured if it is a terminal and `NO_COLOR` is not set.
pub(crate) fn stdout() -> Page<anstream::Stdout> {
    Page { columns: columns(io::stdout()), to: anstream::stdout() }
}

/// Standard error, likewise.
pub(crate) fn stderr() -> Page<anstream::Stderr> {
    Page { columns: columns(io::stderr()), to: anstream::stderr() }
}

/// Standard error, likewise, in lines of at most so many columns.
pub(crate) fn stderr_within(most: usize) -> Page<anstream::Stderr> {
    let Page { to, columns } = stderr();
    Page { to, columns: columns.min(most) }
}

/// Standard error, likewise, in lines of at most 80 columns. It gets the page in one piece, so that those of two programs
/// do not mix.
pub(crate) fn stderr_at_once() -> Page<AutoStream<Vec<u8>>> {
    let colours = AutoStream::choice(&io::stderr());
    let columns = USUAL.min(columns(io::stderr()));
    Page { columns, to: AutoStream::new(Vec::new(), colours) }
}

impl Page<AutoStream<Vec<u8>>> {
    /// Writes it to standard error.
    pub(crate) fn send(self) -> io::Result<()> {
        io::stderr().write_all(&self.to.into_inner())
    }
}

impl<W: Write> Page<W> {
    pub(crate) fn new(to: W, columns: usize) -> Self {
        Self { to, columns }
    }

    /// The number of columns of its lines.
    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// Writes a paragraph.
    pub(crate) fn text(&mut self, text: impl Display) -> io::Result<()> {
        self.item("", text)
    }

    /// Writes a paragraph whose first line begins with `first`. The other lines are indented by its width.
    pub(crate) fn item(&mut self, first: impl Display, text: impl Display) -> io::Result<()> {
        let first = first.to_string();
        let indent = width(&first);
        writeln!(self.to, "{first}{}", hang(&text.to_string(), indent, self.columns))
    }
}

/// Prints a warning about a problem that does not stop the command.
pub(crate) fn warn(text: impl Display) {
    // If standard error cannot be written, there is no other place to report it.
    let _ = stderr().item("warning: ", text);
}

/// Fits a help text of this command into lines. In the source
/// * lines without leading spaces are a paragraph;
/// * a line with leading spaces is a row: a term, two spaces, and a text. The text continues in lines that begin in the
///   same column;
/// * rows below `Examples:` have a command as their term. A command that is too long stays a command.
pub(crate) fn help(text: &str, columns: usize) -> String {
    let mut in_examples = false;
    let mut lines = Vec::new();
    for part in parts(text) {
        if let Part::Paragraph(text) = &part {
            in_examples = text == "Examples:";
        }
        lines.push(match part {
            Part::Blank => String::new(),
            Part::Paragraph(text) => hang(&text, 0, columns),
            Part::Row { term, text } if in_examples => {
                row(&command(&term, columns), &text, columns)
            }
            Part::Row { term, text } => row(&term, &text, columns),
        });
    }
    lines.join("\n")
}

enum Part {
    Blank,
    Paragraph(String),
    /// The term includes its leading spaces, and the spaces up to the text's column.
    Row {
        term: String,
        text: String,
    },
}

fn parts(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    for line in text.lines() {
        let words = line.trim_start();
        let indent = line.len() - words.len();
        match parts.last_mut() {
            _ if words.is_empty() => parts.push(Part::Blank),
            Some(Part::Paragraph(text)) if indent == 0 && !text.ends_with(':') => {
                *text = format!("{text} {words}");
            }
            Some(Part::Row { term, text }) if !text.is_empty() && indent == width(term) => {
                *text = format!("{text} {words}");
            }
            _ if indent == 0 => parts.push(Part::Paragraph(words.to_owned())),
            _ => {
                let end = words.find("  ").unwrap_or(words.len());
                let text = words[end..].trim_start();
                let term = line[..line.len() - text.len()].to_owned();
                parts.push(Part::Row { term, text: text.to_owned() });
            }
        }
    }
    parts
}

/// A term with its text beside it or below.
fn row(term: &str, text: &str, columns: usize) -> String {
    let column = width(term);
    if text.is_empty() {
        return term.to_owned();
    }
    if !term.contains('\n') && column + NARROW <= columns {
        return format!("{term}{}", hang(text, column, columns));
    }
    let indent = width(term) - width(term.trim_start()) + 4;
    format!("{}\n{:indent$}{}", term.trim_end(), "", hang(text, indent, columns))
}

/// The command of an example. If it is too long, it continues after a backslash, as a shell reads it.
fn command(line: &str, columns: usize) -> String {
    let words = line.trim();
    if width(line.trim_end()) <= columns {
        return line.to_owned();
    }
    let indent = width(line) - width(line.trim_start());
    let next = format!(" \\\n{:1$}", "", indent + 2);
    let lines = wrap(words, columns.saturating_sub(indent + 4), &['\'', '"']);
    format!("{:indent$}{}", "", lines.join(&next))
}

/// A text with lines of its own, which continue at their indentation.
pub(crate) fn fitted(text: &str, columns: usize) -> String {
    hang(text, 0, columns)
}

/// A text whose first line begins in the column `indent`. The other lines begin there too. The text may have lines of
/// its own, with leading spaces.
fn hang(text: &str, indent: usize, columns: usize) -> String {
    let lines = text.split('\n').map(|line| {
        if indent + width(line) <= columns {
            return line.to_owned();
        }
        let own = indent + width(line) - width(line.trim_start());
        let next = format!("\n{:own$}", "");
        let wrapped = wrap(line, columns.saturating_sub(own), &['`']).join(&next);
        format!("{:1$}{wrapped}", "", own - indent)
    });
    lines.collect::<Vec<_>>().join(&format!("\n{:indent$}", ""))
}

/// Breaks a text between words. Quoted text stays whole, so that you can copy a command.
pub(crate) fn wrap(text: &str, columns: usize, quotes: &[char]) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in words(text, quotes) {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(&word),
            Some(line) if width(line) + 1 + width(&word) <= columns => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// The words of a text. The text between two equal quotes is one word.
fn words(text: &str, quotes: &[char]) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut open = None;
    let mut rest = text.split(' ').filter(|word| !word.is_empty());
    while let Some(word) = rest.next() {
        match words.last_mut() {
            Some(last) if open.is_some() => {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
        for letter in word.chars().filter(|letter| quotes.contains(letter)) {
            open = match open {
                None => Some(letter),
                Some(quote) if quote == letter => None,
                other => other,
            };
        }
        // A quote that is never closed, such as an apostrophe, quotes nothing.
        open = open.filter(|quote| rest.clone().any(|word| word.contains(*quote)));
    }
    words
}

/// The width of a text in columns. The text may be coloured.
fn width(text: &str) -> usize {
    strip_str(text).map(|part| part.chars().count()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        let wrap = |text, columns| wrap(text, columns, &['`']);
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("interminable, is it", 5), ["interminable,", "is it"]);
        assert_eq!(wrap("", 5), [""]);
    }

    #[test]
    fn a_command_in_a_text_stays_whole() {
        let wrap = |text| wrap(text, 16, &['`']);
        assert_eq!(wrap("to see it: `ss -x -l -p`, or"), ["to see it:", "`ss -x -l -p`,", "or"]);
        assert_eq!(wrap("a lone ` among some words"), ["a lone ` among", "some words"]);
    }

    #[test]
    fn what_is_coloured_is_as_wide_as_it_looks() {
        let mut page = Page::new(Vec::new(), 14);
        page.item("\x1b[31mred\x1b[0m  ", "one two three").unwrap();
        assert_eq!(page.to, b"\x1b[31mred\x1b[0m  one two\n     three\n");
    }

    const HELP: &str = "\
A paragraph of
two lines.

KIND:
  one, or two  A text that
               goes on
Examples:
  tool --option 'a b' | other  Does it";

    #[test]
    fn a_help_text_fits() {
        let wide = "A paragraph of two lines.\n\nKIND:\n  one, or two  A text that goes on\n\
                    Examples:\n  tool --option 'a b' | other  Does it";
        assert_eq!(help(HELP, 80), wide);
        let narrow = "A paragraph of two\nlines.\n\nKIND:\n  one, or two\n      A text that\n      \
                      goes on\nExamples:\n  tool --option \\\n    'a b' | other\n      Does it";
        assert_eq!(help(HELP, 20), narrow);
    }
}

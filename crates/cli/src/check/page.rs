//! `transom check --explain`: shows the page about a kind of mistake in a terminal. The page is Markdown.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use transom_check::Kind;

use crate::layout::Page;

const HEADING: Style = AnsiColor::Yellow.on_default().bold();
const CODE: Style = AnsiColor::Cyan.on_default();

/// Prints the page about a kind.
pub(super) fn print(out: &mut Page<impl Write>, kind: Kind) -> io::Result<()> {
    let mut paragraph = String::new();
    let mut in_code = false;
    for line in kind.page().lines() {
        let is_fence = line.starts_with("```");
        let is_text = !in_code && !is_fence && !line.is_empty() && !line.starts_with('#');
        // A line of a list begins a paragraph too.
        if !is_text || line.starts_with("* ") {
            flush(out, &mut paragraph)?;
        }
        if is_fence {
            in_code = !in_code;
        } else if in_code && line.is_empty() {
            writeln!(out.to)?;
        } else if in_code {
            writeln!(out.to, "    {CODE}{line}{CODE:#}")?;
        } else if let Some(heading) = line.strip_prefix('#') {
            let heading = heading.trim_start_matches('#').trim();
            writeln!(out.to, "{HEADING}{heading}{HEADING:#}")?;
        } else if line.is_empty() {
            writeln!(out.to)?;
        } else {
            let space = if paragraph.is_empty() { "" } else { " " };
            paragraph.push_str(space);
            paragraph.push_str(line.trim());
        }
    }
    flush(out, &mut paragraph)?;
    writeln!(out.to)?;
    out.text(format_args!("Rule {}. See also {}.", kind.rule(), kind.man()))
}

/// Prints the complete paragraph. The mark of a list item stands outside.
fn flush(out: &mut Page<impl Write>, paragraph: &mut String) -> io::Result<()> {
    let text = std::mem::take(paragraph);
    match text.strip_prefix("* ") {
        _ if text.is_empty() => Ok(()),
        Some(item) => out.item("* ", item),
        None => out.text(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_fits_and_has_its_code_as_it_is() {
        for kind in Kind::ALL {
            let mut out = Page::new(Vec::new(), 80);
            print(&mut out, *kind).unwrap();
            let text = anstream::adapter::strip_str(std::str::from_utf8(&out.to).unwrap());
            let text = text.to_string();
            for line in text.lines() {
                assert!(line.chars().count() <= 80, "{}: {line:?}", kind.name());
                assert!(!line.starts_with('#') && !line.contains("```"), "{line:?}");
            }
            assert!(text.starts_with(kind.name()) && text.contains(kind.rule()), "{text}");
        }
    }
}

//! The text of a rule in `spec/rules.md`.

use crate::failure::{Failure, Result};
use crate::layout::{self, Page};
use std::io::{self, Write};

/// The rules. The file is a link in this crate, so that the crate can be published.
const RULES: &str = include_str!("../../rules.txt");

/// A rule: a row of a table.
#[derive(Debug)]
struct Rule {
    id: String,
    /// The heading above it.
    section: &'static str,
    /// The name of each column, and the cell.
    columns: Vec<(String, String)>,
}

/// The cells of a row.
pub(super) fn cells(row: &str) -> Option<Vec<String>> {
    let row = row.trim_end().strip_prefix('|')?.strip_suffix('|')?;
    // A backslash stands before a bar within a cell.
    let row = row.replace("\\|", "\0");
    Some(row.split('|').map(|cell| cell.trim().replace('\0', "|")).collect())
}

/// Whether it is an id such as `T1-01`.
fn is_id(text: &str) -> bool {
    let Some((kind, number)) = text.split_once('-') else { return false };
    let of_kind = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    kind.starts_with(|first: char| first.is_ascii_uppercase())
        && kind.bytes().all(of_kind)
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// All rules, and the entries of other tables that have ids.
fn rules() -> impl Iterator<Item = Rule> {
    let mut section = "";
    let mut header = Vec::new();
    RULES.lines().filter_map(move |line| {
        if let Some(heading) = line.strip_prefix("##") {
            section = heading.trim_start_matches('#').trim();
        }
        let cells = cells(line)?;
        let id = cells.first()?.clone();
        if !is_id(&id) {
            // The header of a table, or the line below it.
            if id == "id" {
                header = cells;
            }
            return None;
        }
        let columns = header.iter().cloned().zip(cells).skip(1).collect();
        Some(Rule { id, section, columns })
    })
}

/// Prints a rule.
pub(super) fn print(id: &str) -> Result {
    let wanted = id.to_ascii_uppercase();
    let Some(rule) = rules().find(|rule| rule.id == wanted) else {
        let kind = wanted.split('-').next().unwrap_or_default();
        let like: Vec<_> = rules().filter(|rule| rule.id.split('-').next() == Some(kind)).collect();
        let known = match (like.first(), like.last()) {
            (Some(first), Some(last)) => {
                format!("those of its kind are {} to {}", first.id, last.id)
            }
            _ => "an id is such as MR-04; refusals end with that of their rule".to_owned(),
        };
        return Err(Failure::with_status(2, format_args!("there is no rule {id}; {known}")));
    };
    write(&mut layout::stdout(), &rule)?;
    Ok(())
}

/// Words of the rules, as `spec/rules.md` defines them.
const WORDS: [(&str, &str); 6] = [
    ("REQ", "the end that requests"),
    ("RSP", "the end that responds"),
    ("CQE", "a completion, with its status"),
    ("imm.", "the call itself answers the errno, and nothing is posted"),
    ("QP→ERR", "the queue pair goes to the error state"),
    (
        "fails remotely",
        "the completion has REM_ACCESS_ERR, no byte is changed, and both queue pairs are in error",
    ),
];

/// What a person wants to know: the rule, what it looks like, and where to read on. Sources and flags are for those who
/// change the rules.
fn write(out: &mut Page<impl Write>, rule: &Rule) -> io::Result<()> {
    out.item(format_args!("{}  ", rule.id), format_args!("({})", rule.section))?;
    let shown: Vec<_> = rule
        .columns
        .iter()
        .filter(|(name, text)| !text.is_empty() && !matches!(name.as_str(), "source" | "flag"))
        .collect();
    for (name, text) in &shown {
        let text = text.replace("**", "").replace("⇒", "Transom:");
        match name.as_str() {
            "rule" => out.item("  ", text)?,
            "trigger → expected" => out.item("  for example: ", text.trim_start_matches("→ "))?,
            _ => out.item("  ", format_args!("{name}: {text}"))?,
        }
    }
    let has = |word: &str| shown.iter().any(|(_, text)| has_word(text, word));
    for (word, meaning) in WORDS.iter().filter(|(word, _)| has(word)) {
        out.item("  ", format_args!("{word}: {meaning}"))?;
    }
    out.item("  ", "Its sources, and what other adapters do: spec/rules.md in Transom's source.")
}

/// Whether a text has a word, and not only as a part of a name such as `REM_INV_REQ_ERR`.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.match_indices(word).any(|(at, _)| {
        let (before, behind) = (&text[..at], &text[at + word.len()..]);
        !before.ends_with(is_part) && !behind.starts_with(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_name_is_no_word() {
        assert!(has_word("→ REQ, RSP", "REQ") && has_word("REQ CQE", "REQ"));
        assert!(!has_word("REM_INV_REQ_ERR, DREQ", "REQ"));
    }

    #[test]
    fn every_rule_is_there_once() {
        let mut ids: Vec<_> = rules().map(|rule| rule.id).collect();
        let said = RULES.split("as ").find_map(|part| part.split_once(" numbered rules"));
        let said: usize = said.unwrap().0.parse().unwrap();
        // Deviations have ids too, but are not rules.
        assert!(ids.len() >= said, "{} of {said}", ids.len());
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all);
        for rule in rules() {
            let texts = rule.columns.iter().filter(|(_, text)| !text.is_empty());
            assert!(!rule.section.is_empty() && texts.count() > 0, "{rule:?}");
        }
    }

    #[test]
    fn lines_are_no_longer_than_a_terminal() {
        for rule in rules() {
            let mut out = Page::new(Vec::new(), 80);
            write(&mut out, &rule).unwrap();
            let text = String::from_utf8(out.to).unwrap();
            // Quoted text stays whole, even if it is long.
            for line in text.lines().filter(|line| !line.contains('`')) {
                assert!(line.chars().count() <= 80, "{line}");
            }
        }
    }
}

//! The map and the chapters of the design name sources and functions: these are there.

use std::fs;
use std::path::Path;

use transom_conformance::documents::{Document, root};

/// Where the chapters lie.
const CHAPTERS: &str = "docs/design";

/// Documents that are read in one sitting, and their most lines.
const SHORT: [(&str, usize); 2] = [("ARCHITECTURE.md", 200), ("CONTRIBUTING.md", 100)];

/// The documents that lie in this folder.
fn documents_of(folder: &str) -> Vec<Document> {
    let is_there = |it: &Document| it.path.parent() == Some(Path::new(folder));
    let found: Vec<_> = Document::all().into_iter().filter(is_there).collect();
    assert!(!found.is_empty(), "{folder} has no documents");
    found
}

/// What stands between backticks, within one line.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// A chapter begins with its title, a blank line, and the paragraph `Source: …`.
#[test]
fn every_chapter_names_sources_that_exist() {
    let root = root();
    let mut wrong = Vec::new();
    for Document { path, text } in documents_of(CHAPTERS) {
        let mut paragraphs = text.split("\n\n");
        let title = paragraphs.next().is_some_and(|title| title.starts_with("# "));
        let head = paragraphs.next().filter(|head| title && head.starts_with("Source: `"));
        let Some(head) = head else {
            wrong.push(format!("{}: no line \"Source: `…`\" below its title", path.display()));
            continue;
        };
        let gone = quoted(head).filter(|source| !root.join(source).exists());
        wrong.extend(gone.map(|source| format!("{}: no {source}", path.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// They are written `FILE.rs:FUNCTION`, the file by its path below `crates`.
#[test]
fn functions_that_are_named_with_their_file_exist() {
    let crates = root().join("crates");
    let (mut named, mut gone) = (0, Vec::new());
    for Document { path, text } in Document::all() {
        for name in quoted(&text) {
            let Some((file, function)) = name.split_once(".rs:") else { continue };
            named += 1;
            let source = fs::read_to_string(crates.join(file).with_extension("rs"));
            let defines = |source: String| {
                ["(", "<"].iter().any(|it| source.contains(&format!("fn {function}{it}")))
            };
            if !source.is_ok_and(defines) {
                gone.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert!(named > 0 && gone.is_empty(), "no such function:\n  {}", gone.join("\n  "));
}

#[test]
fn what_a_newcomer_reads_first_is_short() {
    for (path, most) in SHORT {
        let lines = Document::read(path).text.lines().count();
        assert!(lines <= most, "{path} has {lines} lines, {most} is the most: make it a chapter");
    }
}

//! What the documents say of files: that they are there.

use std::path::{Path, PathBuf};
use std::{fs, io};

use transom_conformance::documents::{Document, root};

/// What is in these is not there by its path: it was there once, is in the reader's repository, or is a test's
/// name.
const OTHERS: [&str; 3] = ["CHANGELOG.md", "docs/ci.md", "spec/coverage.md"];

#[test]
fn documents_name_files_that_exist() {
    let root = root();
    let mut files = Vec::new();
    list(&root.join("crates"), &mut files).expect("the crates");
    let files: Vec<_> = files.iter().map(|file| file.to_string_lossy()).collect();
    let is_there = |path: &str| {
        let (end, folder) = (format!("/{path}"), format!("/{path}/"));
        root.join(path).exists()
            || files.iter().any(|file| file.ends_with(&end) || file.contains(&folder))
    };
    let mut gone = Vec::new();
    let is_other = |document: &Document| OTHERS.iter().any(|it| document.path == Path::new(it));
    for Document { path: document, text } in
        Document::all().into_iter().filter(|document| !is_other(document))
    {
        // What is between two backticks of a line is every second part of it.
        let quoted = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
        let paths = quoted.filter(|quoted| is_path(&root, quoted));
        let gone_of_it = paths.filter(|path| !is_there(path));
        gone.extend(gone_of_it.map(|path| format!("{}: {path}", document.display())));
    }
    assert!(gone.is_empty(), "no such file:\n  {}", gone.join("\n  "));
}

/// A user who sets up a machine as a document says has the needed compiler.
#[test]
fn documents_name_the_rust_version_that_is_needed() {
    let needed = env!("CARGO_PKG_RUST_VERSION");
    let mut named = 0;
    for Document { path, text } in Document::all() {
        // What it said of earlier versions stays as it was.
        if path == Path::new("CHANGELOG.md") {
            continue;
        }
        for rest in text.split("Rust 1.").skip(1) {
            let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
            assert_eq!(format!("1.{minor}"), needed, "{}", path.display());
            named += 1;
        }
    }
    assert!(named > 0);
}

/// Whether it can only be the path of something here: of a source, or of what is in a crate.
fn is_path(root: &Path, text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
    let first = text.split_once('/').map_or("", |(first, _)| first);
    let of_crate = !first.is_empty() && root.join("crates").join(first).is_dir();
    let begins = text.starts_with(|first: char| first.is_ascii_alphanumeric());
    let ends = [".rs", ".map"].iter().any(|end| text.ends_with(end));
    text.bytes().all(plain) && begins && (first == "crates" || of_crate || ends)
}

/// The files below a folder.
fn list(folder: &Path, to: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { list(&path, to)? } else { to.push(path) }
    }
    Ok(())
}

//! What the documents say of files: that they are there.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Those that say where what is.
const DOCUMENTS: [&str; 3] = ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"];

#[test]
fn documents_name_files_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    list(&root.join("crates"), &mut files).expect("the crates");
    let files: Vec<_> = files.iter().map(|file| file.to_string_lossy()).collect();
    let is_there = |path: &str| {
        let (end, folder) = (format!("/{path}"), format!("/{path}/"));
        root.join(path).exists()
            || files.iter().any(|file| file.ends_with(&end) || file.contains(&folder))
    };
    let mut gone = Vec::new();
    for document in DOCUMENTS {
        let text = fs::read_to_string(root.join(document)).expect("it is there");
        // What is between two backticks of a line is every second part of it.
        let quoted = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
        let paths = quoted.filter(|quoted| is_path(&root, quoted));
        gone.extend(paths.filter(|path| !is_there(path)).map(|path| format!("{document}: {path}")));
    }
    assert!(gone.is_empty(), "no such file:\n  {}", gone.join("\n  "));
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

//! The tests as the sources have them: where they are looked for, and how they are named.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

use super::{Rules, scan_rust, scan_script};

/// A test, and the ids of the rules it says it checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// `crate/file::function`, such as `conformance/rules/windows/keys::key_01_the_key_of_a_new_window`.
    pub name: String,
    /// The ids.
    pub ids: BTreeSet<String>,
}

/// Finds the tests of all crates and of `tests/` below the root of the workspace.
pub fn scan(root: &Path, rules: &Rules) -> io::Result<Vec<Test>> {
    let mut tests = Vec::new();
    for top in ["crates", "tests"] {
        let top = root.join(top);
        if top.is_dir() {
            scan_folder(root, &top, rules, &mut tests)?;
        }
    }
    tests.sort_by(|a, b| rank(&a.name).cmp(&rank(&b.name)));
    Ok(tests)
}

fn scan_folder(root: &Path, folder: &Path, rules: &Rules, to: &mut Vec<Test>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') || name == "target" {
            continue;
        }
        if path.is_dir() {
            scan_folder(root, &path, rules, to)?;
            continue;
        }
        let at = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        let in_tests = at.starts_with("tests/") || at.contains("/tests/");
        match path.extension().and_then(|e| e.to_str()) {
            Some("rs") => {
                to.extend(scan_rust(&rust_file_name(&at), &fs::read_to_string(&path)?, rules));
            }
            Some("c" | "sh" | "py") if in_tests => {
                to.extend(scan_script(&script_file_name(&at), &fs::read_to_string(&path)?));
            }
            _ => {}
        }
    }
    Ok(())
}

/// `crates/conformance/tests/rules/windows/keys.rs` is `conformance/rules/windows/keys`, and
/// `crates/device/src/key.rs` is `device/src/key`.
fn rust_file_name(path: &str) -> String {
    let path = script_file_name(path);
    path.strip_suffix(".rs").unwrap_or(&path).to_owned()
}

fn script_file_name(path: &str) -> String {
    match path.strip_prefix("crates/") {
        Some(path) => path.replacen("/tests/", "/", 1),
        None => path.to_owned(),
    }
}

/// The order tests are named in: those that exist to hold the rules first.
fn rank(name: &str) -> (u8, &str) {
    let class = match name {
        _ if name.starts_with("conformance/") => 0,
        _ if name.starts_with("tests/") => 1,
        _ => 2,
    };
    (class, name)
}

/// The ids in the `Rules:` lines of a comment; a line that ends in a comma goes on in the next.
pub(super) fn ids_in_comment(comment: &str) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    let mut goes_on = false;
    for line in comment.lines() {
        let line = line.trim_start_matches(['/', '!', '*', '#']).trim();
        let list = match line.strip_prefix("Rules:").or_else(|| line.strip_prefix("Rule:")) {
            Some(list) => list,
            None if goes_on => line,
            None => continue,
        };
        goes_on = list.trim_end().ends_with(',');
        let words = list.split(|c: char| c.is_whitespace() || ",;()`".contains(c));
        ids.extend(
            words.map(|w| w.trim_end_matches('.')).filter(|w| is_id_like(w)).map(Into::into),
        );
    }
    ids
}

/// Whether a word of a `Rules:` line is meant as an id. A range such as `T1-01..T1-05` is taken as
/// it stands, so that it is reported as no rule: ids are written out, or they cannot be searched.
fn is_id_like(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_uppercase()) && word.contains('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_by_crate() {
        assert_eq!(
            rust_file_name("crates/conformance/tests/rules/windows.rs"),
            "conformance/rules/windows"
        );
        assert_eq!(rust_file_name("crates/device/src/key/table.rs"), "device/src/key/table");
        assert_eq!(script_file_name("crates/ibverbs/tests/c/mw.c"), "ibverbs/c/mw.c");
        assert_eq!(script_file_name("tests/mw.sh"), "tests/mw.sh");
    }
}

//! The tests in the sources: where they are looked for, and their names.

use std::path::Path;
use std::{fs, io};

use super::{Rules, Test, scan_rust, scan_script};

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

/// The order of tests in a row: those that exist to hold rules first.
fn rank(name: &str) -> (u8, &str) {
    let class = match name {
        _ if name.starts_with("conformance/") => 0,
        _ if name.starts_with("tests/") => 1,
        _ => 2,
    };
    (class, name)
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

//! Every rule of `spec/rules.md` is tested, or `spec/coverage.md` says why not.
//!
//! With `TRANSOM_BLESS=1` in the environment this writes `spec/coverage.md` from the sources first.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::{env, fs};

use transom_conformance::coverage::{Problems, Rules, Table, Test, scan};

struct Project {
    rules: Rules,
    tests: Vec<Test>,
    text: String,
    table: Table,
}

static PROJECT: LazyLock<Project> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let rules = Rules::parse(&read(root.join("spec/rules.md"))).unwrap();
    let tests = scan(&root, &rules).unwrap();
    let path = root.join("spec/coverage.md");
    let mut text = read(path.clone());
    let mut table = Table::parse(&text).unwrap();
    if env::var_os("TRANSOM_BLESS").is_some_and(|value| value == "1") {
        table = table.bless(&rules, &tests);
        text = table.render(&rules);
        fs::write(path, &text).unwrap();
    }
    Project { rules, tests, text, table }
});

fn read(path: PathBuf) -> String {
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn none(what: &str, kind: fn(Problems) -> Vec<String>) {
    let found = kind(PROJECT.table.problems(&PROJECT.rules, &PROJECT.tests));
    assert!(found.is_empty(), "{what} ({}):\n  {}\n{HINT}", found.len(), found.join("\n  "));
}

const HINT: &str = "To write spec/coverage.md from the sources: \
                    TRANSOM_BLESS=1 cargo test -p transom-conformance --test rules coverage";

/// A file that no module names would hold rules by tests that nobody runs.
#[test]
fn every_file_of_these_tests_is_compiled() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rules");
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        let parent = folder.with_extension("rs");
        let parent = read(if parent.exists() { parent } else { root.join("main.rs") });
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let module = path.file_stem().unwrap().to_str().unwrap();
            if path.is_dir() {
                folders.push(path);
            } else if module != "main" {
                assert!(parent.contains(&format!("mod {module};")), "{}", path.display());
            }
        }
    }
}

#[test]
fn every_rule_is_listed_exactly_once() {
    assert_eq!(PROJECT.rules.len(), 945, "rules are not dropped, and new ones are counted here");
    none("rules not listed exactly once", |problems| problems.listing);
}

#[test]
fn every_listed_test_exists_and_carries_its_rule() {
    none("tests listed wrongly", |problems| problems.missing);
}

#[test]
fn no_rule_is_left_without_a_test_or_a_reason() {
    none("gaps", |problems| problems.gaps);
}

#[test]
fn no_reason_has_outlived_its_truth() {
    none("stale reasons", |problems| problems.stale);
}

#[test]
fn every_id_a_test_carries_is_a_rule() {
    none("unknown ids", |problems| problems.unknown);
}

#[test]
fn the_table_is_written_as_blessing_writes_it() {
    let same = PROJECT.table.render(&PROJECT.rules) == PROJECT.text;
    assert!(same, "spec/coverage.md is not in its own form (order, headings, counts).\n{HINT}");
}

//! The litmus tests of `spec/ordering.md` are as the rules of their authorities make them.
//!
//! With `TRANSOM_BLESS=1` in the environment this writes their tables first.

use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::{env, fs};

use transom_conformance::documents::{Document, root};
use transom_conformance::litmus::page::{self, Test, UNCHECKED};
use transom_conformance::litmus::program::Program;

const PAGE: &str = "spec/ordering.md";

/// Where plain `run` departs from an authority, and why.
const DEPARTURES: [(&str, &str); 1] =
    [("faa-write-on-two", "in private memory a WRITE does not wait for an atomic's turn")];

static TESTS: LazyLock<Vec<Test>> = LazyLock::new(|| {
    let text = Document::read(PAGE).text;
    let tests = page::parse(&text).unwrap();
    if env::var_os("TRANSOM_BLESS").is_none_or(|value| value != "1") {
        return tests;
    }
    let text = page::blessed(&text, &tests);
    fs::write(root().join(PAGE), &text).unwrap();
    page::parse(&text).unwrap()
});

/// The page has every outcome that some way of carrying out the program leads to, and no other.
#[test]
fn tables_of_litmus_tests_are_what_the_rules_make_of_them() {
    for test in &*TESTS {
        assert_eq!(
            test.table,
            test.rendered(),
            "{}: TRANSOM_BLESS=1 cargo test -p transom-conformance --test rules litmus",
            test.name
        );
    }
}

/// What was judged by reading is what the rules of the machine lead to.
#[test]
fn what_a_litmus_test_asks_is_answered_as_its_author_did() {
    for test in &*TESTS {
        let asked = &test.program.asked;
        let [spec, model, _] = test.judged()[&asked.values];
        for (authority, said) in [("spec", spec), ("model", model)] {
            let claimed = asked.said.get(authority).map(String::as_str);
            assert_eq!(claimed, Some(said), "{}, by the {authority}", test.name);
        }
    }
}

/// By derivation, not by running.
#[test]
fn plain_run_reaches_nothing_that_an_authority_forbids() {
    for test in &*TESTS {
        let is_wrong = |said: &[&str; 3]| said[2] == "reached" && said[..2].contains(&"forbidden");
        let departs = test.judged().values().any(is_wrong);
        let known = DEPARTURES.iter().any(|(name, _)| *name == test.name);
        assert_eq!(departs, known, "{}: {:?}", test.name, test.judged());
    }
}

/// Each judgement names a source of the page's table, or says that there was none.
#[test]
fn litmus_tests_name_what_they_were_checked_against() {
    let text = Document::read(PAGE).text;
    let (_, sources) = text.split_once("\n## Sources\n").expect("a table of sources");
    let (sources, _) = sources.split_once("\n## ").expect("the next chapter");
    let keys: Vec<_> = sources.lines().filter_map(|row| row.split('`').nth(1)).collect();
    let mut names = BTreeSet::new();
    for test in &*TESTS {
        let named = test.text.split('`').skip(1).step_by(2).all(|key| keys.contains(&key));
        assert!(
            named && (test.text.contains('`') || test.text.contains(UNCHECKED)),
            "{}",
            test.name
        );
        assert!(names.insert(&test.name), "{} is there twice", test.name);
    }
    assert!(names.len() >= 40, "{} tests", names.len());
}

#[test]
fn a_line_that_is_not_of_the_litmus_language_is_refused() {
    let nodes = "memory n1 a\nmemory n2 x\nqp q n1 n2\n";
    let wrong = [
        ("n1: put q x a; jump", "no such statement"),
        ("n1: put q a x", "wrong node"),
        ("n1: put p x a", "p has no end at n1"),
        ("n1: load r y", "y is not declared"),
        ("memory n3 a", "a is declared twice"),
        ("n1: store a much", "much is not a number"),
        ("window k x open", "no such line"),
        ("n1: load r a\nshow r", "1 values are shown, 0 asked about"),
    ];
    for (line, why) in wrong {
        let error = Program::parse(&format!("{nodes}{line}")).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

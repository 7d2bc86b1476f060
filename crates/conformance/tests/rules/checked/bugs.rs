//! Public bugs, each as a small program of the same shape: what finds it, and whether at the right line, is in the table
//! of `spec/bugs.md`. Each program has a wrong form and a right one.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::Duration;

use transom_check::{Gravity, Kind};
use transom_conformance::checked::Checked;
use transom_conformance::documents::Document;

/// The mark of the lines that a finding has to name.
const MARK: &str = "here";
const LIMIT: Duration = Duration::from_secs(60);
const VERBS: &[&str] = &["-libverbs"];
const CONNECTIONS: &[&str] = &["-lrdmacm", "-libverbs"];
/// Programs whose mistakes are in memory of their own.
const ADDRESS_SANITIZER: &[&str] = &["-fsanitize=address", "-lrdmacm", "-libverbs", "-lpthread"];

/// What finds a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FoundBy {
    /// `transom check`, with the right lines.
    Check(Kind),
    /// `transom check`, with other lines.
    CheckElsewhere(Kind),
    AddressSanitizer,
    /// The program itself says that something is wrong, and ends.
    ItsOwnCheck,
    Nothing,
}

impl FoundBy {
    /// As the table has it.
    fn read(cell: &str) -> Option<Self> {
        let of_kind = |rest: &str| Kind::named(rest.strip_prefix('`')?.strip_suffix('`')?);
        match (cell, cell.strip_suffix(", at another line")) {
            ("AddressSanitizer", _) => Some(Self::AddressSanitizer),
            ("its own check", _) => Some(Self::ItsOwnCheck),
            (_, Some(kind)) => of_kind(kind).map(Self::CheckElsewhere),
            _ if cell.starts_with("not found: ") || cell.starts_with("not found yet: ") => {
                Some(Self::Nothing)
            }
            _ => of_kind(cell).map(Self::Check),
        }
    }
}

/// A row of the table.
#[derive(Debug)]
struct Bug {
    /// The file with its program, and the program's name there.
    program: (String, String),
    by: FoundBy,
}

fn table() -> Document {
    Document::read("spec/bugs.md")
}

fn bugs() -> Vec<Bug> {
    let rows = table().text;
    let rows = rows.lines().filter(|line| line.starts_with("| ["));
    let read = |row: &str| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let [_, _, _, program, by, _] = cells[..] else { return None };
        let (file, name) = program.strip_prefix('`')?.strip_suffix('`')?.split_once("` `")?;
        Some(Bug { program: (file.to_owned(), name.to_owned()), by: FoundBy::read(by)? })
    };
    rows.map(|row| read(row).unwrap_or_else(|| panic!("a row is not as the others: {row}")))
        .collect()
}

/// The programs of a file, each once, and what finds them.
fn programs_of(file: &str) -> BTreeMap<String, FoundBy> {
    let mut programs = BTreeMap::new();
    for Bug { program: (_, name), by } in bugs().into_iter().filter(|bug| bug.program.0 == file) {
        let other = programs.insert(name.clone(), by);
        assert!(other.is_none_or(|other| other == by), "{name} is found by {by:?} and {other:?}");
    }
    programs
}

/// Runs the programs of a file, in both forms.
fn holds(file: &str, libraries: &[&str]) {
    let mut program = Checked::new(&format!("bugs/{file}"), env!("CARGO_TARGET_TMPDIR"), libraries);
    if file == "keys" {
        program = program.preloading();
    }
    let programs = programs_of(file);
    assert!(program.mistakes().iter().eq(programs.keys()), "the programs of {file}, and its rows");
    thread::scope(|scope| {
        for (name, by) in &programs {
            let program = &program;
            scope.spawn(move || holds_of(program, name, *by));
        }
    });
}

/// Runs a program in both forms.
fn holds_of(program: &Checked, name: &str, by: FoundBy) {
    match by {
        FoundBy::AddressSanitizer => stops(program, name, "AddressSanitizer"),
        FoundBy::ItsOwnCheck => stops(program, name, "not so: "),
        FoundBy::Check(kind) => _ = program.shows_all(name, kind, MARK),
        FoundBy::CheckElsewhere(kind) => {
            let found = program.run(&[name, "wrong"]);
            let of_kind: Vec<_> = found.iter().filter(|it| it.kind == kind).collect();
            assert!(!of_kind.is_empty(), "{name}: {found:#?}");
            let is_right = |it| program.names_all(it, name, MARK);
            assert!(!of_kind.into_iter().any(is_right), "{name} is found at the right line");
            program.is_silent_on(name, kind);
        }
        FoundBy::Nothing => {
            assert_eq!(program.run_briefly(&[name, "wrong"]), [], "{name} is found");
            assert_eq!(program.run(&[name, "right"]), [], "{name}");
        }
    }
}

/// A program is ended in its wrong form by who says this, and names a line with the mark; in the right form all is well.
fn stops(program: &Checked, name: &str, says: &str) {
    let run = |form| program.end(&[name, form], LIMIT);
    let (status, printed) = run("wrong");
    let report = printed.complaints;
    assert!(!status.success() && report.contains(says), "{name}: {status} {report}");
    let source = fs::read_to_string(program.source()).expect("the source is there");
    let file = program.source().file_name().and_then(|name| name.to_str()).expect("a plain name");
    let before = format!("{file}:");
    let named = report.split(&before).skip(1);
    let lines =
        named.filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok());
    let is_marked = |line: usize| {
        let line = source.lines().nth(line.saturating_sub(1)).unwrap_or_default();
        line.ends_with(&format!("/* {MARK} */"))
    };
    assert!(lines.into_iter().next().is_some_and(is_marked), "{name}: {report}");
    let (status, printed) = run("right");
    assert!(status.success() && printed.complaints.is_empty(), "{name}: {status} {printed:?}");
}

/// Rules: CHK-01, CHK-04, CHK-06, CHK-07
#[test]
fn what_ends_too_early_or_never_is_found() {
    holds("teardown", VERBS);
}

/// Rules: CHK-08, CHK-20, CHK-23, CHK-24, CHK-25
#[test]
fn queues_that_are_full_or_empty_are_found() {
    holds("accounting", VERBS);
}

/// Rules: CHK-31, CHK-34, CHK-50
#[test]
fn events_that_are_kept_or_slept_through_are_found() {
    holds("events", VERBS);
}

/// Rule: CHK-31
#[test]
fn events_of_connections_that_are_kept_are_found() {
    holds("connections", CONNECTIONS);
}

/// Rules: CHK-06, CHK-07, CHK-23, CHK-26, CHK-27, CHK-44, CHK-45
#[test]
fn keys_rights_and_addresses_that_are_wrong_are_found() {
    holds("keys", VERBS);
}

/// Rules: CHK-62, CHK-63
#[test]
fn memory_that_is_touched_in_flight_is_found() {
    holds("flight", VERBS);
}

/// Rules: CHK-70, CHK-71
#[test]
fn children_that_use_what_is_their_parents_are_found() {
    holds("forks", VERBS);
}

/// Rule: CHK-81
#[test]
fn memory_that_is_used_after_its_end_is_found() {
    holds("freed", ADDRESS_SANITIZER);
}

/// The files are those whose tests are above, and the figures at the head are those of the table.
#[test]
fn the_table_counts_what_it_has() {
    let files =
        ["accounting", "connections", "events", "flight", "forks", "freed", "keys", "teardown"];
    let bugs = bugs();
    let is_known = |bug: &&Bug| files.contains(&bug.program.0.as_str());
    assert_eq!(bugs.iter().filter(is_known).count(), bugs.len());
    let of = bugs.len();
    let found = bugs.iter().filter(|bug| bug.by != FoundBy::Nothing).count();
    let elsewhere = |bug: &&Bug| matches!(bug.by, FoundBy::CheckElsewhere(_));
    let named = found - bugs.iter().filter(elsewhere).count();
    let head = format!("Found: {found} of {of}. Named with the right line: {named} of {of}.");
    let by = |wanted: FoundBy| bugs.iter().filter(|bug| bug.by == wanted).count();
    let of_gravity = |gravity| {
        let is_so = |bug: &&Bug| match bug.by {
            FoundBy::Check(kind) | FoundBy::CheckElsewhere(kind) => kind.gravity() == gravity,
            _ => false,
        };
        bugs.iter().filter(is_so).count()
    };
    let by_what = format!(
        "By findings of `transom check`: {}. By its notes: {}. By AddressSanitizer: {}. By the program's own check: {}.",
        of_gravity(Gravity::Finding),
        of_gravity(Gravity::Note),
        by(FoundBy::AddressSanitizer),
        by(FoundBy::ItsOwnCheck),
    );
    for said in [head, by_what] {
        assert!(table().text.contains(&said), "spec/bugs.md does not say: {said}");
    }
}

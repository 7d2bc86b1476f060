//! Public bugs that need a hostile moment, each as a small program of the same shape (`spec/rehearsed-bugs.md`).

use std::collections::BTreeMap;
use std::thread;

use transom_conformance::c_programs::compile;
use transom_conformance::documents::Document;
use transom_conformance::processes::{Scratch, is_long};
use transom_rehearse::{Place, Provocation};

use super::command::{at_last, rehearse};

/// The wrong form fails within so many runs.
const SEEDS: &str = "200";
/// The right form holds for so many runs here, and for so many in the long mode.
const HOLDS: [&str; 2] = ["10", "2000"];

/// Work that fails. These programs wait for what a success brings, and so they are only rehearsed with the failure that
/// they are about.
const FAILING_WORK: [Provocation; 4] = [
    Provocation::FailedRequests,
    Provocation::FailedReceives,
    Provocation::GonePeers,
    Provocation::StuckWork,
];

/// The programs of a file, each once, and what provokes their bugs.
fn programs_of(file: &str) -> BTreeMap<String, Provocation> {
    let mut programs = BTreeMap::new();
    let table = Document::read("spec/rehearsed-bugs.md").text;
    for row in table.lines().filter(|line| line.starts_with("| [")) {
        let (program, by) =
            read(row).unwrap_or_else(|| panic!("a row is not as the others: {row}"));
        let (its_file, name) = program;
        if its_file == file {
            let other = programs.insert(name.clone(), by);
            assert!(other.is_none_or(|other| other == by), "{name} is provoked by two things");
        }
    }
    programs
}

fn read(row: &str) -> Option<((String, String), Provocation)> {
    let cells: Vec<_> = row.split('|').map(str::trim).collect();
    let [_, _, _, program, by, _] = cells[..] else { return None };
    let (file, name) = program.strip_prefix('`')?.strip_suffix('`')?.split_once("` `")?;
    let by = Provocation::named(by.strip_prefix('`')?.strip_suffix('`')?)?;
    Some(((file.to_owned(), name.to_owned()), by))
}

fn holds(file: &str) {
    let scratch = Scratch::new(&format!("rehearsed-{file}"));
    let binary = compile(&scratch, &format!("rehearsed/{file}.c"), file, &["-libverbs"]);
    let binary = binary.to_str().expect("a path in UTF-8");
    let programs = programs_of(file);
    assert!(!programs.is_empty(), "the table has no program of {file}");
    thread::scope(|scope| {
        for (name, by) in &programs {
            scope.spawn(move || holds_of(binary, name, *by));
        }
    });
}

fn holds_of(binary: &str, name: &str, by: Provocation) {
    let others = FAILING_WORK.iter().filter(|it| **it != by).map(|it| it.name());
    let others = others.collect::<Vec<_>>().join(",");
    at_last(by, || {
        let options = ["--runs", SEEDS, "--limit", "5s", "--without", &others];
        let (status, printed) = rehearse(&options, &[binary, name, "wrong"]);
        let words = printed.complaints.split_whitespace();
        let places: Vec<_> = words.filter_map(|word| word.parse::<Place>().ok()).collect();
        // Some need more than one place, of the same provocation.
        let by_it = !places.is_empty() && places.iter().all(|it| it.provocation == by);
        if status == Some(66) && by_it { Ok(()) } else { Err(format!("{name}: {printed:?}")) }
    });
    let runs = HOLDS[usize::from(is_long())];
    let (status, printed) =
        rehearse(&["--runs", runs, "--without", &others], &[binary, name, "right"]);
    assert_eq!(status, Some(0), "{name}: {printed:?}");
}

/// Rules: REH-10, REH-11, REH-40, REH-42
#[test]
fn bugs_of_moments_fail_within_two_hundred_runs() {
    holds("bugs");
}

/// Rules: REH-20, REH-42
#[test]
fn bugs_of_fields_fail_within_two_hundred_runs() {
    holds("moments");
}

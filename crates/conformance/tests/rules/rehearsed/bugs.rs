//! Public bugs that need a hostile moment, each as a small program of the same shape (`spec/rehearsed-bugs.md`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread;

use transom_conformance::c_programs::{RDMACM, compile};
use transom_conformance::documents::Document;
use transom_conformance::processes::{Scratch, is_long};
use transom_conformance::spaces::two_hosts;
use transom_rehearse::{Place, Profile, Provocation};

use super::command::{at_last, rehearse};

/// The wrong form fails within so many runs.
const SEEDS: &str = "200";
/// The right form holds for so many runs here, and for so many in the long mode.
const HOLDS: [&str; 2] = ["10", "2000"];
/// How long a run of the wrong form may take, likewise. Some hang.
const LIMITS: [&str; 2] = ["1s", "5s"];

/// The table of the bugs.
pub(super) const TABLE: &str = "spec/rehearsed-bugs.md";

/// What makes the wrong form of a program fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// One of these provocations alone.
    Provoked(Vec<Provocation>),
    /// An adapter that has less.
    As(&'static Profile),
}

/// The bugs' programs, each once: the file and the name, and what makes the wrong form fail.
pub(super) fn programs() -> BTreeMap<(String, String), Cause> {
    let mut programs = BTreeMap::new();
    let table = Document::read(TABLE).text;
    for row in table.lines().filter(|line| line.starts_with("| [")) {
        let (program, cause) =
            read(row).unwrap_or_else(|| panic!("a row is not as the others: {row}"));
        let other = programs.insert(program.clone(), cause.clone());
        assert!(other.is_none_or(|other| other == cause), "{program:?} has two causes");
    }
    programs
}

/// The program of a row, and what makes it fail.
pub(super) fn read(row: &str) -> Option<((String, String), Cause)> {
    let cells: Vec<_> = row.split('|').map(str::trim).collect();
    let [_, _, _, program, cause, _, _] = cells[..] else { return None };
    let (file, name) = program.strip_prefix('`')?.strip_suffix('`')?.split_once("` `")?;
    let code = |text: &'_ str| Some(text.strip_prefix('`')?.strip_suffix('`')?.to_owned());
    let cause = match code(cause)?.strip_prefix("--as ") {
        Some(adapter) => Cause::As(Profile::named(adapter)?),
        None => {
            let named = |text| Provocation::named(&code(text)?);
            Cause::Provoked(cause.split(" or ").map(named).collect::<Option<_>>()?)
        }
    };
    Some(((file.to_owned(), name.to_owned()), cause))
}

/// Compiles a file of programs.
pub(super) fn compiled(scratch: &Scratch, file: &str) -> PathBuf {
    compile(scratch, &format!("rehearsed/{file}.c"), file, RDMACM)
}

fn holds(file: &str) {
    holds_under(&[], file);
}

/// The same of programs that these words run.
fn holds_under(words: &[String], file: &str) {
    let scratch = Scratch::new(&format!("rehearsed-{file}"));
    let binary = compiled(&scratch, file);
    let binary = binary.to_str().expect("a path in UTF-8");
    let mut programs = programs();
    programs.retain(|(its_file, _), _| its_file == file);
    assert!(!programs.is_empty(), "the table has no program of {file}");
    thread::scope(|scope| {
        for ((_, name), cause) in &programs {
            let words: Vec<_> = words.iter().map(|it| &**it).chain([binary, name]).collect();
            scope.spawn(move || holds_of(&words, cause));
        }
    });
}

fn holds_of(words: &[&str], cause: &Cause) {
    let [wrong, right] = ["wrong", "right"].map(|form| [words, &[form]].concat());
    let name = words[words.len() - 1];
    let runs = ["--runs", HOLDS[usize::from(is_long())]];
    let (status, printed) = match cause {
        Cause::Provoked(by) => {
            at_last(by[0], || is_cut_down(&wrong, by));
            rehearse(&runs, &right)
        }
        Cause::As(adapter) => {
            let profile = ["--as", adapter.name];
            let (status, printed) = rehearse(&[&profile[..], &["--runs", "0"]].concat(), &wrong);
            let is_by_it = printed.complaints.contains("No provocation is needed.");
            assert!(status == Some(66) && is_by_it, "{name}: {printed:?}");
            rehearse(&[&profile[..], &runs].concat(), &right)
        }
    };
    assert_eq!(status, Some(0), "{name}: {printed:?}");
}

/// The wrong form fails, and the failure is cut down to places of one of these provocations.
fn is_cut_down(wrong: &[&str], by: &[Provocation]) -> Result<(), String> {
    let mut options = vec!["--runs", SEEDS, "--limit", LIMITS[usize::from(is_long())]];
    if !is_long() {
        options.extend(["--only", by[0].name()]);
    }
    let (status, printed) = rehearse(&options, wrong);
    let words = printed.complaints.split_whitespace();
    let places: Vec<_> = words.filter_map(|word| word.parse::<Place>().ok()).collect();
    // Some need more than one place, of the same provocation.
    let by_it = |it: &&Provocation| places.iter().all(|place| place.provocation == **it);
    if status == Some(66) && !places.is_empty() && by.iter().any(|it| by_it(&it)) {
        Ok(())
    } else {
        Err(format!("{wrong:?}: {printed:?}"))
    }
}

/// Rules: REH-10, REH-11, REH-40, REH-42, REH-90, REH-94
#[test]
fn bugs_of_moments_fail_within_two_hundred_runs() {
    holds("bugs");
}

/// Rules: REH-20, REH-21, REH-42
#[test]
fn bugs_of_fields_and_events_fail_within_two_hundred_runs() {
    holds("moments");
}

/// Rules: REH-10, REH-42
#[test]
fn bugs_of_memory_that_is_used_again_fail_within_two_hundred_runs() {
    holds("reuse");
}

/// Rules: REH-11, REH-21, REH-42
#[test]
fn bugs_of_sleepers_fail_within_two_hundred_runs() {
    holds("wakeups");
}

/// Rules: REH-10, REH-11, REH-31, REH-32, REH-40, REH-42, REH-93
#[test]
fn bugs_of_queues_fail_within_two_hundred_runs() {
    holds("queues");
}

/// Rules: REH-10, REH-11, REH-42, REH-85
#[test]
fn bugs_of_what_is_torn_down_fail_within_two_hundred_runs() {
    holds("teardown");
}

/// Rules: REH-16, REH-17, REH-30, REH-42
#[test]
fn bugs_of_connections_fail_within_two_hundred_runs() {
    holds("startup");
}

/// Rules: REH-29, REH-42
#[test]
fn bugs_of_several_hosts_fail_within_two_hundred_runs() {
    if let Some(hosts) = two_hosts() {
        holds_under(&hosts.before_a_program(), "hosts");
    }
}

/// Rules: REH-71, REH-42
#[test]
fn bugs_of_handshakes_fail_within_two_hundred_runs() {
    holds("handshakes");
}

/// Rules: REH-64, REH-42
#[test]
fn bugs_of_peers_that_are_gone_fail_within_two_hundred_runs() {
    holds("gone");
}

/// Rules: REH-50, REH-51, REH-52, REH-53
#[test]
fn bugs_of_limits_fail_as_an_adapter_that_has_less() {
    holds("limits");
}

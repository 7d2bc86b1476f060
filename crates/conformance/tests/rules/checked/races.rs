//! Conflicts of accesses through queue pairs, in `races.c`: what ThreadSanitizer reports of each is in the table of
//! `spec/races.md`.

use std::collections::BTreeMap;
use std::process::Command;

use transom_conformance::c_programs::compile;
use transom_conformance::documents::Document;
use transom_conformance::processes::Scratch;
use transom_conformance::programs::library;

/// In seconds.
const LIMIT: &str = "120";
/// Cases share their functions, so reports of one may look like reports of another.
const EACH: &str = "suppress_equal_stacks=0:suppress_equal_addresses=0:exitcode=0";

/// A row of the table.
struct Case {
    is_race: bool,
    is_reported: bool,
    /// Cases of the suite that it stands for.
    of_suite: usize,
}

/// The cases by their names.
fn table() -> BTreeMap<String, Case> {
    let rows = Document::read("spec/races.md").text;
    let rows = rows.lines().filter(|line| line.starts_with("| `"));
    let case = |row: &str| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let [_, name, race, found, suite, _] = cells[..] else { panic!("{row}") };
        let (is_race, is_reported) = match (race, found) {
            ("race", "found") => (true, true),
            ("race", "not found") => (true, false),
            ("none", "silent") => (false, false),
            _ => panic!("{row}"),
        };
        let numbers = suite.split([' ', ',', ';', '/']);
        let of_suite = numbers.filter(|word| word.parse::<u32>().is_ok()).count();
        (name.trim_matches('`').to_owned(), Case { is_race, is_reported, of_suite })
    };
    rows.map(case).collect()
}

/// Rules: CHK-82, CHK-83, CHK-87
#[test]
fn the_thread_sanitizer_finds_the_races_of_queue_pairs_that_the_table_has() {
    let scratch = Scratch::new("races");
    let binary =
        compile(&scratch, "races.c", "races", &["-fsanitize=thread", "-libverbs", "-lpthread"]);
    let mut command = Command::new("timeout");
    command.arg(LIMIT).arg(binary).env("TSAN_OPTIONS", EACH);
    command.env("LD_LIBRARY_PATH", library(env!("CARGO_TARGET_TMPDIR")));
    let ran = command.output().expect("coreutils are there");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{}: {said}", ran.status);
    let parts: Vec<_> = said.split("case ").filter(|it| !it.is_empty()).collect();
    let (end, parts) = parts.split_last().expect("it says which cases it runs");
    assert!(end.starts_with("end\n"), "{end}");
    let ran: BTreeMap<_, _> = parts.iter().filter_map(|part| part.split_once('\n')).collect();
    let table = table();
    assert!(ran.keys().copied().eq(table.keys().map(String::as_str)), "{:?}", ran.keys());
    for (name, said) in ran {
        let is_reported = said.contains("data race");
        assert_eq!(is_reported, table[name].is_reported, "{name}: {said}");
        assert!(is_reported || said.is_empty(), "{name}: {said}");
    }
}

/// The figures at the head are those of the table.
#[test]
fn the_table_of_races_counts_what_it_has() {
    let table = table();
    let of_suite = |cases: &dyn Fn(&&Case) -> bool| -> usize {
        table.values().filter(cases).map(|case| case.of_suite).sum()
    };
    let (races, found) = (of_suite(&|case| case.is_race), of_suite(&|case| case.is_reported));
    let none = of_suite(&|case| !case.is_race);
    let head = format!("Found: {found} of {races} races. False reports: 0 of {none}.");
    let text = Document::read("spec/races.md").text;
    assert!(text.contains(&head), "spec/races.md does not say: {head}");
    assert!(found * 100 >= races * 95, "{head}");
}

//! How many runs the wrong forms of the bugs' programs need until they fail: the median of rehearsals that begin with
//! different seeds. With `TRANSOM_BLESS=1` in the environment it is written into the table.

use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use transom_conformance::documents::{Document, root};
use transom_conformance::processes::{Scratch, is_long};
use transom_conformance::programs::{Running, command};
use transom_conformance::spaces::{VethPair, two_hosts};
use transom_rehearse::{Plan, Provocation, Sort};
use transom_system::rehearsal::{PLAN, provoked};

use super::bugs::{Cause, TABLE, compiled, programs, read};

/// How many rehearsals are measured.
const STARTS: u64 = 9;
/// How many runs each of them has at most.
const MOST: u64 = 200;
/// How long one run may take.
const LIMIT: Duration = Duration::from_secs(5);

/// In the long mode only.
///
/// Rule: REH-42
#[test]
fn most_rehearsals_of_a_bug_fail_within_two_hundred_runs() {
    if !is_long() {
        return;
    }
    let scratch = Scratch::new("rehearsed-medians");
    let mut table = Document::read(TABLE).text;
    for ((file, name), cause) in programs() {
        if !matches!(cause, Cause::Provoked(_)) {
            continue;
        }
        let binary = compiled(&scratch, &file);
        let binary = binary.to_str().expect("a path in UTF-8");
        let hosts = if file == "hosts" { two_hosts() } else { None };
        if file == "hosts" && hosts.is_none() {
            println!("skipped: {file} {name}, for want of two hosts");
            continue;
        }
        let words = hosts.as_ref().map(VethPair::before_a_program).unwrap_or_default();
        let program: Vec<_> =
            words.iter().map(|it| &**it).chain([binary, &name, "wrong"]).collect();
        let median = median(&scratch.path().join(format!("{file}-{name}")), &program);
        println!("{file} {name}: {median}");
        assert!(median <= MOST, "{file} {name}");
        table = with_median(&table, &(file, name), median);
    }
    if env::var_os("TRANSOM_BLESS").is_some_and(|value| value == "1") {
        fs::write(root().join(TABLE), table).expect("the table can be written");
    }
}

/// The table with a median in the rows of a program.
fn with_median(table: &str, program: &(String, String), median: u64) -> String {
    let line = |line: &str| match read(line) {
        Some((its, _)) if its == *program => {
            let mut cells: Vec<_> = line.split('|').map(str::to_owned).collect();
            let last = cells.len() - 2;
            cells[last] = format!(" {median} ");
            cells.join("|")
        }
        _ => line.to_owned(),
    };
    table.lines().map(|it| line(it) + "\n").collect()
}

/// The median for a program. The folder is its own.
fn median(folder: &Path, program: &[&str]) -> u64 {
    fs::create_dir_all(folder).expect("a folder");
    let needed = |start| {
        let seeds = start * MOST + 1..=(start + 1) * MOST;
        seeds.take_while(|seed| !fails(folder, program, *seed)).count() as u64 + 1
    };
    let mut all: Vec<_> = (0..STARTS).map(needed).collect();
    all.sort_unstable();
    all[all.len() / 2]
}

/// Whether the program fails with a seed, as `transom rehearse` judges. But nothing is checked: that takes long.
fn fails(folder: &Path, program: &[&str], seed: u64) -> bool {
    let files = || fs::read_dir(folder).expect("the folder").map(|it| it.expect("a file").path());
    files().for_each(|file| fs::remove_file(file).expect("it is a file"));
    let kinds = Provocation::ALL.iter().copied().collect();
    let plan = Plan { seed, kinds, ..Plan::quiet() };
    fs::write(folder.join(PLAN), plan.to_string()).expect("a file");
    let [transom, ..] = command();
    let libraries = transom.parent().expect("a folder").to_owned();
    let mut run = Command::new(transom);
    run.args(["run", "--"]).args(program);
    run.env("TRANSOM_LIB", libraries).env("TRANSOM_REHEARSE", folder);
    let Ok((status, _)) = Running::start(&mut run).end(LIMIT) else { return true };
    let records = provoked::of_run(folder).expect("records");
    let mut places = records.iter().flat_map(|it| &it.places);
    // After a call was made to fail, any exit status is right.
    let may_end = places.any(|place| place.provocation.sort() == Sort::Failure);
    match status.code() {
        Some(0) => false,
        None => true,
        Some(_) => !may_end,
    }
}

//! The probes of the library, as programs see them that know nothing of Transom: readelf and gdb.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use transom_conformance::c_programs::compile;
use transom_conformance::documents::root;
use transom_conformance::processes::Scratch;
use transom_conformance::programs::{Printed, Running, command, library, program};
use transom_conformance::timeline::read;

/// How long a program may take: gdb reads all of the library's debug information.
const LIMIT: Duration = Duration::from_secs(120);

/// The probes that `tests/c/probed.c` says something of, and how it prints their arguments.
const PRINTED: [(&str, &str); 9] = [
    ("post", "%#x %lu %ld %lu %#x %#x %#lx"),
    ("completion", "%#x %lu %ld %ld %lu %#x"),
    ("receive", "%#x %lu %ld %ld %lu %#x"),
    ("refusal", "%#x %s %#x %#lx %lu %#x"),
    ("register", "%#x %#lx %lu %#x"),
    ("bind", "%#x %#lx %lu %#x %#x"),
    ("revoke", "%#x"),
    ("retransmission", "%#x %s %lu %#x"),
    ("connection", "%#x %ld %#x"),
];

fn readelf(option: &str) -> String {
    let file = Path::new(library(env!("CARGO_TARGET_TMPDIR"))).join("libibverbs.so.1");
    let mut readelf = Command::new(program("readelf", "binutils"));
    Running::start(readelf.args([option, "-W"]).arg(file)).success(LIMIT).unwrap().output
}

/// The probes in docs/see.md, with the number of their arguments.
fn documented() -> BTreeMap<String, usize> {
    let page = std::fs::read_to_string(root().join("docs/see.md")).unwrap();
    let (_, probes) = page.split_once("\n## Probes\n").expect("the section");
    let rows = probes.lines().skip_while(|line| !line.starts_with("| `"));
    let rows = rows.take_while(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        (cells[1].trim_matches('`').to_owned(), cells[3].split(", ").count())
    })
    .collect()
}

/// Rule: SEE-60
#[test]
fn the_notes_of_the_library_name_each_probe_and_its_arguments() {
    let notes = readelf("-n");
    let mut found = BTreeMap::new();
    let mut semaphores = BTreeSet::new();
    for probe in notes.split("Provider: transom\n").skip(1) {
        let of = |name: &str| {
            let (_, rest) = probe.split_once(name).unwrap_or_else(|| panic!("{name}: {probe}"));
            rest.lines().next().unwrap_or_default().trim().to_owned()
        };
        found.insert(of("Name: "), of("Arguments: ").split_whitespace().count());
        semaphores.insert(of("Semaphore: "));
    }
    assert_eq!(found, documented());
    assert!(PRINTED.iter().all(|(name, format)| found[*name] == format.matches('%').count()));
    // What is looked at while nobody is attached.
    assert_eq!(semaphores.len(), 1, "{notes}");
    assert_ne!(semaphores.first().map(|it| u64::from_str_radix(&it[2..], 16)), Some(Ok(0)));
}

/// perf takes the address of a probe for its place in the file, and would write into the midst of other code.
///
/// Rule: SEE-60
#[test]
fn the_addresses_of_the_library_are_its_places_in_the_file() {
    let segments = readelf("-l");
    let loaded: Vec<_> = segments.lines().filter(|line| line.trim().starts_with("LOAD")).collect();
    assert!(loaded.len() > 1, "{segments}");
    for line in loaded {
        let [offset, address] = [1, 2].map(|word| {
            let word = line.split_whitespace().nth(word).unwrap().trim_start_matches("0x");
            u64::from_str_radix(word, 16).unwrap()
        });
        assert_eq!(offset, address, "{line}");
    }
}

/// The commands for gdb: it prints a line at each probe, and goes on.
fn commands(libraries: &Path) -> Vec<String> {
    let mut commands = vec![
        format!("set environment LD_LIBRARY_PATH {}", libraries.display()),
        "set startup-with-shell off".to_owned(),
        "set language c".to_owned(),
        "break main".to_owned(),
        "run".to_owned(),
    ];
    for (name, format) in PRINTED {
        let kinds = format.split(' ').enumerate();
        let arguments = kinds.map(|(index, kind)| match kind {
            "%s" => format!(", (char *)$_probe_arg{index}"),
            _ => format!(", $_probe_arg{index}"),
        });
        let arguments: String = arguments.collect();
        commands.push(format!("break -probe-stap transom:{name}"));
        commands.push(format!(
            "commands\nsilent\nprintf \"probe: {name} {format}\\n\"{arguments}\ncontinue\nend"
        ));
    }
    commands.push("continue".to_owned());
    commands
}

/// Runs the program under gdb, which `run` may have begin another way. What the probes tell is what the program does.
fn debugged(scratch: &Scratch, run: impl FnOnce(&mut Command) -> Printed) {
    let binary = compile(scratch, "probed.c", "probed", &["-libverbs"]);
    let script = scratch.path().join("commands");
    let commands = commands(Path::new(library(env!("CARGO_TARGET_TMPDIR"))));
    std::fs::write(&script, commands.join("\n")).unwrap();
    let mut gdb = Command::new(program("gdb", "gdb"));
    gdb.args(["-nx", "-nh", "-batch", "-x"]).arg(script).arg(binary);
    let Printed { output, complaints } = run(&mut gdb);
    let seen = output.lines().filter_map(|line| line.strip_prefix("probe: "));
    let is_of_a_probe =
        |line: &&str| PRINTED.iter().any(|(it, _)| line.split(' ').next() == Some(it));
    let done = output.lines().filter(is_of_a_probe);
    let [seen, done] = [seen.collect(), done.collect()].map(|mut lines: Vec<_>| {
        // It is sent again several times, and is in RESET before it ends.
        lines.dedup();
        lines
    });
    assert_eq!(seen, done, "{output}\n{complaints}");
    let all: BTreeSet<_> = seen.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(all.len(), PRINTED.len(), "{output}");
}

/// Rules: SEE-60, SEE-61
#[test]
fn a_debugger_that_is_attached_sees_what_the_program_does() {
    debugged(&Scratch::new("probed"), |gdb| Running::start(gdb).success(LIMIT).unwrap());
}

/// Rules: SEE-61
#[test]
fn a_debugger_sees_the_same_while_events_are_recorded() {
    let scratch = Scratch::new("recorded");
    let file = scratch.path().join("probed.pftrace");
    debugged(&scratch, |gdb| {
        let [transom, ..] = command();
        let mut trace = Command::new(transom);
        trace.env("TRANSOM_LIB", transom.parent().expect("a folder"));
        trace.args(["trace", "--output"]).arg(&file).arg("--");
        Running::start(trace.arg(gdb.get_program()).args(gdb.get_args())).success(LIMIT).unwrap()
    });
    let all = read(&std::fs::read(file).expect("it is written"));
    let receives = all.iter().filter(|it| it.name == "receive completed");
    assert_eq!(receives.count(), 1, "{all:#?}");
}

//! The probes of the library, as programs see them that know nothing of Transom: readelf and gdb.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use transom_conformance::c_programs::compile;
use transom_conformance::documents::root;
use transom_conformance::harness::until;
use transom_conformance::processes::{Scratch, is_long};
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

/// A copy of the libraries, so that nobody is attached to the probes of other tests.
struct Apart {
    scratch: Scratch,
    program: PathBuf,
}

impl Apart {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let program = compile(&scratch, "probed.c", "program", &["-libverbs"]);
        let built = Path::new(library(env!("CARGO_TARGET_TMPDIR")));
        for file in std::fs::read_dir(built).expect("the libraries") {
            let file = file.expect("a library").path();
            std::fs::copy(&file, scratch.path().join(file.file_name().unwrap())).expect("room");
        }
        Self { scratch, program }
    }

    /// A shell that runs lines of the page here, as if what they name were installed.
    fn shell(&self, lines: &str) -> Command {
        let here = self.scratch.path();
        let library = here.join("libibverbs.so.1");
        let lines = lines.replace("/usr/lib/transom/libibverbs.so.1", library.to_str().unwrap());
        let [transom, ..] = command();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("sh");
        shell.args(["-ec", &lines]).current_dir(here).env("TRANSOM_LIB", here);
        shell.env("PATH", format!("{}:{path}", transom.parent().unwrap().display()));
        // What perf knows of files is kept here, too.
        shell.env("HOME", here).env("PERF_BUILDID_DIR", here.join("debug"));
        shell
    }

    /// Runs the program. Returns the probes that it tells of.
    fn run(&self) -> Vec<String> {
        let mut program = Command::new(&self.program);
        program.env("LD_LIBRARY_PATH", self.scratch.path());
        let printed = Running::start(&mut program).success(LIMIT).unwrap();
        printed.output.lines().map(str::to_owned).collect()
    }
}

/// The commands of docs/see.md that begin so, as they stand there.
fn on_the_page(begins: &str) -> Vec<String> {
    let page = std::fs::read_to_string(root().join("docs/see.md")).unwrap();
    let (_, probes) = page.split_once("\n## Probes\n").expect("the section");
    let (probes, _) = probes.split_once("\n## ").expect("another section");
    let blocks = probes.split("\n```sh\n").skip(1).map(|rest| rest.split("\n```").next().unwrap());
    let mut commands: Vec<String> = Vec::new();
    for line in blocks.flat_map(str::lines) {
        match line.starts_with(' ') {
            true => commands.last_mut().expect("it goes on").extend(["\n", line]),
            false => commands.push(line.to_owned()),
        }
    }
    commands.into_iter().filter(|it| it.starts_with(begins)).collect()
}

/// Whether the tools of the page are there, and this kernel and this user may use them.
fn may_attach() -> bool {
    if !is_long() {
        println!("skipped: not a long run");
        return false;
    }
    let [bpftrace, _] = [("bpftrace", "bpftrace"), ("perf", "linux-perf")]
        .map(|(name, package)| program(name, package));
    let tried = Command::new(bpftrace).args(["-e", "BEGIN { exit(); }"]).output();
    let may = tried.is_ok_and(|it| it.status.success());
    if !may {
        println!("skipped: bpftrace may not attach to anything here");
    }
    may
}

/// Runs a command line of bpftrace around the program. Returns what it prints, and how often the program ran: before all
/// was attached, and after that.
fn traced(apart: &Apart, command: &str) -> (String, usize, usize) {
    // The first and the last probe to which it attaches say so.
    let says = |probe: &str| format!(r#"usdt:$lib:transom:{probe} {{ printf(\"{probe}\\n\"); }}"#);
    let command = command.strip_prefix("bpftrace -e \"").and_then(|it| it.strip_suffix('"'));
    let command = command.expect("a program in quotes");
    let (first, last) = (says("register"), says("connection"));
    let lines = on_the_page("lib=").join("\n");
    let lines = format!("{lines}\nexec bpftrace -B none -e \"{first} {command} {last}\"");
    let mut bpftrace = Running::start(&mut apart.shell(&lines));
    let (mut said, mut before) = (Vec::new(), 0);
    let is_attached = |said: &[String]| {
        ["register", "connection"].iter().all(|it| said.iter().any(|line| line == it))
    };
    said.push(bpftrace.line(LIMIT).expect("how many probes there are"));
    until("bpftrace to be attached", || {
        apart.run();
        before += 1;
        while bpftrace.has_spoken() {
            said.push(bpftrace.line(LIMIT).expect("a line"));
        }
        is_attached(&said).then_some(())
    });
    let after = 3;
    (0..after).for_each(|_| drop(apart.run()));
    bpftrace.signal(libc::SIGINT);
    let printed = bpftrace.success(LIMIT).unwrap();
    let lines: Vec<_> = said.iter().map(String::as_str).chain(printed.output.lines()).collect();
    (lines.join("\n"), before, after)
}

/// Rules: SEE-60, SEE-61
#[test]
fn bpftrace_sees_by_the_commands_of_the_page_what_a_program_does() {
    if !may_attach() {
        return;
    }
    let apart = Apart::new("bpftraced");
    let told = apart.run();
    let [times, refusals, again] = &on_the_page("bpftrace ")[..] else { panic!("three commands") };

    let (printed, before, after) = traced(&apart, times);
    // A histogram for each operation that completes, with as many requests as there were.
    for (opcode, operation) in [(0, "SEND"), (1, "WRITE"), (5, "bind"), (6, "LOCAL_INV")] {
        let name = format!("@ns[{opcode}]:");
        let (_, rest) = printed.split_once(&name).unwrap_or_else(|| panic!("{name}: {printed}"));
        let rows = rest.lines().skip(1).take_while(|line| line.starts_with('['));
        let counts =
            rows.map(|row| row.split_whitespace().rev().find_map(|word| word.parse().ok()));
        let count: usize = counts.map(|count: Option<usize>| count.unwrap_or_default()).sum();
        let is_one = |line: &&String| {
            let words: Vec<_> = line.split(' ').collect();
            words[0] == "completion" && words[3] == opcode.to_string()
        };
        let each = told.iter().filter(is_one).count();
        let expected = after * each..=(before + after) * each;
        assert!(each > 0 && expected.contains(&count), "{operation}: {count} of {expected:?}");
    }

    let (printed, before, after) = traced(&apart, refusals);
    let refused = printed.lines().filter(|line| line.starts_with("program: RA-26, key 0x"));
    let refused = refused.count();
    assert!((after..=before + after).contains(&refused), "{printed}");

    let (printed, ..) = traced(&apart, again);
    // A line for each thread: the program's, or one of the device's.
    let counts = printed.lines().filter(|line| line.starts_with("@["));
    let counts = counts.filter_map(|line| line.split_once(", timeout]: "));
    let count: usize = counts.map(|(_, count)| count.parse::<usize>().expect("a number")).sum();
    assert!(count >= 3, "{printed}");
}

/// Rules: SEE-60, SEE-61
#[test]
fn perf_sees_by_the_commands_of_the_page_what_a_program_does() {
    if !may_attach() {
        return;
    }
    let apart = Apart::new("perfed");
    let told = apart.run();
    let lines = on_the_page("perf ");
    let [add, define, record, trace] = &lines[..] else { panic!("four commands: {lines:?}") };
    // The kernel keeps them until they are removed.
    let remove = || {
        let mut perf = Command::new(program("perf", "linux-perf"));
        perf.args(["probe", "--quiet", "--del", "sdt_transom:*"]).output().expect("perf")
    };
    struct Removed<F: Fn() -> std::process::Output>(F);
    impl<F: Fn() -> std::process::Output> Drop for Removed<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    remove();
    let _removed = Removed(remove);
    // Into a pipe perf would write what is for another perf.
    let output = apart.scratch.path().join("printed");
    let run = |lines: &[&str]| {
        let lines = format!("exec >{}\n{}", output.display(), lines.join("\n"));
        let printed = Running::start(&mut apart.shell(&lines)).success(LIMIT);
        let printed = printed.unwrap_or_else(|problem| panic!("{problem}"));
        (std::fs::read_to_string(&output).expect("text"), printed.complaints)
    };
    run(&[&on_the_page("lib=")[0], add, define]);
    let (recorded, _) = run(&[record]);
    let (_, printed) = run(&[trace]);
    for probe in ["post", "completion"] {
        let each = told.iter().filter(|line| line.split(' ').next() == Some(probe)).count();
        let name = format!("sdt_transom:{probe}");
        for seen in [&recorded, &printed] {
            let count = seen.lines().filter(|line| line.contains(&name)).count();
            assert_eq!(count, each, "{probe} in {seen}");
        }
    }
}

//! System calls and instructions, step by step, beside the record.

use std::ffi::c_long;
use std::path::Path;
use std::{env, fs};

use object::{Object, ObjectSection};
use transom_conformance::harness::{Link, until};
use transom_conformance::path_of;
use transom_conformance::processes::*;
use transom_system::Watched;
use transom_system::registry::Registry;
use transom_system::tools::{self, Tool};

use crate::record::{Table, are_about_equal};
use crate::trace::{Tracee, mark};
use crate::workloads::{Stage, WARM_UP, WORKLOADS};

/// Between whom, and where registered memory lies.
const WAYS: [(&str, Link, &str); 4] = [
    ("loopback, private", Link::Loopback, "private"),
    ("loopback, shared", Link::Loopback, "shared"),
    ("local, private", Link::Local, "private"),
    ("local, shared", Link::Local, "shared"),
];

/// What somebody wants to know of the process, and on which of [`WAYS`] that is counted too: without system calls, which
/// would hide what it costs. It takes twice as long as the rest, so only the release build is counted.
const WATCHED: [(&str, &[Tool], usize); 6] = [
    ("events, loopback", &[Tool::Events], 1),
    ("events, local", &[Tool::Events], 3),
    ("times, loopback", &[Tool::Latencies], 1),
    ("times, local", &[Tool::Latencies], 3),
    ("both, loopback", &[Tool::Events, Tool::Latencies], 1),
    ("both, local", &[Tool::Events, Tool::Latencies], 3),
];

/// Nothing of [`WATCHED`].
const NOBODY: u64 = u64::MAX;

/// How often an operation is carried out while other threads are held, before it is counted: what they
/// were about to do is done then.
const SETTLING: usize = 10;

/// How often the system calls of an operation are counted. The fewest are taken: now and then there is
/// something to be done for many.
const ROUNDS: usize = 3;

/// What an operation costs: its steps' system calls and instructions.
type Costs = Vec<(Vec<c_long>, u64)>;

/// What the traced processes run; on its own it does nothing.
#[test]
fn role() {
    play(&[("carries_out", carries_out), ("knows", knows)]);
}

/// Carries out each operation, with a mark before and after each step once it is warm.
fn carries_out(channel: &mut Channel) {
    let [way, watched] = channel.hear();
    let stage = Stage::new(WAYS[way as usize].1);
    if watched != NOBODY {
        watch(WATCHED[watched as usize].1);
    }
    begin(channel, stage.is_shared());
    for workload in WORKLOADS {
        for round in 0..WARM_UP + SETTLING + ROUNDS + 1 {
            if round == WARM_UP + 1 {
                // The threads that might allow it again are held by now.
                stage.end_watching();
            }
            for step in workload.steps {
                if round < WARM_UP {
                    (step.run)(&stage);
                } else {
                    mark();
                    (step.run)(&stage);
                    mark();
                }
            }
        }
    }
    let [] = channel.hear();
}

/// Turns tools on for good. Whoever asks for them has to ask again and again, and here the thread that listens is held.
fn watch(wanted: &[Tool]) {
    let registry = Registry::open().expect("a registry");
    let all = registry.processes().into_iter();
    for process in all.filter(|it| it.alive && it.pid == std::process::id()) {
        let tools: &'static [Tool] = &[Tool::Events, Tool::Latencies];
        let watched = Watched::new(registry, &process, tools).expect("it is here");
        until("memory for what is recorded", || {
            (watched.turn().is_on() && watched.segment().latencies().is_some()).then_some(())
        });
    }
    wanted.iter().for_each(|tool| tools::turn_on(*tool));
    until("nobody else to want anything", || {
        let others = [Tool::Events, Tool::Latencies].into_iter().filter(|it| !wanted.contains(it));
        (!others.into_iter().any(tools::is_on)).then_some(())
    });
}

/// Three system calls, and later 300 instructions or a few more.
fn knows(channel: &mut Channel) {
    let [_, _] = channel.hear();
    begin(channel, false);
    mark();
    for _ in 0..3 {
        // SAFETY: takes nothing and cannot fail.
        unsafe { libc::getppid() };
    }
    mark();
    mark();
    // SAFETY: it changes nothing but the register that it says.
    unsafe { std::arch::asm!("2: dec {0}", "nop", "jnz 2b", inout(reg) 100_u64 => _) };
    mark();
    let [] = channel.hear();
}

/// The process is there, and waits until it is traced.
fn begin(channel: &mut Channel, is_shared: bool) {
    // SAFETY: takes a plain number. A wait for a thread that is held would never end.
    unsafe { libc::alarm(120) };
    channel.tell(&[is_shared.into()]);
    let [] = channel.hear();
}

/// A process in this role that this thread traces, and which begins; none, and why, if the system does not let
/// it.
fn traced(role: &str, way: usize, watched: u64) -> Option<(Child, Tracee)> {
    let memory = WAYS[way].2;
    let mut child = Child::start_under(role, &["env", &format!("TRANSOM_MEMORY={memory}")]);
    child.tell(&[way as u64, watched]);
    let [is_shared] = child.hear();
    match Tracee::begin(child.pid()) {
        Ok(tracee) => {
            let wanted = memory == "shared";
            assert_eq!(is_shared == 1, wanted, "memory is shared if that is asked for");
            child.tell(&[]);
            Some((child, tracee))
        }
        Err(error) => {
            eprintln!("skipped: a process may not trace its children here: {error}");
            None
        }
    }
}

#[test]
fn what_is_counted_is_what_is_done() {
    let Some((mut child, mut tracee)) = traced(path_of!("knows"), 0, NOBODY) else { return };
    let thread = tracee.run_to_mark();
    tracee.hold_all_but(thread);
    assert_eq!(tracee.system_calls(thread), [libc::SYS_getppid; 3]);
    tracee.system_calls(thread);
    let counted = tracee.instructions(thread);
    assert!((300..350).contains(&counted), "{counted}");
    tracee.end();
    child.tell(&[]);
    child.finish();
}

/// No system call more or fewer than recorded, and about as many instructions.
#[test]
fn operations_cost_what_is_recorded() {
    let mut ways = Vec::new();
    for (way, (name, ..)) in WAYS.into_iter().enumerate() {
        match costs(way, NOBODY) {
            Some(costs) => ways.push((name, costs)),
            None => println!("not counted: {name}"),
        }
    }
    let mut watched = Vec::new();
    let counted = if cfg!(debug_assertions) { 0 } else { WATCHED.len() };
    for (index, (name, _, way)) in WATCHED.into_iter().enumerate().take(counted) {
        match costs(way, index as u64) {
            Some(costs) => watched.push((name, costs)),
            None => println!("not counted: {name}"),
        }
    }
    let number = |(_, instructions): &(Vec<c_long>, u64)| instructions.to_string();
    let build = build();
    let calls = table("System calls".into(), &ways, |(calls, _)| names(calls));
    let instructions = table(format!("Instructions, {build}"), &ways, number);
    let watched = table(format!("Instructions while somebody watches, {build}"), &watched, number);
    compare(&calls, &instructions, (counted > 0).then_some(&watched));
}

/// A table of what was counted, with a column for each name.
fn table(
    title: String,
    counted: &[(&str, Costs)],
    cell: impl Fn(&(Vec<c_long>, u64)) -> String,
) -> Table {
    let columns = counted.iter().map(|(name, _)| (*name).to_owned()).collect();
    let steps = WORKLOADS.iter().flat_map(|it| it.steps.iter().map(|step| (it.name, step.name)));
    let rows = steps.enumerate().map(|(row, (operation, step))| {
        let cells = counted.iter().map(|(_, costs)| cell(&costs[row]));
        [operation.to_owned(), step.to_owned()].into_iter().chain(cells).collect()
    });
    Table { title, columns, rows: rows.collect() }
}

/// Compares with what is written down, or writes it. Of those that are watched there may be none.
fn compare(calls: &Table, instructions: &Table, watched: Option<&Table>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/costs.md");
    let written = || fs::read_to_string(&path).unwrap_or_default();
    if env::var_os("TRANSOM_BLESS").is_some_and(|value| value == "1") {
        let text = match watched {
            Some(watched) => format!("{ABOUT_WATCHED}\n{watched}"),
            None => {
                written().find(ABOUT_WATCHED).map_or_else(String::new, |at| written()[at..].into())
            }
        };
        let other = Table::find(&written(), &other_build(&instructions.title));
        let other = if other.rows.is_empty() { String::new() } else { format!("\n{other}") };
        fs::write(&path, format!("{HEAD}\n{calls}\n{instructions}{other}{text}"))
            .expect("a file of this project");
    }
    let written = written();
    let recorded = Table::find(&written, &calls.title);
    let mut differences = recorded.differences(calls, |was, is| was == is);
    for table in [Some(instructions), watched].into_iter().flatten() {
        let recorded = Table::find(&written, &table.title);
        if recorded.rows.is_empty() {
            // They are of another compiler, or optimized otherwise.
            println!("{table}not compared: the record has no such build");
        } else {
            differences.extend(recorded.differences(table, are_about_equal));
        }
    }
    assert!(
        differences.is_empty(),
        "operations do not cost what spec/costs.md says. If they shall, write it anew: \
         TRANSOM_BLESS=1 cargo test -p transom-conformance --test costs\n{}",
        differences.join("\n")
    );
}

const HEAD: &str = "\
# What operations cost

The system calls and instructions of each step of an operation. One thread drives both devices, and the tables count
what this thread does. Instructions of libraries are left out, because libraries choose them by the processor.

A test writes this page. It fails if a system call comes or goes, or if the number of instructions changes by more than
5 %:

```sh
TRANSOM_BLESS=1 cargo test -p transom-conformance --test costs
TRANSOM_BLESS=1 cargo test -p transom-conformance --test costs --release
```

`./test` compares the debug build. `./test --long` compares the release build, which programs get. With
`CARGO_INCREMENTAL=1` the debug build has other instructions, and the comparison fails.
";

/// Above the tables of a process that is watched.
const ABOUT_WATCHED: &str = "
The following is what a process pays while `transom trace` has it record its events, or `transom metrics` the times of its
requests, with shared memory. `transom top` has it do both. With `--anomalies` the events are those of `transom trace`:
who looks for anomalies reads what a process writes anyway, and has it do nothing more. While nobody does, it pays what is
above. While a tool is on, a SEND takes the longer way of messages. Not counted is what `transom check` and `transom
exposure` cost, which do work of their own at each call, and what a probe costs with somebody attached, which is in the
kernel.
";

/// The title of the same compiler's other build.
fn other_build(title: &str) -> String {
    let (debug, release) = ("debug build", "release build");
    let (ours, other) = if title.contains(debug) { (debug, release) } else { (release, debug) };
    title.replace(ours, other)
}

/// What each step of each operation costs on one of [`WAYS`]; none if it cannot be told here.
fn costs(way: usize, watched: u64) -> Option<Costs> {
    let (mut child, mut tracee) = traced(path_of!("carries_out"), way, watched)?;
    let mut costs = Vec::new();
    for (index, workload) in WORKLOADS.iter().enumerate() {
        if index > 0 {
            tracee.release();
        }
        let thread = tracee.run_to_mark();
        tracee.hold_all_but(thread);
        let mut counted: Costs = vec![(Vec::new(), u64::MAX); workload.steps.len()];
        for round in 0..SETTLING + ROUNDS + 1 {
            for (index, (calls, instructions)) in counted.iter_mut().enumerate() {
                if (round, index) != (0, 0) {
                    // From the end of a step to the beginning of the next.
                    tracee.system_calls(thread);
                }
                if round < SETTLING + ROUNDS {
                    let made = tracee.system_calls(thread);
                    if round == SETTLING || (round > SETTLING && made.len() < calls.len()) {
                        *calls = made;
                    }
                } else {
                    *instructions = tracee.instructions(thread);
                }
            }
        }
        costs.extend(counted);
    }
    tracee.end();
    child.tell(&[]);
    child.finish();
    Some(costs)
}

/// System calls as people write them.
fn names(calls: &[c_long]) -> String {
    // Where the clock is read without one, there is none.
    let calls = calls.iter().filter(|call| **call != libc::SYS_clock_gettime);
    let names: Vec<String> = calls
        .map(|call| match *call {
            libc::SYS_process_vm_readv => "process_vm_readv".into(),
            libc::SYS_process_vm_writev => "process_vm_writev".into(),
            libc::SYS_prctl => "prctl".into(),
            libc::SYS_set_tid_address => "set_tid_address".into(),
            libc::SYS_write => "write".into(),
            libc::SYS_read => "read".into(),
            libc::SYS_futex => "futex".into(),
            libc::SYS_fcntl => "fcntl".into(),
            libc::SYS_sched_yield => "sched_yield".into(),
            number => format!("number {number}"),
        })
        .collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

/// How this program was built: optimized or not, and by which compiler.
fn build() -> String {
    let program = fs::read(this_program()).expect("a program can be read");
    let program = object::File::parse(&*program).expect("a program is an ELF file");
    let comment = program.section_by_name(".comment").and_then(|it| it.data().ok());
    let comments = String::from_utf8_lossy(comment.unwrap_or_default()).into_owned();
    let compiler = comments.split('\0').find(|comment| comment.starts_with("rustc version "));
    let version = compiler.and_then(|it| it.split_whitespace().nth(2)).unwrap_or("of no version");
    let kind = if cfg!(debug_assertions) { "debug build" } else { "release build" };
    format!("{kind}, rustc {version}")
}

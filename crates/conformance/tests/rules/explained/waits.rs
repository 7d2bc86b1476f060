//! A program that waits for ever is told why: by `transom explain` while it runs, and at its end by `transom run --explain`
//! and `transom check`.

use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::Value;
use transom_conformance::c_programs::compile;
use transom_conformance::processes::Scratch;
use transom_conformance::programs::{Running, command};

/// How long a command may take to begin, and to end.
const LIMIT: Duration = Duration::from_secs(60);

static SCRATCH: LazyLock<Scratch> = LazyLock::new(|| Scratch::new("waits"));
static PROGRAM: LazyLock<String> = LazyLock::new(|| {
    compile(&SCRATCH, "waits.c", "waits", &["-libverbs"]).to_str().expect("UTF-8").to_owned()
});

/// What each program waits for, and what is said of it.
const WAITS: [(&str, &[&str]); 5] = [
    (
        "unsignaled",
        &[
            "The last request of QP",
            "It has no completion, for it was not posted with IBV_SEND_SIGNALED",
        ],
    ),
    (
        "no-receive",
        &["1 request of QP", "the peer has no receive posted, and has asked", "rnr_retry is 7"],
    ),
    (
        "other-queue",
        &["1 completion waits in the send_cq of QP", "The program polls the recv_cq of QP"],
    ),
    ("no-channel", &["1 completion waits in the send_cq of QP", "has no completion channel"]),
    ("not-ready", &["no answer has come. The peer's queue pair is in INIT", "timeout is 0"]),
];

/// Runs the program by a command of ours. Returns it, and the program's PID.
fn start(by: &[&str], why: &str) -> (Running, String) {
    let [transom, ..] = command();
    let mut line = Command::new(transom);
    line.args(by).args(["--", &PROGRAM, why]).env_remove("GITHUB_ACTIONS");
    let mut running = Running::start(line.env("TRANSOM_LIB", transom.parent().expect("a folder")));
    let told = running.line(LIMIT).expect("it waits");
    let pid = told.split(' ').next().expect("its PID").to_owned();
    (running, pid)
}

/// What `transom explain` says of a process, on one line.
fn explained(pid: &str) -> String {
    let told = Command::new(&command()[0]).args(["explain", "--pid", pid]).output();
    let told = told.expect("the command was built");
    let said = String::from_utf8_lossy(&told.stdout) + String::from_utf8_lossy(&told.stderr);
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What it says of that for programs.
fn lines(pid: &str) -> Vec<Value> {
    let told = Command::new(&command()[0]).args(["explain", "--json", "--pid", pid]).output();
    let told = String::from_utf8(told.expect("the command was built").stdout).expect("UTF-8");
    told.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Ends a program by a signal. Returns what was said then, on one line.
fn end(mut running: Running, signal: i32) -> String {
    running.signal(signal);
    let (_, printed) = running.end(LIMIT).expect("it ends");
    printed.complaints.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn has_all(said: &str, parts: &[&str]) -> bool {
    parts.iter().all(|part| said.contains(part))
}

/// Rule: EX-07
#[test]
fn a_process_that_waits_for_ever_is_told_why_while_it_waits() {
    for (why, parts) in WAITS {
        let (running, pid) = start(&["run"], why);
        let said = explained(&pid);
        assert!(has_all(&said, parts), "{why}: {said}");
        assert!(said.contains(&format!("waits, PID {pid}: ")), "{said}");

        let reason = match why {
            "unsignaled" => "no_completion",
            "other-queue" | "no-channel" => "not_polled",
            _ => "not_ended",
        };
        let lines = lines(&pid);
        let [line] = lines.iter().filter(|it| it["reason"] == reason).collect::<Vec<_>>()[..]
        else {
            panic!("{why}: {lines:?}")
        };
        let sentence = line["sentence"].as_str().expect("a sentence");
        assert!(has_all(sentence, parts), "{line}");
        assert_eq!((&line["role"], line["pid"].to_string()), (&"waiter".into(), pid));
        assert_eq!(line["device_state"], "open", "{line}");
        let qp = line["qp"].as_u64().expect("a queue pair");
        assert!(sentence.contains(&format!("QP {qp:#x}")), "{line}");
        let [since, seen] = ["since_ns", "time_ns"].map(|key| {
            line[key].as_str().and_then(|time| time.parse::<u64>().ok()).expect("a time")
        });
        assert!((900_000_000..60_000_000_000).contains(&(seen - since)), "{line}");
        end(running, libc::SIGTERM);
    }
}

/// Rule: EX-07
#[test]
fn of_a_process_whose_requests_move_nothing_is_told() {
    let (running, pid) = start(&["run"], "moves");
    let said = explained(&pid);
    // A process that has ended may have had the same PID.
    let (of_it, of_others): (Vec<_>, Vec<_>) =
        lines(&pid).into_iter().partition(|it| it["device_state"] == "open");
    assert_eq!(of_it, [Value::Null; 0]);
    let says_so = said.contains("No refusals of process") || !of_others.is_empty();
    assert!(!said.contains("waits, PID") && says_so, "{said}");
    end(running, libc::SIGTERM);
}

/// It must be seen twice before it ends, a second apart.
/// Rule: EX-07
#[test]
fn a_program_that_is_ended_while_it_waits_is_told_why() {
    for by in [&["run", "--explain"][..], &["check"]] {
        let (why, parts) = WAITS[1];
        let told = (1..=4).any(|patience| {
            let (running, pid) = start(by, why);
            // Each takes a second.
            (0..3 * patience).for_each(|_| drop(explained(&pid)));
            let said = end(running, libc::SIGINT);
            said.contains("was killed by signal 2.")
                && said.contains("This still waited at the end:")
                && has_all(&said, parts)
        });
        assert!(told, "{by:?} does not tell it");
    }
}

/// The report of the check on the program, which succeeds.
fn said_of_success(does: &str) -> String {
    let [transom, ..] = command();
    let mut check = Command::new(transom);
    check.args(["check", "--", &PROGRAM, does]).env_remove("GITHUB_ACTIONS");
    check.env("TRANSOM_LIB", transom.parent().expect("a folder"));
    let printed = Running::start(&mut check).success(LIMIT).expect("it looks at nothing");
    printed.complaints.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Rule: EX-07
#[test]
fn a_program_that_succeeds_though_an_access_was_refused_is_told_so() {
    let said = said_of_success("ignores");
    let parts = ["succeeded, though 1 access was refused, oldest first.", "no region has this key"];
    assert!(has_all(&said, &parts), "{said}");
}

/// A receive without room for the header before a datagram gets none, and nobody else says so.
///
/// Rules: EX-07, UD-04
#[test]
fn a_program_that_succeeds_though_its_datagrams_were_dropped_is_told_so() {
    let said = said_of_success("headless");
    let parts =
        ["succeeded, though messages were dropped, oldest first.", "with the 40 of the header"];
    assert!(has_all(&said, &parts), "{said}");
}

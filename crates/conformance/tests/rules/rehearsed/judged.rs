//! How `transom rehearse` judges a run, cuts it down and reports it (`judged.c`).

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;
use std::{fs, os::unix::process::ExitStatusExt as _};

use serde_json::{Value, json};
use transom_conformance::c_programs::compile;
use transom_conformance::explained::on_one_line;
use transom_conformance::processes::Scratch;
use transom_conformance::programs::{Printed, Running, command};

use super::command::{limit, rehearse};

static PROGRAMS: LazyLock<(Scratch, [String; 2])> = LazyLock::new(|| {
    let scratch = Scratch::new("judged");
    let compiled = ["judged", "moments"].map(|name| {
        let binary = compile(&scratch, &format!("rehearsed/{name}.c"), name, &["-libverbs"]);
        binary.to_str().expect("a path in UTF-8").to_owned()
    });
    (scratch, compiled)
});

fn judged() -> &'static str {
    &PROGRAMS.1[0]
}

fn moments() -> &'static str {
    &PROGRAMS.1[1]
}

/// A file in a folder for this test.
fn file(folder: &Scratch, name: &str) -> String {
    folder.path().join(name).to_str().expect("a path in UTF-8").to_owned()
}

/// The command that a report prints, without its own name.
fn again(printed: &Printed) -> String {
    let mut lines = printed.complaints.lines();
    let found = lines.find_map(|line| line.trim().strip_prefix("transom "));
    found.unwrap_or_else(|| panic!("no command: {printed:?}")).to_owned()
}

/// Types the command that a report prints into a shell; its exit status.
fn type_again(printed: &Printed) -> (Option<i32>, Printed) {
    let [transom, ..] = command();
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec \"$0\" {}", again(printed))]).arg(transom);
    shell.env("TRANSOM_LIB", transom.parent().expect("a folder"));
    let (status, printed) = Running::start(&mut shell).end(limit()).unwrap();
    (status.code(), printed)
}

/// A script hides by what its program has ended: make exits with 2 then. The report names the call that was refused.
///
/// Rules: REH-03, REH-40, REH-42
#[test]
fn a_crash_behind_a_script_is_a_failure_although_a_call_was_refused() {
    let options = ["--only", "refused-objects", "--runs", "30"];
    let scripts = ["\"$0\" dies-if-refused", "\"$0\" dies-if-refused || exit 2"];
    for script in scripts {
        let (status, printed) = rehearse(&options, &["sh", "-c", script, judged()]);
        let told = on_one_line(&printed.complaints);
        assert_eq!(status, Some(66), "{script}: {printed:?}");
        assert!(told.contains("process judged is killed by signal 11"), "{told}");
        let place = "in process 0 (judged), in ibv_create_cq All numbers";
        assert!(told.contains(place), "{told}");
        let (status, printed) = type_again(&printed);
        assert_eq!(status, Some(66), "{printed:?}");
        // The command that shows it again says what it provokes, too.
        assert!(on_one_line(&printed.complaints).contains(place), "{printed:?}");
    }
}

/// Rule: REH-40
#[test]
fn a_process_that_is_ended_or_ends_at_once_or_always_dies_is_no_failure() {
    for name in ["is-ended", "ends-at-once"] {
        let options = ["--only", "exact-sizes,late-work", "--runs", "3"];
        let (status, printed) = rehearse(&options, &[judged(), name]);
        assert_eq!(status, Some(0), "{name}: {printed:?}");
    }
}

/// A place alone has no first run that shows who is meant to die.
///
/// Rules: REH-40, REH-42
#[test]
fn at_a_place_a_process_that_always_dies_is_no_failure_and_any_other_is() {
    let options = ["--seed", "1", "--at", "late-work:0.0.999999"];
    let (status, printed) = rehearse(&options, &[judged(), "ends-at-once"]);
    assert_eq!(status, Some(0), "{printed:?}");
    let options = ["--seed", "1", "--at", "exact-sizes:2.0.0"];
    let script = "\"$0\" ends-at-once; \"$0\" makes-a-mistake-and-dies; exit 0";
    let (status, printed) = rehearse(&options, &["sh", "-c", script, judged()]);
    assert_eq!(status, Some(66), "{printed:?}");
}

/// Rule: REH-42
#[test]
fn a_program_that_fails_the_second_time_by_itself_has_no_cause_named() {
    let folder = Scratch::new("judged-twice");
    let script = "\"$0\" reads-early right; [ -e \"$1\" ] && exit 3; touch \"$1\"";
    let left = file(&folder, "left");
    let only = ["--only", "poisoned-fields", "--runs", "2"];
    let (status, printed) = rehearse(&only, &["sh", "-c", script, moments(), &left]);
    let told = on_one_line(&printed.complaints);
    assert_eq!(status, Some(66), "{printed:?}");
    assert!(told.contains("It fails without any provocation too, in 3 of 3 runs."), "{told}");
    assert!(!told.contains("makes it fail:"), "{told}");
    assert!(again(&printed).starts_with("check -- sh -c"), "{printed:?}");
}

/// Rule: REH-42
#[test]
fn a_run_that_hangs_has_less_time_in_a_cut() {
    // It hangs, if a poll gives one completion of two.
    let script = "\"$0\" polls-once wrong || sleep 1000";
    let moments = moments();
    let options = ["--runs", "12", "--limit", "9s", "--only", "single-completions,poisoned-fields"];
    let (status, printed) = rehearse(&options, &["sh", "-c", script, moments]);
    let told = on_one_line(&printed.complaints);
    assert_eq!(status, Some(66), "{printed:?}");
    assert!(told.contains("the program still runs after 9 s"), "{told}");
    // A run that hangs takes a second or two in a cut, so there is time enough.
    assert!(told.contains("This alone makes it fail: single-completions:"), "{told}");
    assert!(told.contains("in process 0 (moments)"), "{told}");
    let (status, printed) = type_again(&printed);
    assert_eq!(status, Some(66), "{printed:?}");
    assert!(!printed.complaints.contains("Never exercised"), "{printed:?}");
}

/// Rules: REH-40, REH-44
#[test]
fn what_the_check_found_is_told_of_a_program_that_dies_then() {
    let options = ["--only", "exact-sizes", "--runs", "1"];
    let program = [judged(), "makes-a-mistake-and-dies"];
    let (status, printed) = rehearse(&options, &program);
    assert_eq!(status, Some(66), "{printed:?}");
    let told = on_one_line(&printed.complaints);
    assert!(told.contains("the program is killed by signal 11"), "{told}");
    assert!(told.contains("used-after-destroy"), "{told}");
    let (_, printed) = rehearse(&[&options[..], &["--json"]].concat(), &program);
    let lines = printed.output.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let failure = lines.into_iter().find(|it: &Value| it["type"] == "failure");
    let failure = failure.unwrap_or_else(|| panic!("{printed:?}"));
    assert_eq!(failure["findings"][0]["kind"], "used-after-destroy");
    assert_eq!(
        (&failure["complete"], &failure["places"][0]["process"]),
        (&json!(true), &json!("judged"))
    );
}

/// Rules: REH-40, REH-42, REH-44
#[test]
fn a_run_whose_only_fault_is_a_finding_fails_and_is_cut_down() {
    let options = ["--only", "exact-sizes,late-work", "--runs", "2"];
    let program = [judged(), "makes-a-mistake"];
    let (status, printed) = rehearse(&options, &program);
    assert_eq!(status, Some(66), "{printed:?}");
    let told = on_one_line(&printed.complaints);
    assert!(told.contains("used-after-destroy"), "{told}");
    assert!(told.contains("This alone makes it fail: exact-sizes:"), "{told}");
    assert_eq!(type_again(&printed).0, Some(66), "{printed:?}");
    let (_, printed) = rehearse(&[&options[..], &["--json"]].concat(), &program);
    let failure = of_type(&printed, "failure");
    assert_eq!((&failure["outcome"], &failure["cut"]), (&json!("found"), &json!("places")));
    assert_eq!(failure["findings"][0]["kind"], "used-after-destroy");
}

/// The first line of JSON of a type.
fn of_type(printed: &Printed, kind: &str) -> Value {
    let lines = printed.output.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let found = lines.into_iter().find(|it: &Value| it["type"] == kind);
    found.unwrap_or_else(|| panic!("{printed:?}"))
}

/// Rules: REH-40, REH-44
#[test]
fn runs_begin_until_the_time_is_over() {
    let options = ["--only", "poisoned-fields", "--for", "1s", "--json"];
    let (status, printed) = rehearse(&options, &[moments(), "reads-early", "right"]);
    assert_eq!(status, Some(0), "{printed:?}");
    let lines = printed.output.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    // The first run has no seed, and does not count.
    let is_run = |line: &Value| line["type"] == "run" && !line["seed"].is_null();
    let runs = lines.filter(is_run).count();
    let summary = of_type(&printed, "summary");
    assert!(runs >= 1 && summary["failed"] == 0, "{printed:?}");
    assert_eq!(summary["runs"].as_u64(), Some(runs as u64), "{printed:?}");
}

/// The report says so, and how often it was tried. It blames nothing.
///
/// Rule: REH-42
#[test]
fn a_failure_that_does_not_come_again_is_told_as_one() {
    let folder = Scratch::new("judged-once");
    let runs = file(&folder, "runs");
    let script = "\"$0\" reads-early right; echo >> \"$1\"; [ $(wc -l < \"$1\") -ne 2 ]";
    let only = ["--only", "poisoned-fields", "--runs", "2"];
    let (status, printed) = rehearse(&only, &["sh", "-c", script, moments(), &runs]);
    let told = on_one_line(&printed.complaints);
    assert_eq!(status, Some(66), "{printed:?}");
    assert!(told.contains("It did not fail again"), "{told}");
    assert!(!told.contains("makes it fail:"), "{told}");
    fs::remove_file(&runs).expect("the script wrote it");
    let only = [&only[..], &["--json"]].concat();
    let (_, printed) = rehearse(&only, &["sh", "-c", script, moments(), &runs]);
    assert_eq!(of_type(&printed, "failure")["cut"], "not_again");
}

/// Rule: REH-43
#[test]
fn a_signal_to_the_command_ends_the_program_and_tells_the_runs_so_far() {
    let folder = Scratch::new("judged-signal");
    let (pid, second) = (file(&folder, "pid"), file(&folder, "second"));
    // The second run goes on until somebody ends it.
    let script = "\"$0\" reads-early right; [ -e \"$2\" ] || { touch \"$2\"; exit 0; }; \
                  echo $$ > \"$1.new\"; mv \"$1.new\" \"$1\"; exec sleep 1000";
    let [transom, ..] = command();
    let mut rehearse = Command::new(transom);
    rehearse.args([
        "rehearse",
        "--limit",
        "10m",
        "--",
        "sh",
        "-c",
        script,
        moments(),
        &pid,
        &second,
    ]);
    rehearse.env("TRANSOM_LIB", transom.parent().expect("a folder"));
    let mut running = Running::start(&mut rehearse);
    running.wait_until("has begun its second run", || Path::new(&pid).exists()).unwrap();
    running.signal(libc::SIGTERM);
    let (status, printed) = running.end(Duration::from_secs(20)).unwrap();
    assert_eq!(status.signal(), Some(libc::SIGTERM), "{printed:?}");
    let told = "transom rehearse: Ended by signal 15. Nothing failed in 0 runs.";
    assert!(printed.complaints.contains(told), "{printed:?}");
    let pid = fs::read_to_string(pid).expect("the script wrote it");
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "{pid}");
}

/// Rule: REH-43
#[test]
fn no_run_begins_after_a_signal_in_a_cut() {
    let folder = Scratch::new("judged-signal-in-cut");
    let runs = file(&folder, "runs");
    // The second run fails, and the others go on until somebody ends them.
    let script = "\"$0\" reads-early right; echo $$ >> \"$1\"; \
                  case $(wc -l < \"$1\") in 1) exit 0;; 2) exit 3;; esac; exec sleep 1000";
    let [transom, ..] = command();
    let mut rehearse = Command::new(transom);
    rehearse.args(["rehearse", "--limit", "10m", "--only", "exact-sizes", "--"]);
    rehearse.args(["sh", "-c", script, moments(), &runs]);
    rehearse.env("TRANSOM_LIB", transom.parent().expect("a folder"));
    let mut running = Running::start(&mut rehearse);
    let begun = || fs::read_to_string(&runs).map_or(0, |text| text.lines().count());
    running.wait_until("has begun its third run", || begun() == 3).unwrap();
    running.signal(libc::SIGTERM);
    let (status, printed) = running.end(Duration::from_secs(20)).unwrap();
    assert_eq!(status.signal(), Some(libc::SIGTERM), "{printed:?}");
    assert!(printed.complaints.contains("the program exits with status 3"), "{printed:?}");
    assert_eq!(begun(), 3);
}

/// The process that speaks for the program also keeps the files of the counters.
///
/// Rules: REH-43, CM-50
#[test]
fn what_stands_beside_the_program_is_there_in_each_run() {
    let folder = Scratch::new("judged-beside");
    let counted = file(&folder, "counted");
    // A file that was read a moment ago may have the value of then.
    let script = "\"$0\" reads-early right || exit 1; touch \"$1\"; \
                  count() { cat /sys/class/infiniband/transom0/ports/1/counters/port_xmit_packets; }; \
                  until count=$(count); [ \"$count\" != \"$(tail -n 1 \"$1\")\" ]; do sleep 0.1; done; \
                  echo \"$count\" >> \"$1\"";
    let only = ["--only", "exact-sizes", "--runs", "2", "--limit", "10s"];
    let (status, printed) = rehearse(&only, &["sh", "-c", script, moments(), &counted]);
    assert_eq!(status, Some(0), "{printed:?}");
    let counted = fs::read_to_string(counted).expect("the script wrote it");
    let counts: Vec<u64> = counted.lines().map(|line| line.parse().expect("a number")).collect();
    assert!(counts.len() == 3 && counts.is_sorted_by(|one, next| one < next), "{counts:?}");
}

/// Rule: REH-43
#[test]
fn what_the_shell_had_started_before_is_not_the_programs() {
    let [transom, ..] = command();
    let script = "sleep 1000 > /dev/null 2>&1 & echo $!; exec \"$0\" rehearse --only exact-sizes --runs 1 -- \"$1\" reads-early right";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(transom).arg(moments());
    shell.env("TRANSOM_LIB", transom.parent().expect("a folder"));
    let (status, printed) = Running::start(&mut shell).end(limit()).unwrap();
    let pid: i32 = printed.output.trim().parse().expect("the PID that the shell printed");
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let is_there = arguments == b"sleep\x001000\x00";
    if is_there {
        // SAFETY: it is the process that the shell has started.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    assert_eq!((status.code(), is_there), (Some(0), true), "{printed:?}");
}

/// Rule: REH-42
#[test]
fn the_command_that_is_printed_has_the_options_that_the_failure_needs() {
    let folder = Scratch::new("judged-again");
    let capture = file(&folder, "a b.pcapng");
    let needs = |count, name| [judged(), "needs-devices", count, name];
    let cases: [(&[&str], _); 4] = [
        (&["--devices", "2"], needs("2", "transom0")),
        (&["--device-name", "rxe7"], needs("1", "rxe7")),
        (&["--device", "mlx5_3,numa=0", "--device", "mlx5_4"], needs("2", "mlx5_3")),
        (
            &["--capture", &capture, "--fault", "delay=1ms", "--limit", "20s"],
            needs("1", "transom0"),
        ),
    ];
    for (given, program) in cases {
        let own = ["--only", "exact-sizes", "--runs", "1"];
        let (status, printed) = rehearse(&[&own, given].concat(), &program);
        assert_eq!(status, Some(66), "{given:?}: {printed:?}");
        let words = again(&printed);
        let is_there = |option: &&str| words.contains(&format!(" {option} "));
        assert!(given.iter().filter(|it| it.starts_with("--")).all(is_there), "{words}");
        assert_eq!(type_again(&printed).0, Some(66), "{printed:?}");
    }
    assert!(Path::new(&capture).exists());
}

/// It ends in good order when a call is refused, as any program may.
///
/// Rule: REH-03
#[test]
fn a_program_that_gives_up_its_root_directory_is_judged_as_any_other() {
    let folder = Scratch::new("judged-root");
    let root = folder.path().to_str().expect("a path in UTF-8");
    let options = ["--only", "refused-objects", "--runs", "30"];
    let (status, printed) = rehearse(&options, &[judged(), "gives-up-its-root", root]);
    assert_eq!(status, Some(0), "{printed:?}");
    assert!(!printed.complaints.contains("Never exercised"), "{printed:?}");
}

/// Rule: REH-03
#[test]
fn a_forked_child_that_opens_a_device_has_its_own_number() {
    let options = ["--only", "exact-sizes", "--runs", "1"];
    let (status, printed) = rehearse(&options, &[judged(), "has-workers"]);
    assert_eq!(status, Some(66), "{printed:?}");
    // The parent is 0, and the worker that is right is 1.
    assert!(again(&printed).contains("--at exact-sizes:2.0.0 "), "{printed:?}");
    assert_eq!(type_again(&printed).0, Some(66), "{printed:?}");
}

/// Rule: REH-41
#[test]
fn a_rehearsal_that_has_nothing_to_provoke_is_refused() {
    for options in [
        &["--only", "torn-sources", "--order", "model"][..],
        &["--only", "late-work", "--without", "late-work"],
        &["--seed", "1", "--at", "late-work:0.0.0", "--without", "late-work"],
        &["--runs", "0"],
    ] {
        let (status, printed) = rehearse(options, &[moments(), "reads-early", "right"]);
        assert_eq!(status, Some(2), "{options:?}: {printed:?}");
        assert!(printed.complaints.contains("nothing is left to provoke"), "{printed:?}");
    }
}

/// A makefile may have the check already. It reports to its own user, and to the rehearsal.
///
/// Rules: CHK-93, REH-40, REH-41
#[test]
fn a_check_within_a_rehearsal_tells_it_what_it_found() {
    let [transom, ..] = command();
    let transom = transom.to_str().expect("a path in UTF-8");
    let check = [transom, "check", "--", judged()];
    let right = [&check[..3], &[moments(), "reads-early", "right"]].concat();
    let (status, printed) = rehearse(&["--only", "late-work", "--runs", "2"], &right);
    assert_eq!(status, Some(0), "{printed:?}");
    let wrong = [&check[..], &["makes-a-mistake-and-dies"]].concat();
    let (status, printed) = rehearse(&["--seed", "1", "--at", "exact-sizes:0.0.0"], &wrong);
    assert_eq!(status, Some(66), "{printed:?}");
    // What the program printed is behind a bar.
    let mut lines = printed.complaints.lines();
    assert!(lines.any(|line| line.starts_with("error[used-after-destroy]")), "{printed:?}");
}

/// It has handed on by then what it found.
///
/// Rules: CHK-93, REH-40
#[test]
fn what_a_check_within_a_rehearsal_found_is_told_of_a_run_without_end() {
    let [transom, ..] = command();
    let transom = transom.to_str().expect("a path in UTF-8");
    let options = ["--seed", "1", "--at", "exact-sizes:0.0.0", "--limit", "5s", "--json"];
    let program = [transom, "check", "--", judged(), "makes-a-mistake-and-goes-on"];
    let (status, printed) = rehearse(&options, &program);
    assert_eq!(status, Some(66), "{printed:?}");
    let lines = printed.output.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let failure = lines.into_iter().find(|it: &Value| it["type"] == "failure");
    let failure = failure.unwrap_or_else(|| panic!("{printed:?}"));
    assert_eq!(failure["outcome"], "timed_out", "{failure}");
    assert_eq!(failure["findings"][0]["kind"], "used-after-destroy", "{failure}");
}

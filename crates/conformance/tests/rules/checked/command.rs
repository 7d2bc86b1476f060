//! The command `transom check`, on programs that make mistakes.

use std::fs;
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::Value;
use transom_check::{Gravity, Kind};
use transom_conformance::c_programs::compile;
use transom_conformance::checked::Checked;
use transom_conformance::documents::{Document, root};
use transom_conformance::processes::Scratch;
use transom_conformance::programs::{Printed, Running, command, unread};

/// How long a compiler, or a checked program, may take.
const LIMIT: Duration = Duration::from_secs(60);

static PROGRAM: LazyLock<Checked> =
    LazyLock::new(|| Checked::new("teardown", env!("CARGO_TARGET_TMPDIR"), &["-libverbs"]));

/// Checks what comes behind the options; the exit status, if it was not killed, and what was printed.
fn check(options: &[&str], program: &[&str]) -> (Option<i32>, Printed) {
    let mut check = Command::new(&command()[0]);
    check.arg("check").args(options).arg("--").args(program);
    let (status, printed) = Running::start(as_users(&mut check)).end(LIMIT).unwrap();
    (status.code(), printed)
}

/// With the environment of a user who has the built command as `$TRANSOM`. A job of a CI may have other variables.
fn as_users(command_line: &mut Command) -> &mut Command {
    let [transom, ..] = command();
    command_line.env("TRANSOM", transom).env_remove("GITHUB_ACTIONS");
    command_line.env("TRANSOM_LIB", transom.parent().expect("a folder"))
}

fn binary() -> &'static str {
    PROGRAM.binary().to_str().expect("a path in UTF-8")
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Rule: CHK-96
#[test]
fn a_list_that_leads_back_to_itself_fills_the_queue_as_ever() {
    let scratch = Scratch::new("circular");
    let program = compile(&scratch, "circular.c", "circular", &["-libverbs"]);
    let program = program.to_str().expect("a path in UTF-8");
    let (_, printed) = check(&[], &[program]);
    assert_eq!(printed.output, "ended\n", "{printed:?}");
}

/// Rules: PS-01, CHK-96
#[test]
fn a_request_that_is_posted_is_not_looked_at_any_more() {
    let scratch = Scratch::new("lists");
    let program = compile(&scratch, "lists.c", "lists", &["-libverbs"]);
    let program = program.to_str().expect("a path in UTF-8");
    let mut run = Command::new(&command()[0]);
    run.args(["run", "--", program]);
    let (status, printed) = Running::start(as_users(&mut run)).end(LIMIT).unwrap();
    assert!(status.success(), "{printed:?}");
    let (status, printed) = check(&[], &[program]);
    assert_eq!(status, Some(0), "{printed:?}");
}

/// Rules: CHK-90, CHK-94
#[test]
fn a_reader_that_goes_changes_no_verdict() {
    let scratch = Scratch::new("checked-unread");
    let file = scratch.path().join("findings.xml");
    let quiet = format!("{} work-lost wrong > /dev/null", binary());
    let mut check = Command::new(&command()[0]);
    check.args(["check", "--json", "--junit"]).arg(&file).args(["--", "sh", "-c", &quiet]);
    let (status, complaints) = unread(as_users(&mut check));
    assert_eq!(status, Some(66), "{complaints}");
    assert!(fs::read_to_string(file).unwrap().contains("work-lost"));
}

/// Rule: EX-07
#[test]
fn a_program_that_fails_is_told_what_it_was_refused() {
    let scratch = Scratch::new("checked-refused");
    let program = compile(&scratch, "refused.c", "refused", &["-libverbs"]);
    for (status, told) in [(3, 1), (0, 0)] {
        let script = format!("{}; exit {status}", program.display());
        let (exited, printed) = check(&[], &["sh", "-c", &script]);
        assert_eq!(exited, Some(status), "{printed:?}");
        let begins = printed.complaints.matches("This was refused, oldest first:").count();
        assert_eq!(begins, told, "{printed:?}");
    }
}

/// Rules: CHK-90, CHK-94
#[test]
fn a_mistake_is_reported_with_the_functions_and_lines_that_make_it() {
    let (status, printed) = check(&["--json"], &[binary(), "work-lost", "wrong"]);
    assert_eq!(status, Some(66), "{printed:?}");
    let lines = lines(&printed.output);
    assert_eq!(lines[0]["kind"], "work-lost");
    let source = fs::read_to_string(root().join("crates/conformance/tests/c/checked/teardown.c"));
    let source = source.expect("the source is there");
    let of = |call: &Value| -> Vec<String> {
        let places = call["callers"].as_array().unwrap().iter();
        let own = places.filter(|place| place["function"] == "work_lost");
        let line = |place: &Value| place["line"].as_u64().unwrap() as usize;
        own.map(|place| source.lines().nth(line(place) - 1).unwrap().to_owned()).collect()
    };
    let calls = lines[0]["calls"].as_array().unwrap();
    assert!(of(&calls[0])[0].ends_with("/* destroyed */"), "{calls:?}");
    assert!(calls.iter().any(|call| of(call)[0].ends_with("/* posted */")), "{calls:?}");
    assert_eq!(lines.last().unwrap()["opened"], 1);

    let (status, printed) =
        check(&["--require", "--without", "rights-unused"], &[binary(), "work-lost", "right"]);
    assert_eq!(status, Some(0), "{printed:?}");
    let report = printed.complaints;
    assert!(report.ends_with("No finding in 1 process that opened a device.\n"), "{report}");
}

/// Rules: CHK-94
#[test]
fn a_report_marks_the_verbs_inside_macros() {
    let (_, printed) = check(&[], &[binary(), "work-lost", "wrong"]);
    let report = printed.complaints;
    let lines: Vec<_> = report.lines().collect();
    let marked = lines.windows(2).filter_map(|pair| {
        let at = pair[1].find('^')?;
        let length = pair[1][at..].chars().take_while(|it| *it == '^').count();
        pair[0].get(at..at + length)
    });
    assert_eq!(
        marked.collect::<Vec<_>>(),
        ["ibv_destroy_qp", "ibv_post_send", "ibv_create_qp"],
        "{report}"
    );
}

/// The program of docs/check.md, compiled and checked by the commands there, has the report there. The README shows its
/// beginning.
///
/// Rules: CHK-90, CHK-94
#[test]
fn the_pages_show_the_report_of_their_program() {
    let blocks = Document::read("docs/check.md").blocks();
    let block = |begins: &str| {
        let found = blocks.iter().find(|block| block.text.starts_with(begins));
        &*found.unwrap_or_else(|| panic!("no block begins with {begins}")).text
    };
    let (program, commands) = (block("// drain.c: "), block("cc -g "));
    let (compile, _) = commands.split_once('\n').expect("two commands");
    let scratch = Scratch::new("page-of-checks");
    fs::write(scratch.path().join("drain.c"), program).expect("our own folder");
    let shell = |line: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-euc", line]).current_dir(scratch.path());
        shell
    };
    Running::start(&mut shell(compile)).finish(LIMIT);
    let mut checked = shell("exec \"$TRANSOM\" check -- ./drain");
    let (status, printed) = Running::start(as_users(&mut checked)).end(LIMIT).unwrap();
    assert_eq!(status.code(), Some(66), "{printed:?}");
    let expected = block("error[");
    assert_eq!(without_process(printed.complaints.trim()), without_process(expected.trim()));
    let readme = Document::read("README.md").blocks();
    assert!(readme.iter().any(|block| block.language == "text"
        && block.text.starts_with("error[")
        && expected.starts_with(&block.text)));
}

/// A report without the number of the process.
fn without_process(report: &str) -> String {
    let (before, after) = report.split_once("(process ").expect("it names the process");
    before.to_owned() + after.trim_start_matches(|digit: char| digit.is_ascii_digit())
}

/// Rules: CHK-93
#[test]
fn all_processes_of_a_script_are_checked_and_the_script_may_be_killed() {
    let script =
        "\"$0\" work-lost wrong; \"$0\" work-lost wrong; \"$0\" left-at-exit wrong; kill -9 $$";
    let (status, printed) = check(&[], &["sh", "-c", script, binary()]);
    assert_eq!(status, None);
    let report = printed.complaints;
    // It ended before its work was done, so what is left says nothing.
    assert!(report.contains(" not shown, such as left-at-exit: "), "{report}");
    assert!(report.contains(" = 2 times in teardown (process "), "{report}");
    assert!(report.contains("1 finding of 1 kind in 2 processes"), "{report}");
}

/// Rule: CHK-93
#[test]
fn a_process_whose_threads_open_a_device_at_once_counts_once() {
    let script = "for nth in 1 2 3 4 5 6 7 8 9 10; do \"$0\" opens-at-once right || exit 1; done";
    let (status, printed) = check(&["--json"], &["sh", "-c", script, binary()]);
    assert_eq!(status, Some(0), "{printed:?}");
    let summary = lines(&printed.output).pop().expect("a summary");
    assert_eq!(summary["opened"], 10, "{printed:?}");
}

/// Rules: CHK-91
#[test]
fn a_function_is_suppressed() {
    let file = PROGRAM.binary().with_extension("suppressions");
    let option = format!("--suppressions={}", file.display());
    let checked = |line: &str| {
        fs::write(&file, line).expect("our own folder");
        check(&[&option], &[binary(), "work-lost", "wrong"])
    };
    let (status, printed) = checked("work-lost end_qu*\n");
    assert_eq!(status, Some(0), "{printed:?}");
    let report: Vec<_> = printed.complaints.split_whitespace().collect();
    assert!(report.ends_with(&["1", "suppressed."]), "{report:?}");
    assert_eq!(checked("used-after-destroy *\n* begin_queues\n").0, Some(66));
}

/// Rule: CHK-21
#[test]
fn how_full_the_queues_were_is_in_the_last_line() {
    let marks = |name: &str, form: &str| {
        let (_, printed) = check(&["--json"], &[binary(), name, form]);
        let summary = lines(&printed.output).pop().expect("a summary");
        let marks = summary["marks"].as_array().expect("a list").clone();
        let mut told: Vec<_> = marks
            .iter()
            .map(|it| {
                assert_eq!(it["processes"][0]["process"], "teardown", "{it}");
                let callers = it["calls"][0]["callers"].as_array().expect("a list");
                assert!(callers.iter().any(|place| place["function"] == "main"), "{it}");
                let queue = it["queue"].as_str().expect("a text").to_owned();
                let number = |key: &str| it[key].as_u64().expect("a number");
                (queue, number("most"), number("asked"), number("count"))
            })
            .collect();
        told.sort();
        told
    };
    let mark = |queue: &str, most, asked, count| (queue.to_owned(), most, asked, count);
    let expected =
        [mark("completion", 16, 64, 1), mark("receive", 0, 16, 2), mark("send", 16, 16, 2)];
    assert_eq!(marks("queue-full", "wrong"), expected);
    let expected = [
        mark("completion", 0, 64, 1),
        mark("receive", 0, 16, 2),
        mark("send", 0, 16, 2),
        mark("shared_receive", 3, 4, 1),
    ];
    assert_eq!(marks("shared-queue", "right"), expected);
}

/// Every kind has a wrong program and its right twin, and a test that runs both.
#[test]
fn every_kind_has_a_wrong_program_and_a_right_one() {
    let all = |folder: &str, extension: &str| {
        let files = fs::read_dir(root().join("crates/conformance/tests").join(folder));
        let paths = files.expect("a folder").map(|entry| entry.expect("an entry").path());
        let sources = paths.filter(|path| path.extension().is_some_and(|it| it == extension));
        sources.map(|path| fs::read_to_string(path).expect("a text")).collect::<String>()
    };
    let (programs, tests) = (all("c/checked", "c"), all("rules/checked", "rs"));
    let tests: String = tests.split_whitespace().collect();
    for kind in Kind::ALL {
        let name = kind.name();
        assert!(programs.contains(&format!("\t{{\"{name}\", ")), "no program {name}");
        let shows =
            [format!(".shows(Kind::{kind:?},"), format!(".shows_all(\"{name}\",Kind::{kind:?},")];
        assert!(shows.iter().any(|it| tests.contains(it)), "no test shows {name}");
    }
}

/// As spec/adapters.md has them.
#[test]
fn pages_name_the_adapters_where_they_differ() {
    let adapters = fs::read_to_string(root().join("spec/adapters.md")).expect("it is there");
    let models = adapters.split("## The models").nth(1).and_then(|rest| rest.split("## ").next());
    let rows = models.expect("a section").lines().filter_map(|line| line.strip_prefix("| "));
    let names: Vec<_> = rows.filter_map(|row| row.split(' ').next()).skip(1).collect();
    assert!(names.contains(&"mlx5") && names.contains(&"qedr"), "{names:?}");
    for kind in [
        Kind::BeyondAsked,
        Kind::QueueFull,
        Kind::QueueCouldOverrun,
        Kind::KeyBeforeBind,
        Kind::KeyEarly,
        Kind::AddressAdded,
    ] {
        let page = kind.page().split("## Where it bites").nth(1).expect("each page has it");
        let bites = page.split("## Wrong").next().expect("the rest");
        let is_name = |word: &str| names.contains(&word);
        let mut words = bites.split(|c: char| !c.is_alphanumeric());
        assert!(words.any(is_name), "{}: {bites}", kind.name());
    }
}

/// The table of docs/check.md has every kind, in their order.
#[test]
fn the_page_lists_every_kind() {
    let page = fs::read_to_string(root().join("docs/check.md")).expect("it is there");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let rows: Vec<_> = rows.filter(|line| line.contains("| CHK-")).collect();
    let expected = Kind::ALL.iter().map(|kind| {
        let gravity = match kind.gravity() {
            Gravity::Finding => "finding",
            Gravity::Note => "note",
        };
        format!("| `{}` | {gravity} | {} | {} |", kind.name(), kind.title(), kind.rule())
    });
    assert_eq!(rows, expected.collect::<Vec<_>>());
}

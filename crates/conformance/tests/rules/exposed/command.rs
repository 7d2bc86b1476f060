//! The command `transom exposure`, on programs of known traffic.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::Value;
use transom_conformance::documents::root;
use transom_conformance::exposed::Exposed;
use transom_conformance::processes::is_long;
use transom_conformance::programs::{Printed, Running, command, program, unread};
use transom_exposure::cell::{CELL, copy_after};

/// How long a program may take.
const LIMIT: Duration = Duration::from_secs(60);

static PROGRAM: LazyLock<Exposed> = LazyLock::new(|| Exposed::new(env!("CARGO_TARGET_TMPDIR")));

/// Runs what comes behind the options; the exit status, if it was not killed, and what was printed.
fn exposure(options: &[&str], program: &[&str]) -> (Option<i32>, Printed) {
    let (status, printed) = Running::start(&mut line(options, program)).end(LIMIT).unwrap();
    (status.code(), printed)
}

fn line(options: &[&str], program: &[&str]) -> Command {
    let [transom, ..] = command();
    let mut exposure = Command::new(transom);
    exposure.arg("exposure").args(options).arg("--").args(program);
    exposure.env("TRANSOM_LIB", transom.parent().expect("a folder"));
    exposure
}

/// The lines in a file.
fn lines_in(file: &Path) -> Vec<Value> {
    let lines = fs::read_to_string(file).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn binary() -> &'static str {
    PROGRAM.binary().to_str().expect("a path in UTF-8")
}

/// Rules: EXP-08, EXP-11
#[test]
fn the_lines_tell_what_was_open_where_and_what_would_close_it() {
    let file = PROGRAM.scratch().join("lines.json");
    let json = format!("--json={}", file.display());
    let (status, printed) = exposure(&[&json], &[binary(), "regions"]);
    assert_eq!(status, Some(0), "{printed:?}");
    let lines = lines_in(&file);
    let [used, unused, summary] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!([used, unused, summary].map(|it| &it["type"]), ["opening", "opening", "summary"]);
    assert_eq!((&used["length"], &used["touched_bytes"]), (&"4096".into(), &"120".into()));
    assert_eq!(used["access"], serde_json::json!(["REMOTE_READ", "REMOTE_WRITE"]));
    assert_eq!(used["by_right"][1]["count"], 3);
    assert_eq!(used["uses"].as_array().unwrap().len(), 3);
    assert_eq!(used["peers"][0]["peer_pid"], used["pid"]);

    let source = fs::read_to_string(root().join("crates/conformance/tests/c/exposed.c")).unwrap();
    let places = unused["call"]["callers"].as_array().unwrap();
    let place = places.iter().find(|place| place["function"] == "regions").expect("it is named");
    let line = source.lines().nth(place["line"].as_u64().unwrap() as usize - 1).unwrap();
    assert!(line.contains("DO(\"unused\""), "{line}");

    let changes = |line: &Value| -> Vec<String> {
        let all = line["changes"].as_array().unwrap().iter();
        all.map(|change| change["change"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(changes(used), ["window", "fewer_bytes", "shorter_life"]);
    assert_eq!(changes(unused), ["no_rights"]);
    let number = |it: &Value| it.as_str().map_or(it.as_u64(), |digits| digits.parse().ok());
    for field in ["open_byte_ns", "used_byte_ns", "open_bytes", "openings", "untouched"] {
        let [used, unused, sum] = [used, unused, summary].map(|it| number(&it[field]).unwrap());
        assert_eq!(sum, used + unused, "{field}");
    }
    let report = printed.complaints;
    assert!(report.contains("exposed.c:") && report.contains(" in regions, registered here"));
    assert!(report.contains("2 regions had rights for peers"), "{report}");
}

/// Of thirteen calls ten are named, the worst first.
///
/// Rule: EXP-11
#[test]
fn the_report_begins_with_the_ten_worst_calls() {
    let (status, printed) = exposure(&[], &[binary(), "sites"]);
    assert_eq!(status, Some(0), "{printed:?}");
    let report = printed.complaints;
    let source = fs::read_to_string(root().join("crates/conformance/tests/c/exposed.c")).unwrap();
    // The region of the pair is the largest, and is registered in another file.
    let first = report.find("1. ").expect("the first");
    let second = report.find("\n2. ").expect("the second");
    assert!(report[first..second].contains("a region of 4 KiB"), "{report}");
    let lengths = (2..=10).map(|rank| {
        let (_, rest) = report.split_once(&format!("\n{rank}. ")).expect("it is ranked");
        let (_, place) = rest.split_once("exposed.c:").expect("its place");
        let digits = place.find(|letter: char| !letter.is_ascii_digit()).expect("an end");
        let line = source.lines().nth(place[..digits].parse::<usize>().unwrap() - 1).unwrap();
        line.split(", ").nth(2).and_then(|length| length.parse::<u32>().ok()).expect(line)
    });
    let expected: Vec<_> = (4..=12).rev().map(|times| times * 300).collect();
    assert_eq!(lengths.collect::<Vec<_>>(), expected, "{report}");
    assert!(!report.contains("\n11. "), "{report}");
    assert!(report.contains("\n3 more calls opened something for nothing"), "{report}");
}

/// Both hear of what is opened and touched.
///
/// Rules: EXP-03, EXP-10
#[test]
fn the_account_of_a_program_that_is_checked_too_is_whole() {
    let file = PROGRAM.scratch().join("checked.json");
    let json = format!("--json={}", file.display());
    let [transom, ..] = command();
    let mut check = Command::new(transom);
    check.args(["check", "--"]).arg(transom).args(["exposure", &json, "--"]);
    check.args([binary(), "regions"]).env("TRANSOM_LIB", transom.parent().expect("a folder"));
    let (status, printed) = Running::start(&mut check).end(LIMIT).unwrap();
    assert_eq!(status.code(), Some(0), "{printed:?}");
    let lines = fs::read_to_string(file).unwrap();
    let summary: Value = serde_json::from_str(lines.lines().last().unwrap()).expect("JSON");
    assert_eq!((&summary["openings"], &summary["touched_bytes"]), (&2.into(), &"120".into()));
    assert!(printed.complaints.contains("right"), "{printed:?}");
}

/// Rule: EXP-12
#[test]
fn the_page_draws_what_was_open_and_what_was_used() {
    let file = PROGRAM.scratch().join("page.html");
    let html = format!("--html={}", file.display());
    let (status, printed) = exposure(&[&html], &[binary(), "regions"]);
    assert_eq!(status, Some(0), "{printed:?}");
    let page = fs::read_to_string(file).unwrap();
    let count = |part: &str| page.matches(part).count();
    assert_eq!(count("<rect class=\"open\""), 2, "{page}");
    assert_eq!((count("<rect class=\"used\""), count("<path class=\"touch\"")), (4, 8), "{page}");
    assert_eq!((count("<rect class=\"pair\""), count("<svg "), count("</svg>")), (2, 1, 1));
    assert!(page.contains("region of 4 KiB for reading and writing"), "{page}");
    for loads in ["http", "src=", "href", "url(", "@import", "<script"] {
        assert!(!page.contains(loads), "{loads}: {page}");
    }
    let (status, printed) = exposure(&["--html=/no/such/folder/page"], &[binary(), "regions"]);
    assert_eq!((status, &*printed.output), (Some(1), ""), "the program does not run");
}

/// How many bytes a picture of a page takes that a real browser has drawn, of one size.
fn drawn(browser: &Path, page: &Path) -> u64 {
    let picture = page.with_extension("png");
    let mut browser = Command::new(browser);
    browser.args(["--headless", "--disable-gpu", "--hide-scrollbars", "--window-size=1200,900"]);
    // Its own walls need rights that root in a container does not have, and the page is our own.
    browser.arg("--no-sandbox").env("HOME", page.parent().expect("a folder"));
    browser.arg(format!("--user-data-dir={}", page.with_extension("profile").display()));
    browser.arg(format!("--screenshot={}", picture.display()));
    browser.arg(format!("file://{}", page.display()));
    let printed = Running::start(&mut browser).success(LIMIT);
    let printed = printed.unwrap_or_else(|problem| panic!("{problem}"));
    let length = fs::metadata(&picture).map(|it| it.len());
    length.unwrap_or_else(|error| panic!("{error}: {printed:?}"))
}

/// A picture of one colour takes next to nothing, and one with a drawing more than one without.
///
/// Rule: EXP-12
#[test]
fn a_real_browser_draws_the_page() {
    if !is_long() {
        return println!("skipped: not a long run");
    }
    let browser = program("chromium", "chromium");
    let [page, plain, blank] =
        ["drawn.html", "plain.html", "blank.html"].map(|name| PROGRAM.scratch().join(name));
    let html = format!("--html={}", page.display());
    let (status, printed) = exposure(&[&html], &[binary(), "regions"]);
    assert_eq!(status, Some(0), "{printed:?}");
    let text = fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once("<svg ").expect("a drawing");
    let (_, after) = rest.split_once("</svg>").expect("its end");
    fs::write(&plain, format!("{before}{after}")).unwrap();
    fs::write(&blank, "<!doctype html>").unwrap();
    let [page, plain, blank] = [page, plain, blank].map(|page| drawn(&browser, &page));
    assert!(page > plain + 2000 && plain > 2 * blank, "{page}, {plain}, {blank}");
}

/// Rule: EXP-09
#[test]
fn too_much_unused_decides_the_exit_status() {
    let regions = [binary(), "regions"];
    assert_eq!(exposure(&["--max-unused", "100%"], &regions).0, Some(0));
    let (status, printed) = exposure(&["--max-unused", "90%"], &regions);
    assert_eq!(status, Some(66), "{printed:?}");
    assert!(printed.complaints.contains("90 % may be"), "{printed:?}");
    let fails = format!("{} regions; exit 3", binary());
    assert_eq!(exposure(&["--max-unused", "0%"], &["sh", "-c", &fails]).0, Some(3));
    assert_eq!(exposure(&["--max-unused", "0%"], &["true"]).0, Some(0));
    assert_eq!(exposure(&["--require"], &["true"]).0, Some(1));
    assert_eq!(exposure(&["--require"], &regions).0, Some(0));
    assert_eq!(exposure(&["--max-unused", "110%"], &regions).0, Some(2));
}

/// What is in no line may be what was open for nothing.
///
/// Rule: EXP-09
#[test]
fn regions_that_are_left_out_pass_no_test() {
    let crowd = [binary(), "crowd"];
    let (status, printed) = exposure(&["--max-unused", "100%"], &crowd);
    assert_eq!(status, Some(1), "{printed:?}");
    assert!(printed.complaints.contains("are left out"), "{printed:?}");
    assert_eq!(exposure(&["--require"], &crowd).0, Some(0));
}

/// Rule: EXP-09
#[test]
fn a_reader_that_goes_changes_no_verdict() {
    let page = PROGRAM.scratch().join("unread.html");
    let html = format!("--html={}", page.display());
    let quiet = |ends: &str| format!("{} regions > /dev/null; {ends}", binary());
    let options = ["--json", &html, "--max-unused", "90%"];
    let run = |ends: &str| unread(&mut line(&options, &["sh", "-c", &quiet(ends)]));
    let (status, complaints) = run("true");
    assert_eq!(status, Some(66), "{complaints}");
    assert!(complaints.contains("90 % may be"), "{complaints}");
    assert!(fs::read_to_string(page).unwrap().contains("<rect class=\"open\""));
    assert_eq!(run("exit 3").0, Some(3));
}

/// One ends at once while its memory is open, and leaves a child that lives on. Another one becomes another program.
///
/// Rule: EXP-06
#[test]
fn what_a_process_has_open_ends_with_it_however_it_ends() {
    let (file, stays) = (PROGRAM.scratch().join("ends.json"), PROGRAM.scratch().join("stays"));
    let (json, stays) = (format!("--json={}", file.display()), stays.display());
    let one = binary();
    let program = format!(
        "mkfifo {stays} && {{ STAYS={stays} {one} leaves; {one} regions; : > {stays}; \
         {one} becomes; {one} regions; }}"
    );
    let (status, printed) = exposure(&[&json], &["sh", "-c", &program]);
    assert_eq!(status, Some(0), "{printed:?}");
    let lines = lines_in(&file);
    let number = |line: &Value, name: &str| line[name].as_str().unwrap().parse::<u64>().unwrap();
    let at_end: Vec<_> = lines.iter().filter(|line| line["at_end"] == true).collect();
    assert_eq!(at_end.len(), 2, "{lines:#?}");
    for line in at_end {
        // The next process begins after the end of this one.
        let (since, until) = (number(line, "since_ns"), number(line, "until_ns"));
        let opened = lines.iter().filter(|it| it["type"] == "opening");
        let next = opened.map(|it| number(it, "since_ns")).filter(|it| *it > since).min();
        assert!(next.is_some_and(|next| until < next), "{line:#} {next:?}");
    }
}

/// Rules: EXP-09, EXP-10
#[test]
fn an_account_without_room_ends_no_program_and_passes_no_test() {
    let program = format!("ulimit -f 2000; {} regions; test $? = 1", binary());
    let program = ["sh", "-c", &*program];
    let (status, printed) = exposure(&[], &program);
    // The device finds no room either, and says so to the program.
    assert_eq!(status, Some(0), "no signal ends it: {printed:?}");
    assert!(printed.complaints.contains("could not begin"), "{printed:?}");
    assert_eq!(exposure(&["--require"], &program).0, Some(1));
    assert_eq!(exposure(&["--max-unused", "100%"], &program).0, Some(1));
}

/// Rules: EXP-06, EXP-10
#[test]
fn a_program_behaves_as_it_does_without() {
    let (status, printed) = exposure(&[], &[binary(), "killed"]);
    assert_eq!(status, None, "it is killed as its program was: {printed:?}");
    assert!(printed.complaints.contains("until it ended"), "{printed:?}");
    // The files may hold anything.
    let [any, json, page] =
        ["any", "any.json", "any.html"].map(|name| PROGRAM.scratch().join(name));
    fs::write(&any, any_cells()).unwrap();
    let (any, into) = (any.display(), [("--json", &json), ("--html", &page)]);
    let into = into.map(|(option, file)| format!("{option}={}", file.display()));
    let spoil = format!(
        "cd $TRANSOM_EXPOSURE; for file in *.cells; do cat {any} > $file; \
         head -c 100000 /dev/urandom > ${{file%.cells}}; done"
    );
    let program = format!("{} regions; {spoil}", binary());
    let (status, printed) = exposure(&into.each_ref().map(|it| &**it), &["sh", "-c", &program]);
    assert_eq!(status, Some(0), "{printed:?}");
    assert!(fs::read_to_string(json).unwrap().contains("\"type\":\"summary\""));
    assert!(fs::read_to_string(page).unwrap().contains("<rect class=\"open\""));
}

/// The bytes of cells with any numbers. Only the first word of each says what it is, so that all of it is read.
fn any_cells() -> Vec<u8> {
    let mut seed = 5_u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed.rotate_left(32)
    };
    let cells = (0..100).flat_map(|kind| {
        let mut words = [(); CELL].map(|()| next());
        (words[0], words[copy_after(1)]) = (1, kind % 5 + 1);
        words
    });
    cells.flat_map(u64::to_ne_bytes).collect()
}

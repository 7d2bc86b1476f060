//! Tests of the command `transom check`. Shell scripts stand for programs: they write the records that the device would
//! write.

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use transom_check::Kind;
use transom_system::environment::ALL;

/// A directory of a test, with an empty library. Nothing here loads it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("transom-check-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("libibverbs.so.1"), "").unwrap();
        Self(path)
    }

    /// Checks a script.
    fn check(&self, options: &[&str], script: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
        command.arg("check").args(options).args(["--", "sh", "-c", script]);
        for variable in ALL.iter().map(|it| it.name).chain(["GITHUB_ACTIONS", "LD_LIBRARY_PATH"]) {
            command.env_remove(variable);
        }
        command.env("TRANSOM_LIB", &self.0).env("XDG_RUNTIME_DIR", &self.0).current_dir(&self.0);
        command
    }

    fn output(&self, options: &[&str], script: &str) -> Output {
        self.check(options, script).output().expect("the command was built for this test")
    }

    /// The exit status, and the report.
    fn checked(&self, options: &[&str], script: &str) -> (Option<i32>, String) {
        let output = self.output(options, script);
        (output.status.code(), report_in(&output))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The text on standard error, without the loader's complaints about the empty library.
fn report_in(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    text.split_inclusive('\n').filter(|line| !line.starts_with("ERROR: ld.so")).collect()
}

/// A text without its line breaks, which depend on the terminal.
fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A process that opens a device.
const OPENS: &str = "printf 'process %d /opt/server\\nopened\\n' $$ >$TRANSOM_CHECK/$$.a";

/// A process with a finding.
fn finds(kind: &str) -> String {
    let finding = format!("finding 1 {kind} Queue pair 0x12 was so.");
    format!(
        "{OPENS}; printf '{finding}\\nsite 7 used here\\nframe 1a40 /opt/libserver.so.2\\nend\\n' \
         >>$TRANSOM_CHECK/$$.a"
    )
}

/// Only a shell with a terminal lets the command continue too. Whoever stops a server for a while does not know of it.
#[test]
fn a_program_without_a_terminal_may_be_stopped_and_continued_by_others() {
    let scratch = Scratch::new();
    let script = "\
(
    until grep -q '^State:.T' /proc/$$/status; do :; done
    kill -CONT $$
) &
kill -STOP $$
exit 7
";
    let mut command = scratch.check(&[], script);
    // SAFETY: `setsid` is async-signal-safe.
    unsafe { command.pre_exec(|| Ok(_ = libc::setsid())) };
    let output = command.output().expect("the command was built for this test");
    assert_eq!(output.status.code(), Some(7), "{output:?}");
}

/// A shell's job control sees the command alone, and lets both continue.
#[test]
fn a_command_with_a_terminal_stops_with_its_program() {
    let scratch = Scratch::new();
    let [_ours, theirs] = super::terminal::ends(80);
    let terminal = theirs.as_raw_fd();
    let mut command = scratch.check(&[], "kill -STOP $$; exit 7");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let attach = move || {
        // SAFETY: both calls are async-signal-safe, and the descriptor is open until the command has begun.
        unsafe {
            libc::setsid();
            if libc::ioctl(terminal, libc::TIOCSCTTY, 0) != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: as above.
    unsafe { command.pre_exec(attach) };
    let mut command = command.spawn().expect("the command was built for this test");
    let (process, mut status) = (command.id() as libc::pid_t, 0);
    // SAFETY: our own child, not reaped yet; the status is this call's own.
    let stopped = unsafe { libc::waitpid(process, &mut status, libc::WUNTRACED) };
    assert!(stopped == process && libc::WIFSTOPPED(status), "{status:#x}");
    // SAFETY: the group of our own child.
    assert_eq!(unsafe { libc::kill(-process, libc::SIGCONT) }, 0);
    assert_eq!(command.wait().expect("it is our child").code(), Some(7));
}

/// Rules: CHK-90
#[test]
fn findings_decide_the_exit_status_of_a_program_that_succeeds() {
    let scratch = Scratch::new();
    let found = finds("work-lost");
    let (status, report) = scratch.checked(&[], &found);
    assert_eq!(status, Some(66), "{report}");
    assert!(report.contains("error[work-lost]: Queue pair 0x12 was so.\n"), "{report}");
    assert!(report.contains(" --> libserver.so.2+0x1a40\n"), "{report}");
    assert!(report.ends_with("transom check: 1 finding of 1 kind in 1 process.\n"), "{report}");
    assert_eq!(scratch.checked(&["--error-exitcode", "9"], &found).0, Some(9));
    assert_eq!(scratch.checked(&["--error-exitcode", "0"], &found).0, Some(0));
    assert_eq!(scratch.checked(&[], OPENS).0, Some(0));
}

/// Rules: CHK-90, CHK-93
#[test]
fn a_program_that_fails_keeps_its_status_and_what_was_found() {
    let scratch = Scratch::new();
    let (status, report) = scratch.checked(&[], &format!("{}; exit 3", finds("work-lost")));
    assert_eq!(status, Some(3));
    assert!(report.contains("error[work-lost]"), "{report}");
    let output = scratch.output(&[], &format!("{}; kill -9 $$", finds("work-lost")));
    assert_eq!(output.status.signal(), Some(9));
    assert!(String::from_utf8_lossy(&output.stderr).contains("error[work-lost]"), "{output:?}");
}

/// Rules: CHK-90
#[test]
fn notes_are_a_summary_unless_they_are_to_be_findings() {
    let scratch = Scratch::new();
    let noted = finds("left-at-exit");
    let (status, report) = scratch.checked(&[], &noted);
    assert_eq!(status, Some(0), "{report}");
    assert!(report.contains("note[left-at-exit]: objects are left"), "{report}");
    assert!(report.ends_with("No finding in 1 process that opened a device; 1 note.\n"));
    for option in ["--leaks", "--notes-are-findings"] {
        let (status, report) = scratch.checked(&[option], &noted);
        assert_eq!(status, Some(66), "{option}");
        assert!(report.contains("error[left-at-exit]"), "{report}");
    }
    assert_eq!(scratch.checked(&["--leaks"], &finds("queue-full")).0, Some(0));
}

/// Rules: CHK-91
#[test]
fn what_is_suppressed_is_counted_and_decides_nothing() {
    let scratch = Scratch::new();
    let both = format!("{}; sh -c '{}'", finds("work-lost"), {
        finds("work-lost").replace('\'', "'\\''").replace("libserver", "libclient")
    });
    let file = scratch.0.join("suppressions");
    let option = format!("--suppressions={}", file.display());
    fs::write(&file, "# the server's\nwork-lost libserver.so*\n").unwrap();
    let (status, report) = scratch.checked(&[&option], &both);
    assert_eq!(status, Some(66), "{report}");
    assert!(report.contains("libclient") && !report.contains("libserver"), "{report}");
    assert!(report.ends_with("1 finding of 1 kind in 1 process; 1 suppressed.\n"), "{report}");
    fs::write(&file, "* */lib*\n").unwrap();
    let (status, report) = scratch.checked(&[&option], &both);
    assert_eq!(status, Some(0), "{report}");
    fs::write(&file, "used-after-destroy *\n\nwork-lots *\n").unwrap();
    let (status, report) = scratch.checked(&[&option], "exit 5");
    assert_eq!(status, Some(2));
    let report = on_one_line(&report);
    assert!(report.contains("line 3: there is no kind work-lots; did you mean work-lost?"));
}

/// Rules: CHK-92
#[test]
fn a_device_may_be_required() {
    let scratch = Scratch::new();
    let (status, report) = scratch.checked(&[], "true");
    assert_eq!(status, Some(0));
    assert!(report.ends_with("No process opened a device, so nothing was checked.\n"), "{report}");
    for options in [&["--require"][..], &["--require", "--error-exitcode", "0"]] {
        let (status, report) = scratch.checked(options, "true");
        assert_eq!(status, Some(1));
        assert!(on_one_line(&report).contains("error: no process opened a device"), "{report}");
        assert_eq!(scratch.checked(options, OPENS).0, Some(0));
        assert_eq!(scratch.checked(options, "exit 5").0, Some(5));
    }
}

#[test]
fn kinds_are_chosen() {
    let scratch = Scratch::new();
    let found = finds("work-lost");
    assert_eq!(scratch.checked(&["--without", "queue-full,work-lost"], &found).0, Some(0));
    assert_eq!(scratch.checked(&["--kinds", "used-after-destroy"], &found).0, Some(0));
    assert_eq!(scratch.checked(&["--kinds", "work-lost"], &found).0, Some(66));
    // The processes are told.
    let told = |options: &[&str]| {
        let output = scratch.output(options, "cat $TRANSOM_CHECK/unwanted");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(told(&["--without", "queue-full,work-lost"]), "work-lost\nqueue-full\n");
    assert!(
        told(&["--kinds", "queue-full"])
            .lines()
            .eq(Kind::ALL.iter().map(|it| it.name()).filter(|name| *name != "queue-full"))
    );
    assert_eq!(told(&[]), "");
    let (status, report) = scratch.checked(&["--kinds", "work-lots"], &found);
    assert_eq!(status, Some(2));
    assert!(report.contains("a similar value exists: 'work-lost'"), "{report}");
}

#[test]
fn lines_of_json_go_to_standard_output_or_a_file() {
    let scratch = Scratch::new();
    let lines = |text: &str| -> Vec<Value> {
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let output = scratch.output(&["--json"], &finds("work-lost"));
    assert_eq!((output.status.code(), &*report_in(&output)), (Some(66), ""));
    let printed = lines(&String::from_utf8(output.stdout).unwrap());
    let types: Vec<_> = printed.iter().map(|line| line["type"].clone()).collect();
    assert_eq!(types, ["finding", "summary"]);
    assert_eq!(printed[0]["calls"][0]["callers"][0]["offset"], 0x1a40.to_string());

    let output = scratch.output(&["--json=found.json"], &finds("work-lost"));
    assert!(output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).contains("error[work-lost]"));
    let written = lines(&fs::read_to_string(scratch.0.join("found.json")).unwrap());
    assert_eq!(written.len(), 2);
}

#[test]
fn a_report_of_tests_has_what_was_found_and_what_was_not() {
    let scratch = Scratch::new();
    scratch.output(&["--junit", "rdma.xml"], &finds("work-lost"));
    let report = || fs::read_to_string(scratch.0.join("rdma.xml")).unwrap();
    assert!(report().contains("<failure type=\"work-lost\""), "{}", report());
    assert!(report().contains("name=\"used-after-destroy\"/>"), "{}", report());
    scratch.output(&["--require", "--junit", "rdma.xml"], "true");
    assert!(report().contains("<failure type=\"require\""), "{}", report());
    let (status, report) = scratch.checked(&["--junit", "no/such/rdma.xml"], "exit 5");
    assert_eq!(status, Some(1));
    assert!(on_one_line(&report).contains("name a file that you may write"), "{report}");
}

#[test]
fn github_shows_findings_beside_the_code() {
    let scratch = Scratch::new();
    let mut command = scratch.check(&[], &finds("work-lost"));
    let output = command.env("GITHUB_ACTIONS", "true").output().unwrap();
    let report = String::from_utf8(output.stderr).unwrap();
    let annotation = "\n::error title=transom check%3A work-lost::Queue pair 0x12 was so.%0A";
    assert!(report.contains(annotation), "{report}");
}

#[test]
fn findings_are_followed_while_the_program_runs() {
    let scratch = Scratch::new();
    let script = format!("{}; read line", finds("work-lost"));
    let mut command = scratch.check(&["--follow"], &script);
    let command = command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut checking = command.spawn().unwrap();
    let mut report = BufReader::new(checking.stderr.take().unwrap()).lines();
    // The program waits for a line: this comes before it ends.
    let found =
        report.by_ref().map(Result::unwrap).find(|line| line.starts_with("error[work-lost]"));
    assert!(found.is_some());
    checking.stdin.take().unwrap().write_all(b"\n").unwrap();
    let rest: Vec<_> = report.map(Result::unwrap).collect();
    assert!(rest.iter().all(|line| !line.starts_with("error")), "{rest:?}");
    assert_eq!(rest.last().unwrap(), "transom check: 1 finding of 1 kind in 1 process.");
    assert_eq!(checking.wait().unwrap().code(), Some(66));
}

#[test]
fn nothing_is_left_when_it_ends() {
    let scratch = Scratch::new();
    let output = scratch.output(&[], &format!("echo $TRANSOM_CHECK; {OPENS}"));
    let directory = String::from_utf8(output.stdout).unwrap();
    let directory = PathBuf::from(directory.trim());
    assert!(directory.starts_with(&scratch.0), "{directory:?}");
    assert!(!directory.exists());
    assert_eq!(fs::read_dir(directory.parent().unwrap()).unwrap().count(), 0);
}

#[test]
fn a_kind_is_explained() {
    let explain = |kind: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
        command.args(["check", "--explain", kind]).output().unwrap()
    };
    let page = String::from_utf8(explain("work-lost").stdout).unwrap();
    for part in ["Where it bites", "Wrong", "Right", "    ibv_destroy_qp(qp);", "CHK-01"] {
        assert!(page.contains(part), "{page}");
    }
    let refused = explain("work-lots");
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("'work-lost'"));
}

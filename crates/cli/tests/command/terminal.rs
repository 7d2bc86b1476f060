//! Text for people fits the terminal, and is coloured only there.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::process::{Command, Stdio};

/// Commands whose output is for people.
const HELP: [&[&str]; 16] = [
    &["--help"],
    &["-h"],
    &["demo", "--help"],
    &["devices", "--help"],
    &["devices", "-h"],
    &["run", "--help"],
    &["run", "-h"],
    &["top", "--help"],
    &["explain", "--help"],
    &["explain", "-h"],
    &["check", "--help"],
    &["check", "-h"],
    &["doctor", "--help"],
    &["bench", "--help"],
    &["completions", "--help"],
    &["manual", "--help"],
];

const SAID: [&[&str]; 12] = [
    &["demo"],
    &["devices"],
    &["doctor"],
    &["explain"],
    &["explain", "--rule", "RA-33"],
    &["explain", "EINVAL"],
    // Errors.
    &["explain", "--pid", "4294967295"],
    &["check", "--kinds", "foo", "--", "true"],
    &["check", "--explain", "nonsense"],
    &["rehearse", "--only", "foo", "--", "true"],
    &["run", "--fault", "foo=1", "--", "true"],
    &["run", "--device-name", "a b", "--", "true"],
];

fn transom(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
    command.args(arguments);
    for variable in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "CI"] {
        command.env_remove(variable);
    }
    command.env("TERM", "xterm");
    command
}

/// All output of a command without a terminal.
fn piped(arguments: &[&str]) -> String {
    let output = transom(arguments).stdin(Stdio::null()).output().expect("it was built");
    let both = [output.stdout, output.stderr].concat();
    String::from_utf8(both).expect("text")
}

/// A terminal of this many columns: our end, and that of a command.
pub(crate) fn ends(columns: u16) -> [File; 2] {
    let size = libc::winsize { ws_row: 25, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // No process that another test starts meanwhile may have either end.
    let ours = File::options().read(true).write(true).open("/dev/ptmx").expect("a pseudoterminal");
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: they read a number and the size, and make a descriptor that nobody else has.
    let theirs = unsafe {
        assert_eq!(libc::ioctl(ours.as_raw_fd(), libc::TIOCSPTLCK, &0), 0);
        let theirs = libc::ioctl(ours.as_raw_fd(), libc::TIOCGPTPEER, flags);
        assert!(theirs >= 0, "its other end: {}", std::io::Error::last_os_error());
        assert_eq!(libc::ioctl(theirs, libc::TIOCSWINSZ, &size), 0);
        File::from_raw_fd(theirs)
    };
    [ours, theirs]
}

/// All output of a command on a terminal of this many columns.
fn on_a_terminal(command: &mut Command, columns: u16) -> String {
    let [ours, theirs] = ends(columns);
    let copy = || Stdio::from(theirs.try_clone().expect("a descriptor"));
    command.stdin(copy()).stdout(copy()).stderr(copy());
    let mut child = command.spawn().expect("it was built");
    // The command must have the last descriptors of that end.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    drop(theirs);
    let mut printed = Vec::new();
    // The read fails when the other end is closed.
    let mut ours = ours;
    let mut some = [0; 4096];
    while let Ok(length @ 1..) = ours.read(&mut some) {
        printed.extend_from_slice(&some[..length]);
    }
    child.wait().expect("a child");
    String::from_utf8(printed).expect("text").replace("\r\n", "\n")
}

/// The width of a line in columns. The line may be coloured.
fn columns_of(line: &str) -> usize {
    anstream::adapter::strip_str(line).to_string().chars().count()
}

/// Lines that are too long. A line of one word, or of one quoted command, stays whole. So do the device's own lines,
/// which are one line each in all programs.
fn too_long(text: &str, columns: usize) -> Vec<&str> {
    let is_whole = |line: &str| {
        let line = line.trim();
        let quoted = line.starts_with('`') && line.matches('`').count() == 2;
        !line.contains(' ') || quoted || line.starts_with("transom: ")
    };
    let lines = text.lines().filter(|line| columns_of(line) > columns);
    lines.filter(|line| !is_whole(line)).collect()
}

#[test]
fn no_line_is_longer_than_80_columns_where_there_is_no_terminal() {
    // It takes long, so it is measured on one kind of output only.
    let bench = &["bench", "--quick", "WRITE of 8 bytes, to its completion"][..];
    for arguments in HELP.iter().chain(&SAID).chain([&bench]) {
        let text = piped(arguments);
        assert!(text.lines().count() > 1, "{arguments:?}: {text}");
        assert_eq!(too_long(&text, 80), [""; 0], "{arguments:?}");
        // Help has no exceptions.
        let longest = text.lines().map(columns_of).max();
        assert!(longest <= Some(80) || !HELP.contains(arguments), "{arguments:?}: {longest:?}");
    }
}

#[test]
fn lines_are_as_long_as_those_of_the_terminal() {
    for arguments in HELP.iter().chain(&SAID) {
        let text = on_a_terminal(&mut transom(arguments), 60);
        assert_eq!(too_long(&text, 60), [""; 0], "{arguments:?}");
    }
    let wide = on_a_terminal(&mut transom(&["run", "--help"]), 100);
    let longest = wide.lines().map(columns_of).max();
    assert!((Some(90)..=Some(100)).contains(&longest), "{longest:?}");
}

/// You can copy a command of an example, even from a narrow terminal.
#[test]
fn commands_in_examples_stay_commands() {
    let narrow = on_a_terminal(&mut transom(&["run", "--help"]), 40);
    let example = "  transom run --capture ping.pcapng \\\n    -- ibv_rc_pingpong -g 0\n";
    assert!(narrow.contains(example), "{narrow}");
}

#[test]
fn lines_for_programs_are_not_broken() {
    let json = on_a_terminal(&mut transom(&["doctor", "--json"]), 20);
    let _: serde_json::Value = serde_json::from_str(&json).expect(&json);
    assert!(json.lines().any(|line| line.len() > 40), "{json}");
}

#[test]
fn colours_are_for_terminals_and_never_where_nobody_wants_them() {
    let coloured = [
        &["--help"][..],
        &["demo"],
        &["devices"],
        &["doctor"],
        &["explain", "--limit", "x"],
        &["explain", "--pid", "4294967295"],
    ];
    for arguments in coloured {
        let text = on_a_terminal(&mut transom(arguments), 80);
        assert!(text.contains("\x1b["), "{arguments:?}: {text:?}");
        let text = on_a_terminal(transom(arguments).env("NO_COLOR", "1"), 80);
        assert!(!text.contains('\x1b'), "{arguments:?}: {text:?}");
        let text = on_a_terminal(transom(arguments).env("TERM", "dumb"), 80);
        assert!(!text.contains('\x1b'), "{arguments:?}: {text:?}");
        assert!(!piped(arguments).contains('\x1b'), "{arguments:?}");
    }
}

/// Writes what a process with a finding and a note would write.
const MISTAKEN: &str = "printf 'process %d /opt/some/where/a_server_of_a_long_name\\nopened\\n\
    finding 1 work-lost Queue pair 0x12 of a program with a name that takes room is destroyed while 3 requests, and more \
    of them than that, are under way.\\nsite 7 destroyed here, and said in more words than there is room for in a line of \
    80 columns on a terminal\\nframe 1a40 /opt/libserver_of_a_long_name.so.2\\nend\\n\
    finding 2 queue-full The send queue of queue pair 0x12 was full, and that takes more than 80 columns to say in one \
    sentence.\\nsite 7 made here\\nframe 1a80 /opt/libserver_of_a_long_name.so.2\\nend\\n' $$ >$TRANSOM_CHECK/$$.a";

#[test]
fn a_report_of_mistakes_has_at_most_80_columns_on_any_terminal_and_colours() {
    let check = || {
        let mut command = transom(&["check", "--", "sh", "-c", MISTAKEN]);
        command.env_remove("GITHUB_ACTIONS");
        command
    };
    let widest = |text: &str| text.lines().map(columns_of).max().unwrap_or(0);
    for columns in [60, 80, 120, 200] {
        let text = on_a_terminal(&mut check(), columns);
        let plain = anstream::adapter::strip_str(&text).to_string();
        assert!(
            plain.contains("error[work-lost]: ") && plain.contains("note[queue-full]: "),
            "{plain}"
        );
        let most = usize::from(columns.min(80));
        assert!((most - 10..=most).contains(&widest(&text)), "{columns}: {plain}");
        assert!(text.contains("\x1b[31merror[work-lost]"), "{columns}: {text:?}");
        assert!(text.contains("\x1b[36mnote[queue-full]"), "{columns}: {text:?}");
    }
    for text in [
        on_a_terminal(check().env("NO_COLOR", "1"), 120),
        on_a_terminal(check().env("TERM", "dumb"), 120),
    ] {
        assert!(text.contains("error[work-lost]") && widest(&text) <= 80, "{text:?}");
        assert!(!text.contains('\x1b'), "{text:?}");
    }
    let output = check().stdin(Stdio::null()).output().expect("it was built");
    let piped = String::from_utf8(output.stderr).expect("text");
    assert!(piped.contains("error[work-lost]") && !piped.contains('\x1b'), "{piped:?}");
}

/// What there is beside the commands' own output shows on a terminal only, and is gone at the end.
#[test]
fn long_work_shows_its_progress_on_a_terminal_and_nowhere_else() {
    let rehearse = (&["rehearse", "--", "true"][..], "a run without provocations");
    let bench = (&["bench", "--quick", "register and deregister 1 GiB"][..], "0/1");
    for (arguments, progress) in [rehearse, bench] {
        let shown = on_a_terminal(&mut transom(arguments), 80);
        let at = shown.find(progress).unwrap_or_else(|| panic!("{arguments:?}: {shown:?}"));
        // The line is removed before anything else is printed.
        let after = shown[at..].lines().next().expect("a line");
        assert!(after.contains("\x1b[2K"), "{arguments:?}: {shown:?}");
        for nothing in [piped(arguments), on_a_terminal(transom(arguments).env("TERM", "dumb"), 80)]
        {
            assert!(!nothing.contains(progress), "{arguments:?}: {nothing:?}");
            assert!(!nothing.contains('\x1b'), "{arguments:?}: {nothing:?}");
        }
    }
}

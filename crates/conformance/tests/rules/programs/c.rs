//! C programs that use windows, extended verbs and threads through `<infiniband/verbs.h>` alone.
//!
//! The header and the library to link with come from Debian: `apt-get install gcc libc6-dev libibverbs-dev`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use transom_conformance::c_programs::{compile, run, run_as_nobody};
use transom_conformance::harness::{Link, take_turn};
use transom_conformance::processes::{Scratch, as_nobody, is_root};
use transom_conformance::programs::{Running, library};

const LIMIT: Duration = Duration::from_secs(120);
/// What the program about windows shows.
const WINDOWS: usize = 24;

fn our_library() -> &'static Path {
    library(env!("CARGO_TARGET_TMPDIR"))
}

/// What the program shows, it says itself, with the rules above each part.
#[test]
fn a_c_program_uses_windows() {
    let scratch = Scratch::new("window");
    let program = compile(&scratch, "window.c", "window", &["-libverbs"]);
    run(Command::new(&program).env("LD_LIBRARY_PATH", our_library()), WINDOWS);
    let mut shared = Command::new(&program);
    run(shared.env("LD_LIBRARY_PATH", our_library()).env("TRANSOM_COPY", "rings"), WINDOWS);
}

/// The inlines of the header find the operations that there are, and answer for the others.
#[test]
fn a_c_program_uses_extended_verbs() {
    let scratch = Scratch::new("extended");
    let program = compile(&scratch, "extended.c", "extended", &["-libverbs"]);
    run(Command::new(&program).env("LD_LIBRARY_PATH", our_library()), 6);
}

/// Over the wire too, where the library itself makes calls at which a thread could be cancelled.
#[test]
fn a_c_program_cancels_its_threads() {
    let scratch = Scratch::new("cancel");
    let program = compile(&scratch, "cancel.c", "cancel", &["-libverbs"]);
    take_turn(Link::Wire);
    for link in ["", "wire"] {
        let mut command = Command::new(&program);
        run(command.env("LD_LIBRARY_PATH", our_library()).env("TRANSOM_LINK", link), 4);
    }
}

/// It polls and sleeps, and never polls once more between asking to be told and sleeping.
#[test]
fn a_c_program_sleeps_until_it_is_told() {
    let scratch = Scratch::new("asleep");
    let program = compile(&scratch, "asleep.c", "asleep", &["-libverbs"]);
    take_turn(Link::Wire);
    for link in ["", "wire"] {
        let mut command = Command::new(&program);
        run(command.env("LD_LIBRARY_PATH", our_library()).env("TRANSOM_LINK", link), 2);
    }
}

/// POSIX forbids it, but the C library alone lets most such programs end. The program exits in an allocation, and
/// complains if that thread allocates once more.
///
/// Rules: MWA-22
#[test]
fn a_program_may_exit_in_the_middle_of_an_allocation() {
    let scratch = Scratch::new("exits");
    let program = compile(&scratch, "exits_at_once.c", "exits_at_once", &["-libverbs"]);
    let mut command = Command::new(&program);
    command.env("LD_LIBRARY_PATH", our_library());
    assert_eq!(Running::start(&mut command).finish(LIMIT), "");
}

#[test]
fn an_ordinary_user_runs_it_as_well() {
    let scratch = Scratch::new("window-unprivileged");
    let program = compile(&scratch, "window.c", "window", &["-libverbs"]);
    run_as_nobody(&scratch, &program, our_library(), WINDOWS);
}

/// A program that has rights its user does not have writes no capture, and goes wrong in no way that
/// its user asks for; started by one who has these rights, it does.
#[test]
fn a_set_user_id_program_obeys_no_environment() {
    if !is_root() {
        eprintln!("skipped: not root, so no program of another user can be made");
        return;
    }
    let scratch = Scratch::new("set-user-id");
    // The loader takes nothing from the environment of such a program either.
    let library = scratch.take(&our_library().join("libibverbs.so.1"));
    let search = format!("-Wl,-rpath,{}", scratch.path().display());
    let program = compile(&scratch, "privileged.c", "privileged", &[&search, "-libverbs"]);
    assert!(library.exists());
    fs::set_permissions(&program, Permissions::from_mode(0o4755)).expect("our own file");
    let file = scratch.path().join("capture");
    transom_host::capture::begin(&file).expect("our own folder");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("our own file");
    let written = || fs::metadata(&file).expect("our own file").len();
    let begun = written();

    let mut command = Command::new(&program);
    command.env("TRANSOM_CAPTURE", &file).env("TRANSOM_FAULT", "no such fault");
    command.env("TRANSOM_LOG", "debug").env("TRANSOM_MEMORY", "private");
    command.env("TRANSOM_CONNECT_TIMEOUT", "no number").env("TRANSOM_DEVICE_NAME", "no/name");
    let printed = Running::start(as_nobody(&mut command)).success(LIMIT).expect("it runs");
    assert_eq!(printed.complaints, "");
    let printed = printed.output;
    if printed != "with rights of its own\n" {
        eprintln!("skipped: set-user-ID does nothing here (nosuid): {printed}");
        return;
    }
    assert_eq!(written(), begun);

    let printed =
        Running::start(Command::new(&program).env("TRANSOM_CAPTURE", &file)).finish(LIMIT);
    assert_eq!(printed, "with its user's rights\n");
    assert!(written() > begun);
}

/// Who asks by `TRANSOM_LOG` is told on standard error what the device does; who does not is told nothing.
#[test]
fn a_program_logs_what_it_is_asked_for() {
    let scratch = Scratch::new("log");
    let program = compile(&scratch, "window.c", "window", &["-libverbs"]);
    let logged = |asked: Option<&str>| {
        let mut command = Command::new(&program);
        command.env("LD_LIBRARY_PATH", our_library());
        asked.map(|asked| command.env("TRANSOM_LOG", asked));
        Running::start(&mut command).success(LIMIT).expect("it runs").complaints
    };
    assert_eq!(logged(None), "");
    assert_eq!(logged(Some("")), "");
    assert_eq!(logged(Some("off")), "");
    let debug = logged(Some("debug"));
    for event in [
        "info: device opened slot=",
        "info: peer attached slot=",
        "debug: queue pair modified qp=0x",
        "from=Rtr to=Rts",
        "debug: access refused qp=0x",
        "debug: queue pair in error qp=0x",
        "debug: a work request failed qp=0x",
        "info: device closed slot=",
    ] {
        assert!(debug.contains(event), "{event} is missing:\n{debug}");
    }
    assert!(debug.lines().all(|line| line.starts_with("transom[")), "{debug}");
    let info = logged(Some("info"));
    assert!(info.contains("info: device opened") && !info.contains("debug:"), "{info}");
    let mut wrong = Command::new(&program);
    wrong.env("LD_LIBRARY_PATH", our_library()).env("TRANSOM_LOG", "much");
    let (status, wrong) = Running::start(&mut wrong).end(LIMIT).expect("it ends");
    assert!(!status.success(), "the device does not open");
    let said = "TRANSOM_LOG is \"much\", and may be off, error, warn, info, debug or trace";
    assert!(wrong.complaints.contains(said), "{}", wrong.complaints);
}

//! The process that `transom run` leaves beside its program: it changes nothing for that, and goes with it.

use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use transom_conformance::harness::until;
use transom_conformance::path_of;
use transom_conformance::processes::*;
use transom_conformance::programs::{command, program as program_of};

/// What the child runs; on its own it does nothing.
#[test]
fn role() {
    play(&[("program", program)]);
}

/// The children of this process, whether it can wait for them or not.
fn children() -> Vec<u32> {
    let path = format!("/proc/self/task/{}/children", std::process::id());
    let listed = fs::read_to_string(path).expect("the kernel lists them");
    listed.split_whitespace().map(|pid| pid.parse().expect("a PID")).collect()
}

/// The process that speaks for this one.
fn beside() -> Option<u32> {
    let all = fs::read_dir("/proc").expect("it is mounted");
    let mut all = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    all.find(|pid| is_renamed(*pid))
}

/// Whether a wait of this kind finds a child.
fn finds_a_child(kind: i32) -> bool {
    let (mut status, all) = (0, -1);
    // SAFETY: the status is this call's own.
    let found = unsafe { libc::waitpid(all, &mut status, kind) };
    (found, io::Error::last_os_error().raw_os_error()) != (-1, Some(libc::ECHILD))
}

fn file_of(pid: u32, name: &str) -> PathBuf {
    format!("/proc/{pid}/{name}").into()
}

fn session_of(pid: u32) -> i32 {
    // SAFETY: takes a plain number.
    unsafe { libc::getsid(pid as i32) }
}

/// Looks for what is beside it.
fn program(channel: &mut Channel) {
    let gets_orphans = std::env::var_os(GETS_ORPHANS).is_some();
    assert!(!finds_a_child(0), "it would wait for somebody");
    let beside = until("it to have its name", beside);
    let seen: &[u32] = if gets_orphans { &[beside] } else { &[] };
    assert_eq!(children(), seen);
    // A program may wait until it has no child of any kind left.
    assert!(gets_orphans || !finds_a_child(libc::__WALL));
    until("it to step aside", || (session_of(beside) == beside as i32).then_some(()));
    assert_ne!(session_of(0), beside as i32);
    for descriptor in ["fd/0", "fd/1", "fd/2"] {
        let leads_to = fs::read_link(file_of(beside, descriptor)).expect("it is open");
        assert_eq!(leads_to, PathBuf::from("/dev/null"), "{descriptor}");
    }
    assert_eq!(fs::read_link(file_of(beside, "cwd")).expect("there is one"), PathBuf::from("/"));
    // What a terminal or an administrator sends to all is not the end of it.
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTERM] {
        // SAFETY: the process lives as long as this one.
        assert_eq!(unsafe { libc::kill(beside as i32, signal) }, 0);
    }
    channel.tell(&[beside.into()]);
    let [] = channel.hear();
    assert_eq!(children(), seen);
}

fn is_renamed(pid: u32) -> bool {
    let words = fs::read(file_of(pid, "cmdline")).unwrap_or_default();
    words.starts_with(format!("transom: speaks for {}\0", std::process::id()).as_bytes())
}

/// A program under `transom run` that is the first process of a PID namespace, as in a container.
fn contained(script: &str) -> Command {
    let [transom, ..] = command();
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc"]).arg(transom);
    command.args(["run", "--", "sh", "-c", script]);
    command
}

/// There the program has this command before it, which is not to be noticed either.
///
/// Rules: CM-50
#[test]
fn a_program_in_a_container_ends_as_it_would_alone_and_gets_what_is_sent() {
    if !is_root() {
        return eprintln!("skipped: only root makes a PID namespace");
    }
    for (script, code) in [
        ("exit 7", 7),
        ("kill -KILL $$", 128 + libc::SIGKILL),
        ("kill -ABRT $$", 128 + libc::SIGABRT),
        // What it leaves behind is nobody's to wait for.
        ("(sleep 60 &) ; exit 3", 3),
        ("no_such_program_anywhere", 127),
    ] {
        let status = contained(script).stderr(Stdio::null()).status().expect("it starts");
        assert_eq!(status.code(), Some(code), "{script}");
    }
    let script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.01; done";
    let mut outer = contained(script).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut said = [0; 6];
    let output = outer.stdout.as_mut().expect("it is piped");
    output.read_exact(&mut said).expect("it says that it is ready");
    let first = fs::read_to_string(format!("/proc/{0}/task/{0}/children", outer.id()));
    let first: i32 = first.expect("listed").trim().parse().expect("one child");
    // SAFETY: the first process of that namespace, which ends below.
    assert_eq!(unsafe { libc::kill(first, libc::SIGTERM) }, 0);
    assert_eq!(outer.wait().expect("it ends").code(), Some(9));
}

/// Set for a program that orphans become children of.
const GETS_ORPHANS: &str = "TRANSOM_TEST_GETS_ORPHANS";

/// Rules: CM-50
#[test]
fn a_program_of_transom_run_does_not_see_what_is_beside_it() {
    let [transom, ..] = command();
    let transom = transom.to_str().expect("text");
    does_not_see(&[transom, "run", "--"]);
}

/// Rules: CM-50
#[test]
fn nor_does_one_that_gets_the_orphans() {
    // The attribute PR_SET_CHILD_SUBREAPER (36) stays over `exec`.
    const BECOMES: &str = "import ctypes, os, sys\n\
        assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0\n\
        os.execv(sys.argv[1], sys.argv[1:])";
    let [transom, ..] = command();
    let (transom, python) = (transom.to_str().expect("text"), program_of("python3", "python3"));
    let variable = format!("{GETS_ORPHANS}=1");
    let python = python.to_str().expect("text");
    does_not_see(&["env", &variable, python, "-c", BECOMES, transom, "run", "--"]);
}

fn does_not_see(under: &[&str]) {
    let mut program = Child::start_under(path_of!("program"), under);
    let [beside] = program.hear();
    program.tell(&[]);
    program.finish();
    let beside = file_of(beside as u32, "");
    until("it to go with its program", || (!beside.exists()).then_some(()));
}

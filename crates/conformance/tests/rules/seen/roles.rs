//! Two processes of known traffic, which others watch: `tests/c/seen.c`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use transom_conformance::c_programs::{RDMACM, compile};
use transom_conformance::processes::Scratch;
use transom_conformance::programs::library;

/// What the guest carries: messages and bytes.
pub(super) const WRITTEN: (u64, u64) = (100, 6400);
pub(super) const READ: (u64, u64) = (50, 1600);

/// One of the two programs. It ends when its input does.
pub(super) struct Role {
    process: Child,
    input: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Role {
    fn start(binary: &Path, role: &str) -> Self {
        let mut process = Command::new(binary)
            .arg(role)
            .env("LD_LIBRARY_PATH", library(env!("CARGO_TARGET_TMPDIR")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it was compiled");
        let input = process.stdin.take().expect("a pipe");
        let lines = BufReader::new(process.stdout.take().expect("a pipe"));
        Self { process, input, lines }
    }

    pub(super) fn says(&mut self, expected: &str) {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("text");
        assert_eq!(line.trim_end(), expected);
    }

    pub(super) fn go_on(&mut self) {
        self.input.write_all(b"on\n").expect("it reads");
    }

    /// Stops it, as Ctrl-Z does.
    pub(super) fn stop(&self) {
        let pid = i32::try_from(self.pid()).expect("a PID");
        // SAFETY: it is our own child, which nobody has waited for.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGSTOP) }, 0);
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The two, connected, after their traffic.
pub(super) struct Roles {
    pub(super) owner: Role,
    pub(super) guest: Role,
    pub(super) scratch: Scratch,
}

impl Roles {
    pub(super) fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let binary = compile(&scratch, "seen.c", "seen", RDMACM);
        let mut owner = Role::start(&binary, "owner");
        owner.says("listens");
        let mut guest = Role::start(&binary, "guest");
        owner.says("bound");
        guest.go_on();
        guest.says("done");
        Self { owner, guest, scratch }
    }
}

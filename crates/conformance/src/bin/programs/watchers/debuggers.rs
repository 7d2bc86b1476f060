//! Tools that stop a process, look into it, or record it.

use std::fs;
use std::path::Path;
use std::process::Command;

use transom_conformance::processes::is_root;
use transom_conformance::programs::Running;

use super::{LIMIT, Memory, Stop, Watchers, silent, told, tool};

/// The first word that the program writes, and the debugger's expression for it.
const FIRST: u64 = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(0xff51_afd7_ed55_8ccd);
const AT: &str = "print/x *buffers[0]";
/// The largest core. A core contains the memory that a process uses, not all that it has reserved.
const LONGEST_CORE: u64 = 1 << 30;

impl Watchers<'_> {
    /// gdb, without the user's own settings.
    fn debugger(&self) -> Result<Command, Stop> {
        let mut command = self.command(&tool("gdb", "gdb")?)?;
        command.args(["-nx", "-batch"]).env_remove("DEBUGINFOD_URLS");
        Ok(command)
    }

    pub(super) fn gdb(&self) -> Result<Memory, Stop> {
        let mut command = self.debugger()?;
        command.args(["-ex", "run"]).arg(self.plainly()?);
        let printed = Running::start(&mut command).success(LIMIT)?;
        match (printed.output.contains("exited normally"), printed.output.contains("\nshared\n")) {
            (true, true) => Ok(Memory::Shared),
            (true, false) => Ok(Memory::Private),
            _ => Err(Stop::Wrong(format!("{printed:?}"))),
        }
    }

    /// gdb follows each child, and leaves its parent alone.
    pub(super) fn gdb_with_children(&self) -> Result<Memory, Stop> {
        let mut command = self.debugger()?;
        command.args(["-ex", "set follow-fork-mode child", "-ex", "run"]).arg(self.plainly()?);
        let printed = Running::start(&mut command).success(LIMIT)?;
        if printed.output.contains("exited normally") {
            Ok(Memory::Untold)
        } else {
            Err(Stop::Wrong(format!("{printed:?}")))
        }
    }

    /// gdb finds shared memory in the process and in a core of it, and the program then goes on undisturbed.
    pub(super) fn gdb_attach(&self) -> Result<Memory, Stop> {
        let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
        if !is_root() && !["", "0"].contains(&scope.trim()) {
            return Err(Stop::Missing("kernel.yama.ptrace_scope keeps gdb from it".to_owned()));
        }
        let (program, core) = (self.plainly()?, self.place("core"));
        let gdb = tool("gdb", "gdb")?;
        let mut process = Running::start_until_told(self.command(&program)?.arg("waits"));
        let ready = process.line(LIMIT)?;
        let id = process.id().to_string();
        let look = |arguments: &[&str]| {
            let mut command = Command::new(&gdb);
            command.args(["-nx", "-batch", "-ex", AT]).args(arguments);
            let printed = Running::start(command.env_remove("DEBUGINFOD_URLS")).success(LIMIT)?;
            let is_there = printed.output.contains(&format!("= {FIRST:#x}"));
            if is_there { Ok(()) } else { Err(Stop::Wrong(format!("{printed:?}"))) }
        };
        look(&[
            "-p",
            &id,
            "-ex",
            &format!("generate-core-file {}", core.display()),
            "-ex",
            "detach",
        ])?;
        look(&[&program.to_string_lossy(), &core.to_string_lossy()])?;
        let length = fs::metadata(&core).map_or(0, |core| core.len());
        if length > LONGEST_CORE {
            return Err(Stop::Wrong(format!("the core has {length} bytes")));
        }
        process.end_input();
        let printed = process.success(LIMIT)?;
        if ready != "ready" {
            return Err(Stop::Wrong(ready));
        }
        Memory::told(&printed)
    }

    pub(super) fn strace(&self) -> Result<Memory, Stop> {
        let mut command = self.command(&tool("strace", "strace")?)?;
        command.args(["-f", "-o"]).arg(self.place("strace"));
        silent(command.arg(self.plainly()?))
    }

    /// A recording gives the same results when it is replayed.
    pub(super) fn rr(&self) -> Result<Memory, Stop> {
        let rr = tool("rr", "rr")?;
        let record = |command: &mut Command, name: &str, program: &Path| {
            command.args(["record", "-o"]).arg(self.place(name)).arg(program);
            Running::start(command).success(LIMIT)
        };
        if let Err(problem) = record(&mut Command::new(&rr), "rr-true", Path::new("/bin/true")) {
            let why = problem.lines().find(|line| line.contains("FATAL"));
            let why = why.and_then(|line| line.rsplit("] ").next()).unwrap_or("it fails");
            return Err(Stop::Missing(format!("rr does not run here: {why}")));
        }
        let recorded = record(&mut self.command(&rr)?, "rr-watched", &self.plainly()?)?;
        let mut replay = Command::new(&rr);
        replay.args(["replay", "--autopilot"]).arg(self.place("rr-watched"));
        let replayed = told(&mut replay)?;
        let memory = Memory::told(&recorded)?;
        if memory == replayed { Ok(memory) } else { Err(Stop::Wrong(format!("{recorded:?}"))) }
    }

    pub(super) fn perf(&self) -> Result<Memory, Stop> {
        let mut command = self.command(&tool("perf", "linux-perf")?)?;
        command.args(["record", "-e", "cpu-clock:u", "-o"]).arg(self.place("perf"));
        told(command.arg(self.plainly()?))
    }
}

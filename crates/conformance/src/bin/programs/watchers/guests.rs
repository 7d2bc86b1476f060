//! Languages that manage memory themselves, and call C for the device: `guest.c`.

use std::path::{Path, PathBuf};
use std::process::Command;

use transom_conformance::programs::Running;

use super::{LIMIT, Memory, PROGRAMS, SOURCES, Stop, Watchers, silent, told, tool};
use crate::pyverbs;
use crate::strangers::start_over_ucx;

impl Watchers<'_> {
    /// `guest.c` as a library.
    fn guest(&self) -> Result<PathBuf, Stop> {
        self.compiled("gcc", "guest.c", "libguest.so", &["-fPIC", "-shared"])
    }

    /// Python, optionally with a preloaded library.
    pub(super) fn python(&self, preloaded: Option<&str>) -> Result<Memory, Stop> {
        let mut command = self.command(Path::new(pyverbs::PYTHON))?;
        command.arg(Path::new(PROGRAMS).join("guest.py")).arg(self.guest()?);
        command.envs(preloaded.map(|library| ("LD_PRELOAD", library)));
        silent(&mut command)
    }

    pub(super) fn go(&self) -> Result<Memory, Stop> {
        let go = tool("go", "golang-go")?;
        let (guest, program) = (self.guest()?, self.place("guest-go"));
        let mut build = Command::new(go);
        build.args(["build", "-o"]).arg(&program).arg(Path::new(PROGRAMS).join("guest.go"));
        build.env("GO111MODULE", "off").env("GOCACHE", self.place("go-cache"));
        Running::start(build.env("CGO_ENABLED", "1").env("CGO_LDFLAGS", guest)).success(LIMIT)?;
        silent(&mut self.command(&program)?)
    }

    pub(super) fn java(&self, mechanism: &str) -> Result<Memory, Stop> {
        const PACKAGE: &str = "default-jdk-headless";
        let (javac, java) = (tool("javac", PACKAGE)?, tool("java", PACKAGE)?);
        let home = javac.canonicalize().map_err(|error| format!("{}: {error}", javac.display()))?;
        let headers =
            home.parent().and_then(Path::parent).unwrap_or(Path::new("/")).join("include");
        let headers = headers.to_string_lossy();
        let (all, linux) = (format!("-I{headers}"), format!("-I{headers}/linux"));
        let options = ["-fPIC", "-shared", "-DJAVA", &all, &linux];
        let guest = self.compiled("gcc", "guest.c", "libguest-java.so", &options)?;
        let classes = self.place("classes");
        let mut compile = Command::new(javac);
        compile.arg("-d").arg(&classes).arg(Path::new(PROGRAMS).join("Guest.java"));
        Running::start(&mut compile).success(LIMIT)?;
        let mut command = self.command(&java)?;
        command.arg(format!("-Djdk.lang.Process.launchMechanism={mechanism}"));
        silent(command.arg("-cp").arg(classes).arg("Guest").arg(guest))
    }

    /// Two MPI ranks, which may choose any of UCX's transports, with some more variables.
    pub(super) fn ranks(&self, told_too: &[(&str, &str)]) -> Result<Memory, Stop> {
        let (compiler, mpirun) = (tool("mpicc", "libopenmpi-dev")?, tool("mpirun", "openmpi-bin")?);
        let program = self.place("mpi_aligned");
        let mut compile = Command::new(compiler);
        compile.args(["-O1", "-I", SOURCES, "-o"]).arg(&program);
        Running::start(compile.arg(Path::new(PROGRAMS).join("mpi_aligned.c"))).success(LIMIT)?;
        // `transom run` reads it.
        let mut command = self.installation.transom()?;
        command.env_remove("TRANSOM_LIB").envs(told_too.iter().copied());
        command.args(["run", "--"]).arg(mpirun);
        start_over_ucx(&mut command, 2);
        told(command.arg(program))
    }
}

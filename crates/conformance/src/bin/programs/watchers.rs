//! `programs watchers`: small programs of ours under tools that watch a process's memory, replace its allocator, or
//! have a memory of their own: sanitizers, valgrind, debuggers, allocators, languages. Each program checks every byte,
//! and prints whether its page-aligned allocations were shared memory or private. They are shared if the allocator is
//! the C library's.

mod allocators;
mod debuggers;
mod guests;
mod passed;
mod sanitizers;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use transom_conformance::programs::{Printed, Running, installed};

use crate::installation::Installation;
use crate::table::{Form, Report, Row, Style, Verdict};

static FORM: Form = Form {
    script: "watchers",
    title: "our programs under tools that watch or replace the memory of a process",
    subject: &[("with", 46)],
    figures: &[("memory", 7), ("seconds", 7), ("remark", 40)],
};

/// How long one of them may take.
const LIMIT: Duration = Duration::from_secs(180);
/// Our sources.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c");
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs");

/// The kind of memory of a program's page-aligned allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    Shared,
    Private,
    /// The program opens no device, so it does not tell.
    Untold,
}

impl Memory {
    /// The word that the programs print.
    const fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Private => "private",
            Self::Untold => "",
        }
    }

    /// Reads the last line of a program's output.
    fn told(printed: &Printed) -> Result<Self, Stop> {
        match printed.output.lines().last() {
            Some("shared") => Ok(Self::Shared),
            Some("private") => Ok(Self::Private),
            _ => Err(Stop::Wrong(format!("{printed:?}"))),
        }
    }
}

/// The reason why a row did not succeed.
#[derive(Debug)]
enum Stop {
    /// This machine lacks something that the row needs.
    Missing(String),
    Wrong(String),
}

impl From<String> for Stop {
    fn from(problem: String) -> Self {
        Self::Wrong(problem)
    }
}

/// Runs a row.
type Run = fn(&Watchers) -> Result<Memory, Stop>;

/// The rows: name, expected memory, and run.
const ROWS: [(&str, Memory, Run); 43] = [
    ("nothing", Memory::Shared, |it| it.plain(&[])),
    ("nothing, at a fixed address", Memory::Shared, |it| it.plain(&["-fno-pie", "-no-pie"])),
    ("nothing, a lookup that fails before all else", Memory::Shared, |it| it.plain(&["-DEARLY"])),
    ("gcc -fsanitize=address", Memory::Private, |it| it.sanitizer("gcc", "address")),
    ("gcc -fsanitize=thread", Memory::Private, |it| it.sanitizer("gcc", "thread")),
    ("gcc -fsanitize=undefined", Memory::Shared, |it| it.sanitizer("gcc", "undefined")),
    ("clang -fsanitize=address", Memory::Private, |it| it.sanitizer("clang", "address")),
    ("clang -fsanitize=thread", Memory::Private, |it| it.sanitizer("clang", "thread")),
    ("clang -fsanitize=memory", Memory::Private, |it| it.sanitizer("clang", "memory")),
    ("clang -fsanitize=undefined", Memory::Shared, |it| it.sanitizer("clang", "undefined")),
    ("valgrind --tool=none", Memory::Private, |it| it.valgrind("none")),
    ("valgrind --tool=memcheck", Memory::Private, |it| it.valgrind("memcheck")),
    ("valgrind --tool=helgrind", Memory::Private, |it| it.valgrind("helgrind")),
    ("valgrind --tool=massif", Memory::Private, |it| it.valgrind("massif")),
    ("gdb, run", Memory::Shared, |it| it.gdb()),
    ("gdb, run, into each child", Memory::Untold, |it| it.gdb_with_children()),
    ("gdb, attach, a core and detach", Memory::Shared, |it| it.gdb_attach()),
    ("strace -f", Memory::Shared, |it| it.strace()),
    ("rr record and rr replay", Memory::Shared, |it| it.rr()),
    ("perf record", Memory::Shared, |it| it.perf()),
    ("heaptrack", Memory::Private, |it| it.heaptrack()),
    ("libc_malloc_debug.so, preloaded, with checks", Memory::Private, |it| it.malloc_debug()),
    ("libmemusage.so, preloaded", Memory::Private, |it| it.memusage()),
    ("jemalloc, preloaded", Memory::Private, |it| it.preloaded(&allocators::JEMALLOC)),
    ("jemalloc, linked", Memory::Private, |it| it.linked(&allocators::JEMALLOC)),
    ("jemalloc, within the program", Memory::Private, |it| it.within(&allocators::JEMALLOC)),
    ("tcmalloc, preloaded", Memory::Private, |it| it.preloaded(&allocators::TCMALLOC)),
    ("tcmalloc, linked", Memory::Private, |it| it.linked(&allocators::TCMALLOC)),
    ("tcmalloc, within the program", Memory::Private, |it| it.within(&allocators::TCMALLOC)),
    ("mimalloc, preloaded", Memory::Private, |it| it.preloaded(&allocators::MIMALLOC)),
    ("mimalloc, linked", Memory::Private, |it| it.linked(&allocators::MIMALLOC)),
    ("Python, multiprocessing by fork", Memory::Shared, |it| it.python(None)),
    ("Python, libc_malloc_debug.so, preloaded", Memory::Private, |it| {
        it.python(Some("libc_malloc_debug.so.0"))
    }),
    ("Go, cgo and os/exec", Memory::Shared, |it| it.go()),
    ("Java, JNI and processes by posix_spawn", Memory::Shared, |it| it.java("POSIX_SPAWN")),
    ("Java, JNI and processes by vfork", Memory::Shared, |it| it.java("VFORK")),
    ("Java, JNI and processes by fork", Memory::Shared, |it| it.java("FORK")),
    ("OpenMPI over UCX, as they come", Memory::Shared, |it| it.ranks(&[])),
    ("OpenMPI over UCX, UCX_TLS=ib", Memory::Shared, |it| it.ranks(&[("UCX_TLS", "ib")])),
    ("OpenMPI over UCX, UCX_TLS=cma,ib,self,sm", Memory::Shared, |it| {
        it.ranks(&[("UCX_TLS", "cma,ib,self,sm")])
    }),
    ("OpenMPI over UCX, TRANSOM_MEMORY=private", Memory::Private, |it| {
        it.ranks(&[("TRANSOM_MEMORY", "private")])
    }),
    ("no device: redis-server and BGSAVE", Memory::Untold, |it| it.redis()),
    ("no device: git clone, gc and fsck", Memory::Untold, |it| it.git()),
];

/// Runs all of them.
pub(crate) fn run(installation: &Installation, style: Style) -> Result<Report, String> {
    let mut report = Report::begin(&FORM, style);
    let watchers = Watchers { installation };
    for (with, memory, run) in ROWS {
        let begin = Instant::now();
        let came = run(&watchers);
        let seconds = format!("{:.1}", begin.elapsed().as_secs_f64());
        let (told, seconds, remark, verdict) = match came {
            Ok(told) => {
                let other = (told != memory)
                    .then(|| format!("its memory is {}, not {}", told.name(), memory.name()));
                (told.name(), seconds, String::new(), Verdict::of(other))
            }
            Err(Stop::Missing(what)) => {
                ("", String::new(), format!("skipped: {what}"), Verdict::LeftOut)
            }
            Err(Stop::Wrong(what)) => ("", seconds, String::new(), Verdict::Failed(what)),
        };
        report.add(Row {
            subject: vec![with.to_owned()],
            figures: vec![told.to_owned(), seconds, remark],
            verdict,
        });
    }
    Ok(report)
}

/// The folder of the programs.
struct Watchers<'a> {
    installation: &'a Installation,
}

impl Watchers<'_> {
    /// A path for a file or folder that is removed at the end.
    fn place(&self, name: &str) -> PathBuf {
        self.installation.folder().join(name)
    }

    /// A program under `transom run`.
    fn command(&self, program: &Path) -> Result<Command, Stop> {
        let mut command = self.installation.transom_run()?;
        command.arg(program);
        Ok(command)
    }

    /// `watched.c`, compiled with some arguments into a file, unless the file exists.
    fn watched(&self, compiler: &str, name: &str, arguments: &[&str]) -> Result<PathBuf, Stop> {
        self.compiled(compiler, "watched.c", name, arguments)
    }

    /// A C program, linked with libibverbs and the named libraries.
    fn compiled(
        &self,
        compiler: &str,
        source: &str,
        name: &str,
        arguments: &[&str],
    ) -> Result<PathBuf, Stop> {
        let binary = self.place(name);
        if !binary.exists() {
            let mut compile = Command::new(tool(compiler, compiler)?);
            compile.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o"]);
            compile.arg(&binary).arg(Path::new(SOURCES).join(source));
            compile.args(["-libverbs", "-lpthread", "-ldl"]);
            Running::start(compile.args(arguments)).success(LIMIT)?;
        }
        Ok(binary)
    }

    /// `watched.c` without changes.
    fn plainly(&self) -> Result<PathBuf, Stop> {
        self.watched("gcc", "watched", &[])
    }

    fn plain(&self, arguments: &[&str]) -> Result<Memory, Stop> {
        let program = self.watched("gcc", &format!("watched{}", arguments.concat()), arguments)?;
        silent(&mut self.command(&program)?)
    }
}

/// A program of a Debian package.
fn tool(name: &str, package: &str) -> Result<PathBuf, Stop> {
    installed(name, package).map_err(Stop::Missing)
}

/// A file of a Debian package that the compiler finds.
fn library(name: &str, package: &str) -> Result<PathBuf, Stop> {
    let mut ask = Command::new(tool("gcc", "gcc")?);
    let printed = Running::start(ask.arg(format!("-print-file-name={name}"))).success(LIMIT)?;
    let path = PathBuf::from(printed.output.trim());
    // For a file that it does not find, it prints only the name.
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(Stop::Missing(format!("there is no {name}: apt-get install {package}")))
    }
}

/// Runs a program, which must succeed. Returns the memory that it reports.
fn told(command: &mut Command) -> Result<Memory, Stop> {
    Memory::told(&Running::start(command).success(LIMIT)?)
}

/// As [`told`]. There must be no reports on standard error.
fn silent(command: &mut Command) -> Result<Memory, Stop> {
    let printed = Running::start(command).success(LIMIT)?;
    if printed.complaints.is_empty() {
        Memory::told(&printed)
    } else {
        Err(Stop::Wrong(printed.complaints))
    }
}

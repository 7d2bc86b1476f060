//! Sanitizers of gcc and clang, and valgrind.

use super::{LIMIT, Memory, Stop, Watchers, silent, told, tool};
use transom_conformance::programs::Running;

/// Clang has its sanitizers' runtimes in a separate package.
const RUNTIMES: &str = "libclang-rt-14-dev";
/// The memory sanitizer does not see writes of code that was compiled without it, such as our libraries and Debian's.
/// So it may not mark memory of the heap and stack as unwritten.
const UNMARKED: (&str, &str) = ("MSAN_OPTIONS", "poison_in_malloc=0:poison_in_free=0");

impl Watchers<'_> {
    /// Checks that a sanitizer has nothing to report.
    pub(super) fn sanitizer(&self, compiler: &str, kind: &str) -> Result<Memory, Stop> {
        tool(compiler, compiler)?;
        let option = format!("-fsanitize={kind}");
        let mut arguments = vec![option.as_str()];
        if kind == "memory" {
            arguments.extend(["-mllvm", "-msan-poison-stack=0"]);
        }
        let name = format!("watched-{compiler}-{kind}");
        let program = self.watched(compiler, &name, &arguments).map_err(|stop| match stop {
            Stop::Wrong(problem) if problem.contains("clang_rt") => Stop::Missing(format!(
                "there is no runtime for {option}: apt-get install {RUNTIMES}"
            )),
            other => other,
        })?;
        // Where the kernel spreads mappings far, some sanitizers find no room for their shadow memory.
        let mut command = self.command(&tool("setarch", "util-linux")?)?;
        command.arg("-R").arg(program).envs([UNMARKED]);
        // Another thread may have locked the address sanitizer's allocator when a process forks.
        silent(command.arg("calm"))
    }

    /// Its reports go to a file: it does not know which bytes the device writes, and which threads it has.
    pub(super) fn valgrind(&self, which: &str) -> Result<Memory, Stop> {
        let mut command = self.command(&tool("valgrind", "valgrind")?)?;
        let reports = self.place("valgrind");
        command.arg(format!("--tool={which}"));
        command.arg(format!("--log-file={}.%p", reports.display()));
        if which == "massif" {
            command.arg(format!("--massif-out-file={}.massif.%p", reports.display()));
        }
        // Some valgrind tools end a program that calls `pvalloc`.
        told(command.arg(self.plainly()?).arg("partial"))
    }

    /// A tool that counts memory, placed before the allocator.
    pub(super) fn heaptrack(&self) -> Result<Memory, Stop> {
        let mut command = self.command(&tool("heaptrack", "heaptrack")?)?;
        command.arg("--raw").arg("-o").arg(self.place("heaptrack"));
        let printed = Running::start(command.arg(self.plainly()?)).success(LIMIT)?;
        let memory = printed.output.lines().find_map(|line| match line {
            "shared" => Some(Memory::Shared),
            "private" => Some(Memory::Private),
            _ => None,
        });
        memory.ok_or_else(|| Stop::Wrong(format!("{printed:?}")))
    }
}

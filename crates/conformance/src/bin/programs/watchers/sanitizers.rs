//! Sanitizers of gcc and clang, and valgrind.

use super::{LIMIT, Memory, Stop, Watchers, silent, told, tool};
use transom_conformance::programs::Running;

/// Clang has the runtimes of its sanitizers in a package of their own.
const RUNTIMES: &str = "libclang-rt-14-dev";
/// The memory sanitizer takes all that code writes which was not compiled with it, such as our libraries and Debian's, for
/// unwritten; so it may not mark memory of the heap and stack so.
const UNMARKED: (&str, &str) = ("MSAN_OPTIONS", "poison_in_malloc=0:poison_in_free=0");

impl Watchers<'_> {
    /// Without a report.
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
        // Some find no room for their notes where the kernel scatters mappings far.
        let mut command = self.command(&tool("setarch", "util-linux")?)?;
        command.arg("-R").arg(program).envs([UNMARKED]);
        // The allocator of the address sanitizer may be locked by another thread when a process forks.
        silent(command.arg("calm"))
    }

    /// What it reports goes elsewhere: it does not know what the device writes, and which threads it has.
    pub(super) fn valgrind(&self, which: &str) -> Result<Memory, Stop> {
        let mut command = self.command(&tool("valgrind", "valgrind")?)?;
        let reports = self.place("valgrind");
        command.arg(format!("--tool={which}"));
        command.arg(format!("--log-file={}.%p", reports.display()));
        if which == "massif" {
            command.arg(format!("--massif-out-file={}.massif.%p", reports.display()));
        }
        // Some end a program that calls pvalloc().
        told(command.arg(self.plainly()?).arg("partial"))
    }

    /// What counts memory by standing before the allocator.
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

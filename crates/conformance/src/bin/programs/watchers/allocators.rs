//! Other allocators than the C library's: before it, beside it, and inside the program.

use std::process::Command;

use super::{Memory, Stop, Watchers, library, silent, told};

/// An allocator of a Debian package.
pub(super) struct Allocator {
    /// The name for the linker.
    name: &'static str,
    package: &'static str,
    /// The archive to link into a program, and its libraries. Empty if there is none.
    archive: &'static str,
    needs: &'static [&'static str],
}

pub(super) const JEMALLOC: Allocator = Allocator {
    name: "jemalloc",
    package: "libjemalloc-dev",
    archive: "libjemalloc.a",
    needs: &["-lstdc++", "-lm"],
};

pub(super) const TCMALLOC: Allocator = Allocator {
    name: "tcmalloc",
    package: "libgoogle-perftools-dev",
    archive: "libtcmalloc_minimal.a",
    needs: &["-lstdc++", "-lm"],
};

pub(super) const MIMALLOC: Allocator =
    Allocator { name: "mimalloc", package: "libmimalloc-dev", archive: "", needs: &[] };

impl Allocator {
    fn shared_object(&self) -> String {
        format!("lib{}.so", self.name)
    }
}

impl Watchers<'_> {
    pub(super) fn preloaded(&self, allocator: &Allocator) -> Result<Memory, Stop> {
        let library = library(&allocator.shared_object(), allocator.package)?;
        let mut command = self.command(&self.plainly()?)?;
        with_allocator(command.env("LD_PRELOAD", library))
    }

    pub(super) fn linked(&self, allocator: &Allocator) -> Result<Memory, Stop> {
        library(&allocator.shared_object(), allocator.package)?;
        let (name, option) =
            (format!("linked-{}", allocator.name), format!("-l{}", allocator.name));
        let program = self.watched("gcc", &name, &["-Wl,--no-as-needed", &option])?;
        with_allocator(&mut self.command(&program)?)
    }

    pub(super) fn within(&self, allocator: &Allocator) -> Result<Memory, Stop> {
        let archive = library(allocator.archive, allocator.package)?;
        let archive = archive.to_string_lossy();
        let mut arguments = vec!["-Wl,--whole-archive", &archive, "-Wl,--no-whole-archive"];
        arguments.extend(allocator.needs);
        let program = self.watched("gcc", &format!("within-{}", allocator.name), &arguments)?;
        with_allocator(&mut self.command(&program)?)
    }

    /// The C library's own allocator, with checks that it keeps in a separate library.
    pub(super) fn malloc_debug(&self) -> Result<Memory, Stop> {
        let mut command = self.command(&self.plainly()?)?;
        command.env("LD_PRELOAD", "libc_malloc_debug.so.0");
        // Another thread may have locked its heap when a process forks, even without us.
        command.arg("calm");
        silent(command.env("GLIBC_TUNABLES", "glibc.malloc.check=3"))
    }

    /// A library that counts allocations and prints the counts on standard error.
    pub(super) fn memusage(&self) -> Result<Memory, Stop> {
        let mut command = self.command(&self.plainly()?)?;
        told(command.env("LD_PRELOAD", "libmemusage.so"))
    }
}

/// Some allocators lack `pvalloc`, and none of them frees the C library's memory.
fn with_allocator(command: &mut Command) -> Result<Memory, Stop> {
    silent(command.arg("partial"))
}

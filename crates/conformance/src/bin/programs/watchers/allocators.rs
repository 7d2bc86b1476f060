//! Other allocators than the C library's, before it, beside it and within the program.

use std::process::Command;

use super::{Memory, Stop, Watchers, library, silent, told};

/// An allocator of a Debian package.
pub(super) struct Allocator {
    /// What it is linked by.
    name: &'static str,
    package: &'static str,
    /// What is linked into a program, and what that needs; empty if there is none.
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

    /// The C library's own allocator, with checks that it has elsewhere.
    pub(super) fn malloc_debug(&self) -> Result<Memory, Stop> {
        let mut command = self.command(&self.plainly()?)?;
        command.env("LD_PRELOAD", "libc_malloc_debug.so.0");
        // Its heap may be locked by another thread when a process forks, without us too.
        command.arg("calm");
        silent(command.env("GLIBC_TUNABLES", "glibc.malloc.check=3"))
    }

    /// What counts allocations; it says how many on standard error.
    pub(super) fn memusage(&self) -> Result<Memory, Stop> {
        let mut command = self.command(&self.plainly()?)?;
        told(command.env("LD_PRELOAD", "libmemusage.so"))
    }
}

/// Not all of them have pvalloc(), and none takes back what the C library has of it.
fn with_allocator(command: &mut Command) -> Result<Memory, Stop> {
    silent(command.arg("partial"))
}

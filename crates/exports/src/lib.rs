//! How functions become a shared object that programs of C ask for: its symbols, by [`symbol!`], and its
//! name and their versions, by [`link_arguments`] from its build script.
//!
//! Each symbol is a jump in assembly rather than a `#[no_mangle]` function: the linker would put
//! those into the base version, whatever the map says. A symbol can stand only once in the map, so
//! further versions are given by `.symver`; they are hidden, for nobody should link to the later ones with
//! the headers of the first.

#![deny(clippy::print_stderr, clippy::print_stdout)]

use std::path::Path;
use std::process::Command;

/// The instruction that goes on in another function as if it had been called itself: arguments and
/// return address stay where they are.
#[cfg(target_arch = "x86_64")]
#[macro_export]
macro_rules! jump {
    () => {
        "jmp {target}"
    };
}
/// The instruction that goes on in another function as if it had been called itself: arguments and
/// return address stay where they are.
#[cfg(target_arch = "aarch64")]
#[macro_export]
macro_rules! jump {
    () => {
        "b {target}"
    };
}
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!(
    "the libraries for C are for x86-64 and aarch64: each of their symbols is a jump in assembly, and \
     `jump!` does not know this architecture's"
);

/// One symbol: a jump to a function, in its node of the map and in others.
#[macro_export]
macro_rules! symbol {
    ($name:ident, $target:path, [$($node:literal)*]) => {
        ::std::arch::global_asm!(
            concat!(".globl ", stringify!($name)),
            concat!(".type ", stringify!($name), ",@function"),
            concat!(stringify!($name), ":"),
            $crate::jump!(),
            concat!(".size ", stringify!($name), ", . - ", stringify!($name)),
            $(concat!(".symver ", stringify!($name), ",", stringify!($name), "@", $node),)*
            target = sym $target,
        );
    };
}

/// What a build script prints for a shared object of this name, whose symbols have the versions in a map.
pub fn link_arguments(soname: &str, map: &Path) -> String {
    let map = map.display();
    // The compiler has a version script of its own, and GNU ld does not take both. Rust brings a linker
    // that does, and uses it by itself on x86-64 only.
    let linker = linkers().map(|folder| format!("cargo:rustc-cdylib-link-arg=-B{folder}\n"));
    // perf takes the address of a probe, as its note has it, for its place in the file. lld lets the two differ from the
    // second segment on, and perf would then put a breakpoint into the midst of other code. If each segment begins a
    // page of its own, they are the same. The file grows by less than a page for each of its four.
    format!(
        "cargo:rerun-if-changed={map}\n\
         cargo:rustc-cdylib-link-arg=-Wl,--version-script={map}\n\
         cargo:rustc-cdylib-link-arg=-Wl,-soname,{soname}\n\
         cargo:rustc-cdylib-link-arg=-Wl,-z,separate-loadable-segments\n\
         cargo:rustc-cdylib-link-arg=-fuse-ld=lld\n{}",
        linker.unwrap_or_default()
    )
}

/// Where the C compiler finds the linker that Rust brings.
fn linkers() -> Option<String> {
    let (rustc, host) = (std::env::var_os("RUSTC")?, std::env::var("HOST").ok()?);
    let sysroot = Command::new(rustc).args(["--print", "sysroot"]).output().ok()?.stdout;
    let sysroot = String::from_utf8(sysroot).ok()?;
    Some(format!("{}/lib/rustlib/{host}/bin/gcc-ld", sysroot.trim_end()))
}

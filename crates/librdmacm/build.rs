//! Gives the shared object its name and its symbol versions.

use std::path::Path;
use std::process::Command;

fn main() {
    let map = Path::new(env!("CARGO_MANIFEST_DIR")).join("rdmacm.map");
    println!("cargo:rerun-if-changed={}", map.display());
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={}", map.display());
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,librdmacm.so.1");
    // The compiler has a version script of its own, and GNU ld does not take both. Rust brings a linker
    // that does, and uses it by itself on x86-64 only.
    println!("cargo:rustc-cdylib-link-arg=-fuse-ld=lld");
    if let Some(folder) = linkers() {
        println!("cargo:rustc-cdylib-link-arg=-B{folder}");
    }
}

/// Where the C compiler finds the linker that Rust brings.
fn linkers() -> Option<String> {
    let (rustc, host) = (std::env::var_os("RUSTC")?, std::env::var("HOST").ok()?);
    let sysroot = Command::new(rustc).args(["--print", "sysroot"]).output().ok()?.stdout;
    let sysroot = String::from_utf8(sysroot).ok()?;
    Some(format!("{}/lib/rustlib/{host}/bin/gcc-ld", sysroot.trim_end()))
}

//! Gives the shared object its name and its symbol versions.
fn main() {
    let map = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("ibverbs.map");
    println!("cargo:rerun-if-changed={}", map.display());
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={}", map.display());
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libibverbs.so.1");
}

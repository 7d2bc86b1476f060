//! Embeds the shared objects of the directory `TRANSOM_CARRY` into the command, so that one file is all of Transom. An
//! ordinary build does not set it, and embeds none.

use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The variable that names the directory.
const VARIABLE: &str = "TRANSOM_CARRY";
/// The files to embed.
const NAMES: [&str; 6] = [
    "libibverbs.so.1",
    "librdmacm.so.1",
    "libtransom_malloc.so",
    "libtransom_freed.so",
    "libtransom_paths.so",
    "librspreload.so",
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed={VARIABLE}");
    let directory = env::var_os(VARIABLE).map(PathBuf::from);
    let carried = directory.map_or_else(|| declaration("", "&[]"), |directory| carried(&directory));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names a directory to write to"));
    fs::write(out.join("carried.rs"), carried).expect("what is carried is written down");
}

fn carried(directory: &Path) -> String {
    let mut digest = Sha256::new();
    let mut libraries = String::from("&[");
    for name in NAMES {
        let path = directory.join(name);
        println!("cargo:rerun-if-changed={}", path.display());
        let bytes = fs::read(&path);
        let bytes = bytes.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        digest.update(name);
        digest.update((bytes.len() as u64).to_le_bytes());
        digest.update(&bytes);
        write!(libraries, "({name:?}, include_bytes!({path:?})),").expect("a string takes all");
    }
    libraries.push(']');
    let digest = digest.finalize();
    let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    declaration(&digest, &libraries)
}

fn declaration(digest: &str, libraries: &str) -> String {
    format!(
        "/// The beginning of the SHA-256 of all that is carried.\n\
         const DIGEST: &str = {digest:?};\n\
         /// The shared objects, by the names that are asked for.\n\
         const LIBRARIES: &[(&str, &[u8])] = {libraries};\n"
    )
}

//! The checksums of the shipped files.

use crate::commands::Result;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The file that `sha256sum --check` reads.
const NAME: &str = "SHA256SUMS";

/// Writes the checksum of each file in a directory.
pub(crate) fn write(directory: &Path) -> Result {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_file() && entry.file_name() != NAME {
            names.push(entry.file_name().into_string().map_err(|name| format!("{name:?}"))?);
        }
    }
    names.sort();
    let mut sums = String::new();
    for name in names {
        writeln!(sums, "{}  {name}", of(&fs::read(directory.join(&name))?))?;
    }
    Ok(fs::write(directory.join(NAME), sums)?)
}

fn of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

//! Writes the captured packets as first inputs of the fuzz targets, into a folder for each target:
//! `cargo run -p transom-inputs --example captured -- FOLDER`.

use std::path::Path;
use std::{env, fs, io};

#[path = "../tests/arbitrary/first.rs"]
mod first;

fn main() -> io::Result<()> {
    let folder = env::args_os().nth(1).ok_or_else(|| io::Error::other("into which folder?"))?;
    for (target, name, input) in first::first() {
        let folder = Path::new(&folder).join(target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(name), input)?;
    }
    Ok(())
}

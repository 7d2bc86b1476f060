//! This project's own examples, which people learn from: those of the crate `transom`, and the C program in README.md.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use transom_conformance::documents::Document;
use transom_conformance::programs::{Running, installed};

use crate::installation::Installation;
use crate::meeting::{end_well, wait_for_listener};
use crate::place::Place;
use crate::program::PORT;

/// How long one of them may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs them all. `check` has a program checked.
pub(super) fn run(installation: &Installation, check: impl Fn(&mut Command)) -> Result<(), String> {
    for (_, path) in installation.targets("transom", "example")? {
        let mut command = Command::new(path);
        check(&mut command);
        Running::start(&mut command).success(LIMIT)?;
    }
    let hello = hello(installation)?;
    let command = || {
        let mut command = Command::new(&hello);
        check(command.env("LD_LIBRARY_PATH", installation.folder()));
        command
    };
    let mut server = Running::start(&mut command());
    wait_for_listener(&mut server, installation, Place::Here, PORT)?;
    let client = Running::start(command().arg("127.0.0.1"));
    end_well(vec![client, server], LIMIT).map(drop)
}

/// Compiles the C program in README.md.
fn hello(installation: &Installation) -> Result<PathBuf, String> {
    let blocks = Document::read("README.md").blocks();
    let block = blocks.iter().find(|block| block.language == "c").ok_or("README.md has no C")?;
    let binary = installation.folder().join("hello");
    let source = binary.with_extension("c");
    fs::write(&source, &block.text).map_err(|error| format!("{}: {error}", source.display()))?;
    let mut compile = Command::new(installed("cc", "gcc")?);
    compile.arg(&source).arg("-o").arg(&binary).args(["-lrdmacm", "-libverbs"]);
    Running::start(&mut compile).success(LIMIT)?;
    Ok(binary)
}

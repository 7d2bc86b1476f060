//! Programs of other crates, and the scripts in `ci`. Their exit status becomes that of `cargo xtask`.

use crate::commands::{Result, cargo};
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, ExitCode};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Runs other people's programs.
pub(crate) fn programs(arguments: &[OsString]) -> Result<ExitCode> {
    let built = ["--package", "transom-conformance", "--bin", "programs"];
    status(cargo_run().args(built).arg("--").args(arguments))
}

/// Runs the simulation.
pub(crate) fn simulate(arguments: &[OsString]) -> Result<ExitCode> {
    let built = ["--profile", "simulation", "--package", "transom-simulation", "--bin", "simulate"];
    status(cargo_run().args(built).arg("--").args(arguments))
}

/// Runs a script of `ci`.
pub(crate) fn script<A: AsRef<OsStr>>(
    name: &str,
    arguments: impl IntoIterator<Item = A>,
) -> Result<ExitCode> {
    status(Command::new(Path::new(ROOT).join("ci").join(name)).args(arguments))
}

fn cargo_run() -> Command {
    let mut command = Command::new(cargo());
    command.args(["run", "--quiet", "--locked", "--manifest-path"]);
    command.arg(Path::new(ROOT).join("Cargo.toml"));
    command
}

fn status(command: &mut Command) -> Result<ExitCode> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    // The shell has already reported a signal.
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

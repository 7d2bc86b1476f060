//! Runs commands, and reports their failures.

use std::error::Error;
use std::ffi::OsString;
use std::process::Command;

pub(crate) type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// The `cargo` that has started this. Without one it is that of `PATH`: rustup's chooses one toolchain for all that it
/// compiles, and the compiler alone would choose by the folder of each crate.
pub(crate) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Result {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}

/// The standard output of a command.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("{command:?}: {}\n{said}", output.status).into())
    }
}

/// The standard output of a command, as a line.
pub(crate) fn line(command: &mut Command) -> Result<String> {
    Ok(String::from_utf8(output(command)?)?.trim_end().to_owned())
}

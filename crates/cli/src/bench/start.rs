//! Starting a process that measures.

use std::os::unix::process::CommandExt;
use std::process::Command;

use super::setup::{Role, Setup};
use crate::failure::{Failure, Result};
use crate::run::library::MALLOC;
use crate::run::locate::preloaded;

/// The hidden subcommand of such a process.
pub(crate) const PROCESS: &str = "bench-process";

/// The command that starts such a process.
pub(super) fn start(setup: Setup, role: Role) -> Result<Command> {
    // This program itself, even if its file has been replaced since.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("transom").arg(PROCESS);
    command.arg(match role {
        Role::Near => "near",
        Role::Far => "far",
        Role::Bystander => "bystander",
    });
    command.arg(serde_json::to_string(&setup).map_err(Failure::new)?);
    if setup.run {
        let library = preloaded(MALLOC).map_err(Failure::new)?;
        command.env("LD_PRELOAD", library);
    }
    Ok(command)
}

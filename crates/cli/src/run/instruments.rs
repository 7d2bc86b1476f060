//! What `transom run` has the device do beside its work: go wrong on purpose.

use crate::failure::{Failure, Result};
use std::process::Command;
use transom_host::faults::{self, Fault, Faults};

/// Where a program finds that every link must be the one with packets.
const LINK: &str = "TRANSOM_LINK";

#[derive(clap::Args)]
pub(super) struct InstrumentArgs {
    /// Have something go wrong, such as loss=1% or nak=remote-access,op=read,nth=3; see --help
    #[arg(long = "fault", value_name = "FAULT")]
    faults: Vec<Fault>,
}

/// Hands what is asked for to the program.
pub(super) fn attach(args: &InstrumentArgs, command: &mut Command) -> Result {
    let refuse = |error| Failure::with_status(2, format_args!("--fault: {error}"));
    let all = Faults::new(args.faults.iter().copied()).map_err(refuse)?;
    if !all.is_empty() {
        command.env(faults::VARIABLE, all.to_string());
    }
    if all.need_wire() {
        command.env(LINK, "wire");
    }
    Ok(())
}

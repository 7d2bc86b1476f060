//! Options of `transom run` for faults and captures.

use crate::devices::registry;
use crate::failure::{Failure, Result};
use crate::shell::option;
use std::path::PathBuf;
use std::process::Command;
use transom_host::capture;
use transom_net::faults::{Fault, Faults};
use transom_system::environment::{CAPTURE, FAULT, FAULT_RUN, LINK};
use transom_system::registry::Run;

#[derive(clap::Args)]
pub(super) struct InstrumentArgs {
    /// Write all that the program sends and receives to a file, as RoCEv2 packets for Wireshark
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    capture: Option<PathBuf>,
    /// Make something go wrong, such as loss=1% or nak=remote-access,op=read,nth=3; see below
    #[arg(long = "fault", value_name = "FAULT")]
    faults: Vec<Fault>,
}

impl InstrumentArgs {
    /// The options as the user may type them, each with a space before it.
    pub(super) fn options(&self) -> impl Iterator<Item = String> {
        let capture = self.capture.iter().map(|file| option("capture", file));
        capture.chain(self.faults.iter().map(|fault| option("fault", fault.to_string())))
    }
}

/// Passes the options on to the program, which has so many devices.
pub(super) fn attach(args: &InstrumentArgs, devices: usize, command: &mut Command) -> Result {
    let refuse = |error| Failure::with_status(2, format_args!("--fault: {error}"));
    let all = Faults::new(args.faults.iter().copied()).map_err(refuse)?;
    all.check_devices(devices).map_err(refuse)?;
    if !all.is_empty() {
        command.env(FAULT.name, all.to_string());
    }
    if all.network.is_some() {
        command.env(FAULT_RUN.name, begin_run()?.to_string());
    }
    if all.need_wire() {
        command.env(LINK.name, "wire");
    }
    if let Some(file) = &args.capture {
        // The program may change its directory before it opens the file.
        let path = std::path::absolute(file).unwrap_or_else(|_| file.clone());
        capture::begin(&path).map_err(|error| {
            let path = path.display();
            Failure::new(format_args!(
                "cannot write the capture to {path}: {error}; name a file that you may write"
            ))
        })?;
        command.env(CAPTURE.name, path);
    }
    Ok(())
}

/// Begins a run that counts its devices, so that each has the same chances when you repeat the run.
fn begin_run() -> Result<Run> {
    let mark = getrandom::u32().map_err(|error| {
        Failure::new(format_args!("the system has no random numbers for --fault: {error}"))
    })?;
    Ok(registry()?.begin_run(mark))
}

//! `transom bench`.

use std::process::ExitCode;

/// What to measure.
#[derive(clap::Args)]
pub(crate) struct BenchArgs {}

/// Says that there is nothing here yet.
pub(crate) fn run(_args: BenchArgs) -> ExitCode {
    eprintln!("error: `transom bench` is not there yet");
    ExitCode::FAILURE
}

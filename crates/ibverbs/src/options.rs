//! Options of a device, from the environment. A program that has more rights than its user gets the defaults.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use transom_host::{Copying, Memory, OpenError, Options};
use transom_net::faults::Faults;
use transom_system::environment::{
    CAPTURE, CONGESTION, CONNECT_TIMEOUT, COPY, EXPLAIN, FAULT, FAULT_RUN, LAST_BYTE, LINK, MEMORY,
    NotAllowed, SET_BY_A_RUN, TRACE, WATCHER, WINDOWS,
};
use transom_system::{log, sanitizers};

use crate::description::Description;

/// The options of a device of this process (windows of kind 2A: rule MWA-07).
///
/// # Errors
/// A variable has a value that is not allowed.
pub(crate) fn read() -> Result<Options, OpenError> {
    let options = chosen().map_err(|error| refused(error.into()))?;
    Ok(Options { faults: faults()?, ..options })
}

/// Checks the environment variables that a device reads when it opens.
///
/// # Errors
/// A variable has a value that is not allowed. The error names the variable and the allowed values.
pub fn check_environment() -> Result<(), OpenError> {
    read().map(drop)
}

fn refused(cause: io::Error) -> OpenError {
    OpenError::new("reading the environment", cause)
}

/// All options except the faults.
fn chosen() -> Result<Options, NotAllowed> {
    // Only check it here: the shared object has already started the log.
    log::level()?;
    sanitizers::last_byte_tells(LAST_BYTE.choose(&[("tells", true)])?.unwrap_or(false));
    let milliseconds = |text: &str| text.parse::<u64>().ok().filter(|time| *time > 0);
    Ok(Options {
        windows_2a: WINDOWS.choose(&[("2A", true), ("2B", false)])?.unwrap_or(false),
        wire_only: LINK.choose(&[("wire", true)])?.unwrap_or(false),
        congestion: CONGESTION.choose(&[("notify", true)])?.unwrap_or(false),
        copying: COPY
            .choose(&[("rings", Copying::Rings), ("best", Copying::Best)])?
            .unwrap_or(Copying::Best),
        memory: MEMORY
            .choose(&[("private", Memory::Private), ("shared", Memory::Shared)])?
            .unwrap_or(Memory::Shared),
        faults: None,
        run: FAULT_RUN.parse(SET_BY_A_RUN, |text| text.parse().ok())?,
        watcher: WATCHER.watcher()?,
        tracer: TRACE.watcher()?,
        explainer: EXPLAIN.watcher()?,
        capture: capture(),
        connect_timeout: CONNECT_TIMEOUT.parse("a number of milliseconds from 1", milliseconds)?,
        ..Options::default()
    })
}

/// The file that `transom run --capture` names.
fn capture() -> Option<&'static Path> {
    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    FILE.get_or_init(|| CAPTURE.text().map(PathBuf::from)).as_deref()
}

/// The faults of this process. They are read once.
fn faults() -> Result<Option<&'static Faults>, OpenError> {
    static FAULTS: OnceLock<Option<Faults>> = OnceLock::new();
    if let Some(faults) = FAULTS.get() {
        return Ok(faults.as_ref());
    }
    let devices = Description::chosen().map_or(1, <[_]>::len);
    let faults = FAULT.text().map(|text| {
        let all = text.to_string_lossy().parse::<Faults>();
        let all = all.and_then(|all| all.check_devices(devices).map(|()| all));
        all.map_err(|error| {
            refused(io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {error}", FAULT.name)))
        })
    });
    let faults = faults.transpose()?;
    Ok(FAULTS.get_or_init(|| faults).as_ref())
}

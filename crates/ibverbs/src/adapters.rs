//! The devices of this process: the one that it opens for itself, as the environment says, and all
//! that contexts were made on.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use transom_host::capture;
use transom_host::device::Device;
use transom_host::{Adapter, Copying, Memory, OpenError, Options};
use transom_net::faults::{self, FaultError, Faults};
use transom_system::environment;
use transom_system::registry::{self, Run};

use crate::device_name::DeviceName;

/// The device of this process, if a context is open.
static DEVICE: Mutex<Option<Weak<Adapter>>> = Mutex::new(None);

/// The devices that contexts were made on.
static DEVICES: Mutex<Vec<Weak<Adapter>>> = Mutex::new(Vec::new());

/// The device of this process, if it is open.
pub(crate) fn opened() -> Option<Arc<Adapter>> {
    let open = DEVICE.lock().as_ref().and_then(Weak::upgrade);
    // The parent's is not a forked child's to use.
    open.filter(|adapter| !adapter.device().process().is_inherited())
}

/// The device of this process, opened unless it is.
pub(crate) fn open() -> Result<Arc<Adapter>, OpenError> {
    let mut device = DEVICE.lock();
    let open = device.as_ref().and_then(Weak::upgrade);
    // After a fork the child opens a device of its own; the parent's is not its to use.
    if let Some(adapter) = open.filter(|adapter| !adapter.device().process().is_inherited()) {
        return adapter.device().check().map(|()| adapter);
    }
    DeviceName::chosen().map_err(|error| {
        let cause = io::Error::new(io::ErrorKind::InvalidInput, error);
        OpenError::new("reading TRANSOM_DEVICE_NAME", cause)
    })?;
    let opened = Adapter::open(options()?)?;
    *device = Some(Arc::downgrade(&opened));
    Ok(opened)
}

/// Device options from the environment: `TRANSOM_WINDOWS=2A` for windows of kind 2A (rule MWA-07),
/// `TRANSOM_CONGESTION=notify` to have packets marked where the network is congested,
/// `TRANSOM_LINK=wire` to send everything as packets, `TRANSOM_MEMORY=private` to have no shared memory,
/// `TRANSOM_COPY=rings` to copy through rings even where the kernel would copy directly, `TRANSOM_CONNECT_TIMEOUT=MILLISECONDS` to give up sooner a peer that
/// does not answer a request for a connection, and what `transom run` asks for with `--fault` and
/// `--capture`.
/// A program that has rights its user does not have gets the usual ones.
fn options() -> Result<Options, OpenError> {
    let is = |name, value| environment::variable(name).is_some_and(|found| found == value);
    Ok(Options {
        windows_2a: is("TRANSOM_WINDOWS", "2A"),
        wire_only: is("TRANSOM_LINK", "wire"),
        congestion: is("TRANSOM_CONGESTION", "notify"),
        copying: if is("TRANSOM_COPY", "rings") { Copying::Rings } else { Copying::Best },
        memory: memory()?,
        faults: faults()?,
        run: run(),
        watcher: watcher(),
        capture: capture(),
        connect_timeout: connect_timeout()?,
    })
}

/// Which memory is shared: `TRANSOM_MEMORY`.
fn memory() -> Result<Memory, OpenError> {
    let Some(text) = environment::variable("TRANSOM_MEMORY") else { return Ok(Memory::Shared) };
    match text.to_str() {
        Some("private") => Ok(Memory::Private),
        Some("shared" | "") => Ok(Memory::Shared),
        _ => {
            let text = format!("{} is neither private nor shared", text.to_string_lossy());
            let cause = io::Error::new(io::ErrorKind::InvalidInput, text);
            Err(OpenError::new("reading TRANSOM_MEMORY", cause))
        }
    }
}

/// How long connections are waited for: `TRANSOM_CONNECT_TIMEOUT`, in milliseconds.
fn connect_timeout() -> Result<Option<u64>, OpenError> {
    let Some(text) = environment::variable("TRANSOM_CONNECT_TIMEOUT") else { return Ok(None) };
    let parsed = text.to_str().and_then(|text| text.parse::<u64>().ok()).filter(|time| *time > 0);
    let refuse = || {
        let text = format!("{} is no number of milliseconds", text.to_string_lossy());
        let cause = io::Error::new(io::ErrorKind::InvalidInput, text);
        OpenError::new("reading TRANSOM_CONNECT_TIMEOUT", cause)
    };
    parsed.map(Some).ok_or_else(refuse)
}

/// The file that `transom run --capture` names.
fn capture() -> Option<&'static Path> {
    static CAPTURE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let named = || environment::variable(capture::VARIABLE).filter(|path| !path.is_empty());
    CAPTURE.get_or_init(|| named().map(PathBuf::from)).as_deref()
}

/// The faults of this process, read once.
fn faults() -> Result<Option<&'static Faults>, OpenError> {
    static FAULTS: OnceLock<Option<Faults>> = OnceLock::new();
    if let Some(faults) = FAULTS.get() {
        return Ok(faults.as_ref());
    }
    let faults = match environment::variable(faults::VARIABLE) {
        Some(text) if !text.is_empty() => {
            let refuse = |error: FaultError| io::Error::new(io::ErrorKind::InvalidInput, error);
            let parsed = text.to_string_lossy().parse().map_err(refuse);
            Some(parsed.map_err(|cause| OpenError::new("reading TRANSOM_FAULT", cause))?)
        }
        _ => None,
    };
    Ok(FAULTS.get_or_init(|| faults).as_ref())
}

/// The run of `transom run --fault` that this process belongs to.
fn run() -> Option<Run> {
    environment::variable(faults::RUN)?.to_str()?.parse().ok()
}

/// The process that `transom run` has beside this one.
fn watcher() -> Option<u64> {
    u64::from_str_radix(environment::variable(registry::WATCHER)?.to_str()?, 16).ok()
}

/// Remembers a device that a context is made on.
pub(crate) fn note(adapter: &Arc<Adapter>) {
    let mut devices = DEVICES.lock();
    devices.retain(|known| known.strong_count() > 0);
    if !devices.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(adapter))) {
        devices.push(Arc::downgrade(adapter));
    }
}

/// The device that contexts were made on, if it is one only.
pub(crate) fn only() -> Option<Arc<Device>> {
    let devices = DEVICES.lock();
    let own = |adapter: &Arc<Adapter>| !adapter.device().process().is_inherited();
    let mut known = devices.iter().filter_map(Weak::upgrade).filter(own);
    let only = known.next().filter(|_| known.next().is_none());
    only.map(|adapter| adapter.device().clone())
}

/// The device with contexts that a descriptor names.
pub(crate) fn named_by(fd: BorrowedFd<'_>) -> Option<Arc<Adapter>> {
    let known: Vec<_> = DEVICES.lock().iter().filter_map(Weak::upgrade).collect();
    known.into_iter().find(|adapter| adapter.device().process().is_named_by(fd))
}

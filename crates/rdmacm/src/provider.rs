//! The source of verbs, of the file and of devices.

use std::sync::OnceLock;

use libloading::Library;

use crate::device::{Device, Devices};
use crate::file::FileCalls;
use crate::verbs::Verbs;
use crate::wrong::Wrong;

/// The verbs and the file to make ids with, and the devices to bind them to.
#[derive(Debug)]
pub struct Provider {
    pub(crate) verbs: Verbs,
    pub(crate) calls: FileCalls,
    devices: Devices,
}

impl Provider {
    /// A provider of these verbs and this file. Both must belong to the same devices.
    pub const fn new(verbs: Verbs, calls: FileCalls) -> Self {
        Self { verbs, calls, devices: Devices::new() }
    }

    pub(crate) fn device(&'static self, guid: u64, index: u32) -> Result<&'static Device, Wrong> {
        self.devices.find(&self.verbs, guid, index)
    }

    pub(crate) fn all_devices(&'static self) -> Result<Vec<&'static Device>, Wrong> {
        self.devices.all(&self.verbs)
    }
}

/// Chooses the provider of functions that have no channel or id yet. Channels and ids remember theirs.
pub trait Source {
    /// The provider, one for the process.
    ///
    /// # Errors
    /// A sentence with the reason, if there is none.
    fn provider() -> Result<&'static Provider, &'static str>;
}

/// The `libibverbs.so.1` of this process, as the loader finds it.
#[derive(Debug)]
pub enum Loaded {}

impl Source for Loaded {
    fn provider() -> Result<&'static Provider, &'static str> {
        static PROVIDER: OnceLock<Result<Provider, &'static str>> = OnceLock::new();
        PROVIDER.get_or_init(load).as_ref().map_err(|said| *said)
    }
}

fn load() -> Result<Provider, &'static str> {
    // SAFETY: the loader finds a libibverbs under this name. If it finds something else, the user who runs the program
    // has arranged that, as with all dynamic linking.
    let library = unsafe { Library::new("libibverbs.so.1") };
    let library = library.map_err(|_| "libibverbs.so.1 cannot be loaded: see `transom doctor`")?;
    // SAFETY: it is a libibverbs.
    let verbs = unsafe { Verbs::load(&library) };
    let verbs = verbs.map_err(|_| "libibverbs.so.1 lacks a verb: is it older than version 34?")?;
    // SAFETY: it is a libibverbs.
    let calls = unsafe { FileCalls::of(&library) }.unwrap_or(FileCalls::KERNEL);
    // It has threads, and others keep pointers to its code, so it is never unloaded.
    std::mem::forget(library);
    Ok(Provider::new(verbs, calls))
}

/// The provider that was asked for first. It keeps the reasons of refused functions.
static CURRENT: OnceLock<&'static Provider> = OnceLock::new();

/// The provider of a source.
pub(crate) fn provider<S: Source>() -> Result<&'static Provider, Wrong> {
    let provider = S::provider().map_err(|said| Wrong::new(libc::ENOSYS, said))?;
    Ok(CURRENT.get_or_init(|| provider))
}

/// The provider of this process. If the process has asked for none yet, it is the one that it would get.
pub(crate) fn current() -> Result<&'static Provider, Wrong> {
    CURRENT.get().copied().map_or_else(provider::<Loaded>, Ok)
}

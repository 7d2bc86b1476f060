//! Where verbs, the file and devices come from.

use std::ffi::c_int;
use std::sync::OnceLock;

use libloading::Library;

use crate::device::{Device, Devices};
use crate::file::FileCalls;
use crate::verbs::Verbs;

/// The verbs and the file that ids are made with, and the devices that they are bound to.
#[derive(Debug)]
pub struct Provider {
    pub(crate) verbs: Verbs,
    pub(crate) calls: FileCalls,
    devices: Devices,
}

impl Provider {
    /// The file is that of the devices that the verbs know.
    pub const fn new(verbs: Verbs, calls: FileCalls) -> Self {
        Self { verbs, calls, devices: Devices::new() }
    }

    pub(crate) fn device(&'static self, guid: u64, index: u32) -> Result<&'static Device, c_int> {
        self.devices.find(&self.verbs, guid, index)
    }

    pub(crate) fn all_devices(&'static self) -> Result<Vec<&'static Device>, c_int> {
        self.devices.all(&self.verbs)
    }
}

/// Says where functions that begin with nothing take theirs from: channels and ids remember it.
pub trait Source {
    /// The provider, one for the process.
    ///
    /// # Errors
    /// An errno, if it is not to be had.
    fn provider() -> Result<&'static Provider, c_int>;
}

/// The `libibverbs.so.1` of this process, as the loader finds it.
#[derive(Debug)]
pub enum Loaded {}

impl Source for Loaded {
    fn provider() -> Result<&'static Provider, c_int> {
        static PROVIDER: OnceLock<Result<Provider, c_int>> = OnceLock::new();
        PROVIDER.get_or_init(load).as_ref().map_err(|errno| *errno)
    }
}

fn load() -> Result<Provider, c_int> {
    // SAFETY: by this name the loader finds a libibverbs; what else it could find is up to who runs
    // the program, as with every dynamic linking.
    let library = unsafe { Library::new("libibverbs.so.1") }.map_err(|_| libc::ENOSYS)?;
    // SAFETY: it is a libibverbs.
    let verbs = unsafe { Verbs::load(&library) }.map_err(|_| libc::ENOSYS)?;
    // SAFETY: it is a libibverbs.
    let calls = unsafe { FileCalls::of(&library) }.unwrap_or(FileCalls::KERNEL);
    // It has threads and keeps pointers to its code, so it stays.
    std::mem::forget(library);
    Ok(Provider::new(verbs, calls))
}

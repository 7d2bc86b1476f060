//! The devices of this process: the one that it opens for itself, and all devices that have contexts.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use transom_host::device::Device;
use transom_host::{Adapter, OpenError};

use crate::device_name::DeviceName;
use crate::options;

/// The device of this process, if a context is open.
static DEVICE: Mutex<Option<Weak<Adapter>>> = Mutex::new(None);

/// The devices that have contexts.
static DEVICES: Mutex<Vec<Weak<Adapter>>> = Mutex::new(Vec::new());

/// The device of this process, if it is open.
pub(crate) fn opened() -> Option<Arc<Adapter>> {
    let open = DEVICE.lock().as_ref().and_then(Weak::upgrade);
    // A forked child must not use its parent's device.
    open.filter(|adapter| !adapter.device().process().is_inherited())
}

/// The device of this process. It is opened if it is not open.
pub(crate) fn open() -> Result<Arc<Adapter>, OpenError> {
    let mut device = DEVICE.lock();
    let open = device.as_ref().and_then(Weak::upgrade);
    // After a fork the child opens a device of its own. It must not use its parent's.
    if let Some(adapter) = open.filter(|adapter| !adapter.device().process().is_inherited()) {
        return adapter.device().check().map(|()| adapter);
    }
    DeviceName::chosen().map_err(|error| {
        let cause = io::Error::new(io::ErrorKind::InvalidInput, error);
        OpenError::new("reading TRANSOM_DEVICE_NAME", cause)
    })?;
    let opened = Adapter::open(options::read()?)?;
    *device = Some(Arc::downgrade(&opened));
    Ok(opened)
}

/// Remembers a device that gets a context.
pub(crate) fn note(adapter: &Arc<Adapter>) {
    let mut devices = DEVICES.lock();
    devices.retain(|known| known.strong_count() > 0);
    if !devices.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(adapter))) {
        devices.push(Arc::downgrade(adapter));
    }
}

/// The device that has contexts, if there is only one.
pub(crate) fn only() -> Option<Arc<Device>> {
    let devices = DEVICES.lock();
    let own = |adapter: &Arc<Adapter>| !adapter.device().process().is_inherited();
    let mut known = devices.iter().filter_map(Weak::upgrade).filter(own);
    let only = known.next().filter(|_| known.next().is_none());
    only.map(|adapter| adapter.device().clone())
}

/// The device at this address, if it has contexts.
pub(crate) fn at(address: *const Device) -> Option<Arc<Device>> {
    let known: Vec<_> = DEVICES.lock().iter().filter_map(Weak::upgrade).collect();
    let mut devices = known.iter().map(|adapter| adapter.device());
    devices.find(|device| std::ptr::eq(Arc::as_ptr(device), address)).cloned()
}

/// The device that a descriptor names, if it has contexts.
pub(crate) fn named_by(fd: BorrowedFd<'_>) -> Option<Arc<Adapter>> {
    let known: Vec<_> = DEVICES.lock().iter().filter_map(Weak::upgrade).collect();
    known.into_iter().find(|adapter| adapter.device().process().is_named_by(fd))
}

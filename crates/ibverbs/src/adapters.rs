//! The devices of this process: those that it opens for itself, and all devices that have contexts.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::sync::{Arc, Weak};

use transom_host::device::Device;
use transom_host::{Adapter, OpenError, Options};
use transom_system::lock::SleepingMutex;
use transom_system::{fork, registry};

use crate::description::Description;
use crate::options;

/// The devices that this process has opened, by number.
static OPENED: SleepingMutex<[Option<Weak<Adapter>>; registry::DEVICES]> =
    SleepingMutex::new([const { None }; registry::DEVICES]);

/// How many devices this process has opened so far.
static OPENINGS: AtomicU32 = AtomicU32::new(0);

/// The devices that have contexts.
static DEVICES: SleepingMutex<Vec<Weak<Adapter>>> = SleepingMutex::new(Vec::new());

/// The first device of this process that is open.
pub(crate) fn opened() -> Option<Arc<Adapter>> {
    let devices = OPENED.lock();
    let open = devices.iter().flatten().filter_map(Weak::upgrade);
    // A forked child must not use its parent's device.
    let mut own = open.filter(|adapter| !adapter.device().process().is_inherited());
    own.next()
}

/// The device of this number of this process. It is opened if it is not open.
pub(crate) fn open(number: u8) -> Result<Arc<Adapter>, OpenError> {
    fork::hold_too(&[&OPENED, &DEVICES]);
    let mut devices = OPENED.lock();
    let device = &mut devices[usize::from(number)];
    let open = device.as_ref().and_then(Weak::upgrade);
    // After a fork the child opens a device of its own. It must not use its parent's.
    if let Some(adapter) = open.filter(|adapter| !adapter.device().process().is_inherited()) {
        return adapter.device().check().map(|()| adapter);
    }
    let described = Description::chosen().map_err(|error| {
        let cause = io::Error::new(io::ErrorKind::InvalidInput, error);
        OpenError::new("reading the environment", cause)
    })?;
    let own = described.get(usize::from(number));
    let options = Options {
        number,
        others: described.len().saturating_sub(1) as u8,
        port_is_down: own.is_some_and(|it| it.port_is_down),
        interface: own.and_then(Description::interface),
        ..options::read()?
    };
    let opened = Adapter::open(options)?;
    *device = Some(Arc::downgrade(&opened));
    OPENINGS.fetch_add(1, SeqCst);
    Ok(opened)
}

/// How many devices this process has opened so far.
pub(crate) fn openings() -> u32 {
    OPENINGS.load(SeqCst)
}

/// The device of this number of this process, if it is open.
pub(crate) fn if_open(number: u8) -> Option<Arc<Adapter>> {
    let devices = OPENED.lock();
    let open = devices.get(usize::from(number))?.as_ref().and_then(Weak::upgrade);
    open.filter(|adapter| !adapter.device().process().is_inherited())
}

/// The first device of this process that can be used, for the connection manager. It is opened if it is not open.
pub(crate) fn open_first() -> Result<Arc<Adapter>, OpenError> {
    let count = Description::chosen().map_or(1, <[_]>::len) as u8;
    let first = open(0);
    match first {
        Err(_) => (1..count).find_map(|number| open(number).ok()).map_or(first, Ok),
        Ok(_) => first,
    }
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

//! The devices that ids are bound to. Each is opened once and stays open, as programs expect of the devices from
//! `rdma_get_devices(3)`. A forked child must not use its parent's devices, and opens its own.

use std::ffi::{CStr, c_int};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::*};

use parking_lot::Mutex;
use transom_abi::*;

use crate::check::OwnWork;
use crate::fork;
use crate::verbs::{Verbs, done, made};
use crate::wrong::Wrong;

/// An open device.
#[derive(Debug)]
pub(crate) struct Device {
    verbs: &'static Verbs,
    /// Its identity in answers of the file, network byte order.
    guid: u64,
    index: c_int,
    name: Vec<u8>,
    pub(crate) context: *mut ibv_context,
    /// The most responder resources and the greatest initiator depth of a queue pair.
    pub(crate) limits: (u8, u8),
    shared: Mutex<Shared>,
}

// SAFETY: libibverbs is thread-safe, and a device is never closed.
unsafe impl Send for Device {}
// SAFETY: as for `Send`.
unsafe impl Sync for Device {}

/// The domains of ids that bring none of their own.
#[derive(Debug)]
struct Shared {
    /// How many ids use them.
    users: usize,
    pd: *mut ibv_pd,
    xrcd: *mut ibv_xrcd,
}

impl Device {
    fn open(verbs: &'static Verbs, device: *mut ibv_device) -> Result<Self, Wrong> {
        // SAFETY: the device is in a list that is not yet freed.
        let context = made("ibv_open_device", unsafe { (verbs.ibv_open_device)(device) })?;
        // SAFETY: all zeros are valid attributes.
        let mut attr: ibv_device_attr = unsafe { std::mem::zeroed() };
        // SAFETY: the context was just opened.
        done("ibv_query_device", unsafe { (verbs.ibv_query_device)(context, &mut attr) })?;
        let few = |count: c_int| u8::try_from(count.max(0)).unwrap_or(u8::MAX);
        let shared = Shared { users: 0, pd: null_mut(), xrcd: null_mut() };
        let (guid, index, name) = identity(verbs, device);
        Ok(Self {
            verbs,
            guid,
            index,
            name,
            context,
            limits: (few(attr.max_qp_rd_atom), few(attr.max_qp_init_rd_atom)),
            shared: Mutex::new(shared),
        })
    }

    /// The protection domain of ids that bring none.
    pub(crate) fn pd(&self) -> Result<*mut ibv_pd, Wrong> {
        let _own = OwnWork::begin();
        let mut shared = self.shared.lock();
        if shared.pd.is_null() {
            // SAFETY: the context is open.
            shared.pd = made("ibv_alloc_pd", unsafe { (self.verbs.ibv_alloc_pd)(self.context) })?;
        }
        Ok(shared.pd)
    }

    /// The XRC domain of ids that bring none.
    pub(crate) fn xrcd(&self) -> Result<*mut ibv_xrcd, Wrong> {
        let _own = OwnWork::begin();
        let mut shared = self.shared.lock();
        if shared.xrcd.is_null() {
            // SAFETY: the context is open.
            shared.xrcd = unsafe { self.verbs.open_xrcd(self.context) }?;
        }
        Ok(shared.xrcd)
    }

    /// An id is bound to it.
    pub(crate) fn taken(&self) {
        self.shared.lock().users += 1;
    }

    /// An id that was bound to it is gone. With the last one, the shared domains end.
    pub(crate) fn left(&self) {
        let _own = OwnWork::begin();
        let mut shared = self.shared.lock();
        shared.users = shared.users.saturating_sub(1);
        if shared.users > 0 {
            return;
        }
        // If the program still has objects in a domain, the domain stays.
        // SAFETY: `pd` allocated it, and it was not freed since.
        if !shared.pd.is_null() && unsafe { (self.verbs.ibv_dealloc_pd)(shared.pd) } == 0 {
            shared.pd = null_mut();
        }
        // SAFETY: `xrcd` opened it, and it was not closed since.
        if !shared.xrcd.is_null() && unsafe { self.verbs.close_xrcd(shared.xrcd) }.is_ok() {
            shared.xrcd = null_mut();
        }
    }
}

/// GUID, index and name.
fn identity(verbs: &Verbs, device: *mut ibv_device) -> (u64, c_int, Vec<u8>) {
    // SAFETY: the device is in a list that is not yet freed, and its name ends with a zero.
    unsafe {
        let name = CStr::from_ptr((&raw const (*device).name).cast()).to_bytes().to_vec();
        ((verbs.ibv_get_device_guid)(device), (verbs.ibv_get_device_index)(device), name)
    }
}

/// The open devices.
#[derive(Debug)]
pub(crate) struct Devices(AtomicPtr<Opened>);

/// The devices that one process has opened.
#[derive(Debug)]
struct Opened {
    /// The process, by its [`fork::depth`].
    depth: u64,
    devices: Mutex<Vec<&'static Device>>,
}

impl Devices {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// The devices of this process. Inherited ones are left in memory, because they stay open.
    fn of_this_process(&self) -> &'static Mutex<Vec<&'static Device>> {
        let mut current = self.0.load(Acquire);
        loop {
            // SAFETY: if it is not null, it was leaked below.
            match unsafe { current.as_ref() } {
                Some(opened) if opened.depth == fork::depth() => return &opened.devices,
                _ => {}
            }
            fork::watch();
            let devices = Mutex::new(Vec::new());
            let new = Box::into_raw(Box::new(Opened { depth: fork::depth(), devices }));
            match self.0.compare_exchange(current, new, AcqRel, Acquire) {
                Ok(_) => current = new,
                Err(others) => {
                    // SAFETY: nobody else has seen it.
                    drop(unsafe { Box::from_raw(new) });
                    current = others;
                }
            }
        }
    }

    /// The device in an answer of the file. If several have the same GUID, the kernel's index chooses.
    pub(crate) fn find(
        &self,
        verbs: &'static Verbs,
        guid: u64,
        index: u32,
    ) -> Result<&'static Device, Wrong> {
        let of = |open: &[&'static Device]| {
            let mut same = open.iter().copied().filter(|device| device.guid == guid);
            let first = same.next()?;
            let exact = |device: &&Device| u32::try_from(device.index) == Ok(index);
            Some(std::iter::once(first).chain(same).find(exact).unwrap_or(first))
        };
        let mut open = self.of_this_process().lock();
        if let Some(found) = of(&open) {
            return Ok(found);
        }
        open_all(verbs, &mut open, |(theirs, ..)| *theirs == guid)?;
        of(&open).ok_or(Wrong::new(
            libc::ENODEV,
            "no device that libibverbs lists has the GUID that rdma_cm names",
        ))
    }

    /// All devices.
    pub(crate) fn all(&self, verbs: &'static Verbs) -> Result<Vec<&'static Device>, Wrong> {
        let mut open = self.of_this_process().lock();
        open_all(verbs, &mut open, |_| true)?;
        Ok(open.clone())
    }
}

/// Opens the wanted devices that are not open yet.
fn open_all(
    verbs: &'static Verbs,
    open: &mut Vec<&'static Device>,
    wanted: impl Fn(&(u64, c_int, Vec<u8>)) -> bool,
) -> Result<(), Wrong> {
    let mut count = 0;
    // SAFETY: there is room for their number.
    let list = made("ibv_get_device_list", unsafe { (verbs.ibv_get_device_list)(&mut count) })?;
    let mut result = Ok(());
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the list has `count` devices.
        let device = unsafe { *list.add(at) };
        let identity = identity(verbs, device);
        let is_open = |device: &&Device| device.guid == identity.0 && device.name == identity.2;
        if !wanted(&identity) || open.iter().any(is_open) {
            continue;
        }
        match Device::open(verbs, device) {
            Ok(device) => open.push(Box::leak(Box::new(device))),
            Err(errno) => result = Err(errno),
        }
    }
    // SAFETY: the list is freed once, and open devices stay open.
    unsafe { (verbs.ibv_free_device_list)(list) };
    result
}

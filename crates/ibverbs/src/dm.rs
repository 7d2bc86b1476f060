//! `ibv_alloc_dm(3)`, `ibv_import_dm(3)`.

use std::ffi::{c_int, c_void};
use std::io;
use std::sync::Arc;

use transom_abi::*;
use transom_host::objects::{AllocateError, DeviceMemory};
use transom_system::fork::HeldOverForks;
use transom_system::registry::{Holder, Holders};

use crate::context::Context;
use crate::entry::{effect_always, errno_always, errno_of, pointer_of};
use crate::object::Table;
use crate::rehearse;
use crate::wrong::Wrong;

/// One name of device memory, in one context.
struct Dm {
    memory: Arc<DeviceMemory>,
    /// Whether it is a second name, made by [`ibv_import_dm`].
    imported: bool,
}

static DMS: Table<ibv_dm, Dm> = Table::new();

/// The lock of all of them.
pub(crate) fn lock() -> &'static dyn HeldOverForks {
    &DMS
}

/// The memory that a pointer names.
///
/// # Safety
/// `dm` is null or readable.
pub(crate) unsafe fn find(dm: *const ibv_dm) -> Result<Arc<DeviceMemory>, c_int> {
    // SAFETY: by the contract of this function.
    let found = unsafe { DMS.with(dm, |object| object.inner.memory.clone()) }?;
    if found.is_closed() { Err(libc::ENOENT) } else { Ok(found) }
}

fn enter(
    context: *mut ibv_context,
    ours: &Context,
    memory: Arc<DeviceMemory>,
    imported: bool,
) -> *mut ibv_dm {
    ours.adopt();
    let abi = ibv_dm {
        context,
        memcpy_to_dm: Some(memcpy_to_dm),
        memcpy_from_dm: Some(memcpy_from_dm),
        comp_mask: IBV_DM_MASK_HANDLE,
        handle: 0,
    };
    DMS.insert(abi, |_| Dm { memory, imported })
}

/// Allocates zeroed device memory. There are `max_dm_size` bytes of it in all. `ENOMEM` when they are used up.
///
/// # Safety
/// `context` is open; `attr` is null or readable.
pub(crate) unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    pointer_of("ibv_alloc_dm", || {
        // SAFETY: by the contract of this verb.
        let (ours, attr) = unsafe { (Context::of(context), attr.as_ref()) };
        // Also in a forked child, whose device is inherited: the memory belongs to that process alone, and programs
        // share an adapter's memory in this way.
        let (Some(ours), Some(attr)) = (ours, attr) else { return Err(libc::EINVAL) };
        if attr.comp_mask != 0 || attr.log_align_req > DeviceMemory::MAX_LOG_ALIGN {
            return Err(libc::EINVAL);
        }
        rehearse::may_make()?;
        match DeviceMemory::allocate(ours.device(), attr.length as u64) {
            Ok(memory) => Ok(enter(context, ours, memory, false)),
            Err(AllocateError::Invalid) => Err(libc::EINVAL),
            Err(AllocateError::Exhausted) => Err(libc::ENOMEM),
        }
    })
}

/// Frees device memory, under any of its names. `EBUSY` while a region of it is registered.
///
/// # Safety
/// `dm` is null or readable.
pub(crate) unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    errno_always("ibv_free_dm", || {
        let busy = |_: &Dm| {
            let mut holders = Holders::default();
            holders.add(Holder::Region, 0);
            Wrong::held(holders, "").told(None, "ibv_free_dm", 0)
        };
        // SAFETY: by the contract of this verb.
        unsafe { DMS.check_unused(dm, |dm| dm.memory.check_unused(), busy) }?;
        // SAFETY: by the contract of this verb.
        let mut taken = unsafe { DMS.take(dm) }?;
        let ours = taken.inner.take().ok_or(libc::ENOENT)?;
        if ours.memory.close().is_err() {
            let gone = ours.memory.is_closed();
            taken.put_back(ours);
            return Err(if gone { libc::ENOENT } else { libc::EBUSY });
        }
        // SAFETY: the struct stays readable, and a context outlives its objects.
        unsafe { Context::release((*dm).context) };
        Ok(())
    })
}

/// Finds device memory of the same device by its handle, and makes a second name for it in this context.
///
/// # Safety
/// `context` is open.
pub unsafe extern "C" fn ibv_import_dm(context: *mut ibv_context, handle: u32) -> *mut ibv_dm {
    pointer_of("ibv_import_dm", || {
        // SAFETY: by the contract of this verb.
        let ours = unsafe { Context::to_make_in(context) }?;
        let found = DMS.by_handle(handle, |object| {
            // SAFETY: it is live while the table is locked, and a context outlives its objects.
            let is_there = unsafe { ours.goes_with((*object.abi).context) };
            is_there.then(|| object.inner.memory.clone())
        });
        let found = found.flatten();
        let usable = |memory: &Arc<DeviceMemory>| {
            Arc::ptr_eq(memory.device(), ours.device()) && !memory.is_closed()
        };
        match found.filter(usable) {
            Some(memory) => Ok(enter(context, ours, memory, true)),
            None => Err(libc::ENOENT),
        }
    })
}

/// Ends an imported name. The memory itself stays. Nothing happens if the name is not imported.
///
/// # Safety
/// `dm` is null or readable.
pub unsafe extern "C" fn ibv_unimport_dm(dm: *mut ibv_dm) {
    effect_always(|| {
        // SAFETY: by the contract of this verb.
        let Ok(mut taken) = (unsafe { DMS.take(dm) }) else { return };
        match taken.inner.take() {
            // SAFETY: the struct stays readable, and a context outlives its objects.
            Some(ours) if ours.imported => unsafe { Context::release((*dm).context) },
            Some(ours) => taken.put_back(ours),
            None => {}
        }
    })
}

/// Copies bytes of the program to device memory, whole words only.
///
/// # Safety
/// `dm` is null or readable.
unsafe extern "C" fn memcpy_to_dm(
    dm: *mut ibv_dm,
    offset: u64,
    from: *const c_void,
    length: usize,
) -> c_int {
    errno_of("ibv_memcpy_to_dm", || {
        // SAFETY: by the contract of this verb.
        let memory = unsafe { find(dm) }?;
        memory.write(offset, from.addr() as u64, length as u64).map_err(errno)
    })
}

/// Copies bytes of device memory to the program, whole words only.
///
/// # Safety
/// `dm` is null or readable; nobody else uses the destination meanwhile.
unsafe extern "C" fn memcpy_from_dm(
    to: *mut c_void,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
) -> c_int {
    errno_of("ibv_memcpy_from_dm", || {
        // SAFETY: by the contract of this verb.
        let memory = unsafe { find(dm) }?;
        memory.read(offset, to.addr() as u64, length as u64).map_err(errno)
    })
}

fn errno(error: io::Error) -> c_int {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Frees the device memory of a context, which is being closed. Memory with a region of another context stays.
pub(crate) fn free_all(context: *mut ibv_context) {
    for mut taken in DMS.take_all(context) {
        let Some(ours) = taken.inner.take() else { continue };
        let gone = ours.imported || ours.memory.is_closed();
        if !gone && ours.memory.close().is_err() {
            taken.put_back(ours);
            continue;
        }
        // SAFETY: this call counts off this memory.
        unsafe { Context::release(context) };
    }
}

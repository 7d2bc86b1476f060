//! `ibv_reg_mr(3)`, `ibv_rereg_mr(3)`.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use parking_lot::Mutex;
use transom_abi::*;
use transom_check::ledger::Thing;
use transom_device::Access;
use transom_device::protection::{Key, Reason, WindowType, may_carry};
use transom_host::Limits;
use transom_host::device::Device;
use transom_host::objects::{Backing, MemoryRegion, RegisterError, Registration};
use transom_rehearse::Feature;
use transom_system::fork::HeldOverForks;
use transom_system::registry::CallFault;
use transom_system::rehearsal;

use crate::check;
use crate::context::Context;
use crate::entry::{effect_always, errno_always, errno_of, pointer_of};
use crate::object::{Table, trusted};
use crate::pd::{self, Pd};
use crate::wrong::Wrong;
use crate::{errno, profile, rehearse};

/// A region, and its device.
pub(crate) struct Mr {
    region: SharedRegion,
    device: Arc<Device>,
    /// Whether it is a second name, made by [`ibv_import_mr`].
    imported: bool,
}

/// A region that may have several names. `None` once it is deregistered under one of them.
type SharedRegion = Arc<Mutex<Option<MemoryRegion>>>;

static MRS: Table<ibv_mr, Mr> = Table::new();

/// The lock of all of them.
pub(crate) fn lock() -> &'static dyn HeldOverForks {
    &MRS
}

/// Whether the kind of a region allows a window of type 1: it is not special (rule T1-07), and not zero-based (rule
/// T1-06). An unknown region passes; the bind itself refuses it.
///
/// # Safety
/// `mr` is null or readable.
pub(crate) unsafe fn allows_type1(mr: *const ibv_mr) -> Result<(), c_int> {
    // SAFETY: by the contract of this function.
    match unsafe { look_up(mr) } {
        Some((true, _)) => Err(libc::ENOTSUP),
        // The bind's completion reports every other fault of the region (rules C.2).
        Some((false, found)) => match may_carry(found.access, WindowType::Type1, Access::empty()) {
            Err(Reason::ZeroBasedRegion) => Err(libc::EINVAL),
            _ => Ok(()),
        },
        None => Ok(()),
    }
}

/// Whether it is not deregistered.
///
/// # Safety
/// `mr` is null or readable.
pub(crate) unsafe fn is_live(mr: *const ibv_mr) -> bool {
    // SAFETY: by the contract of this function.
    unsafe { trusted::<ibv_mr, Mr>(mr) }.is_some()
}

/// Whether a region is special (null, device memory, a dma-buf, or imported), and its registration.
///
/// # Safety
/// `mr` is null or readable.
unsafe fn look_up(mr: *const ibv_mr) -> Option<(bool, Registration)> {
    // SAFETY: by the contract of this function.
    let found =
        unsafe { MRS.with(mr, |object| (object.inner.region.clone(), object.inner.imported)) };
    let (region, imported) = found.ok()?;
    let region = region.lock();
    let region = region.as_ref()?;
    let special = imported || !matches!(region.backing(), Backing::Program);
    Some((special, region.registration()))
}

/// Checks the bits of `access` (rules MR-08 to MR-12).
pub(crate) fn parse_access(bits: c_uint) -> Result<Access, Wrong> {
    let optional = IBV_ACCESS_OPTIONAL_RANGE;
    let known = Access::all().bits() | optional;
    if bits & !known != 0 {
        return Err(Wrong::invalid("access", (bits & !known).into(), "MR-08"));
    }
    profile::check_rights(bits)?;
    let access = Access::from_bits_truncate(bits);
    // No memory here survives a loss of power.
    if access.contains(Access::FLUSH_PERSISTENT) {
        return Err(Wrong::unsupported("access", Access::FLUSH_PERSISTENT.bits().into(), "MR-11"));
    }
    if access.contains(Access::HUGETLB) && !access.contains(Access::ON_DEMAND) {
        return Err(Wrong::invalid("access", bits.into(), "MR-12"));
    }
    Ok(access)
}

/// The fault of a refused registration.
fn wrong(error: RegisterError, registration: &Registration) -> Wrong {
    let Registration { address, length, iova, access } = *registration;
    match error {
        RegisterError::Rights => Wrong::invalid("access", access.bits().into(), "MR-04"),
        RegisterError::Range => Wrong::invalid("length", length, "MR-18"),
        RegisterError::PageOffset => Wrong::invalid("iova", iova, "MR-29"),
        RegisterError::Fault => {
            Wrong::with(libc::EFAULT, CallFault::Memory, address, "MR-21").and(length)
        }
        RegisterError::Exhausted => Wrong::exhausted("MR-26"),
        RegisterError::Busy | RegisterError::OtherDevice | RegisterError::Inherited => {
            errno::of_register(error).into()
        }
    }
}

/// # Safety
/// `pd` is null or readable.
pub(crate) unsafe fn register(
    verb: &'static str,
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> Result<*mut ibv_mr, c_int> {
    // SAFETY: by the contract of this function.
    unsafe {
        let made = try_register(pd, address, length, iova, access);
        made.map_err(|wrong| wrong.told(None, verb, 0))
    }
}

/// # Safety
/// `pd` is null or readable.
unsafe fn try_register(
    pd_pointer: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> Result<*mut ibv_mr, Wrong> {
    // SAFETY: by the contract of this function.
    let pd = unsafe { pd::find(pd_pointer) };
    let pd = pd.map_err(|errno| Wrong::unknown("pd", errno, "PD-08"))?;
    let access = parse_access(access)?;
    rehearse::may_register()?;
    let registration =
        Registration { address: address as u64, length: length as u64, iova, access };
    if length == 0 && !registration.is_implicit() && rehearse::refuses_empty() {
        return Err(Wrong::invalid("length", 0, "REH-82"));
    }
    let most = Limits::here().region_bytes;
    if length as u64 > most && !registration.is_implicit() {
        return Err(Wrong::too_much("length", length as u64, most, "MR-27"));
    }
    let region = MemoryRegion::register(&pd.domain, registration)
        .map_err(|error| wrong(error, &registration))?;
    Ok(enter(pd_pointer, pd, address, region))
}

/// Adds a new region. A null region has no remote key (rule MR-36).
pub(crate) fn enter(
    pd_pointer: *mut ibv_pd,
    pd: Pd,
    addr: *mut c_void,
    region: MemoryRegion,
) -> *mut ibv_mr {
    let key = region.key().0;
    let abi = ibv_mr {
        context: pd.context,
        pd: pd_pointer,
        addr,
        length: region.registration().length as usize,
        handle: 0,
        lkey: rehearsal::new_l_key(key),
        rkey: if matches!(region.backing(), Backing::Null) { 0 } else { key },
    };
    let device = pd.domain.device().clone();
    let region = Arc::new(Mutex::new(Some(region)));
    let kept = check::on().map(|_| (region.clone(), device.clone()));
    let made = MRS.insert(abi, |_| Mr { region, device, imported: false });
    if let (Some(checker), Some((kept, device))) = (check::on(), kept)
        && let Some(region) = &*kept.lock()
    {
        checker.registered(&device, region, made.addr(), pd.context.addr());
    }
    made
}

/// The key by which the device knows a region.
///
/// # Safety
/// `mr` is live.
pub(crate) unsafe fn key_of(mr: *const ibv_mr) -> Key {
    // SAFETY: by the contract of this function. A null region has no other key than this.
    Key(rehearsal::l_key(unsafe { (*mr).lkey }))
}

/// Registers memory under its own addresses (rules A.2).
///
/// # Safety
/// `pd` is null or readable.
pub unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: by the contract of this verb.
    pointer_of("ibv_reg_mr", || unsafe {
        register("ibv_reg_mr", pd, address, length, address as u64, access as c_uint)
    })
}

/// Registers memory under the addresses from `iova` on (rules MR-28, MR-29, MR-32).
///
/// # Safety
/// `pd` is null or readable.
pub unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: by the contract of this verb.
    pointer_of("ibv_reg_mr_iova", || unsafe {
        register("ibv_reg_mr_iova", pd, address, length, iova, access as c_uint)
    })
}

/// Like [`ibv_reg_mr_iova`]. In both, `access` may have optional bits.
///
/// # Safety
/// `pd` is null or readable.
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: by the contract of this verb.
    pointer_of("ibv_reg_mr_iova2", || unsafe {
        register("ibv_reg_mr_iova2", pd, address, length, iova, access)
    })
}

/// Finds a region of the same device by its handle, and makes a second name for it in this domain. That name has no
/// address.
///
/// # Safety
/// `pd` is null or readable.
pub unsafe extern "C" fn ibv_import_mr(pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr {
    pointer_of("ibv_import_mr", || {
        // SAFETY: by the contract of this verb.
        let ours = unsafe { pd::find(pd) }?;
        // SAFETY: a protection domain's context is open.
        let context = unsafe { Context::to_make_in(ours.context) }?;
        let found = MRS.by_handle(handle, |object| {
            let (mr, abi) = (object.inner, object.abi);
            // SAFETY: the struct is live while the table is locked, and its fields are written under that lock.
            let (length, lkey, rkey) = unsafe { ((*abi).length, (*abi).lkey, (*abi).rkey) };
            // SAFETY: as above.
            let is_there = unsafe { context.goes_with((*abi).context) };
            let ours = is_there && Arc::ptr_eq(&mr.device, ours.domain.device());
            ours.then(|| (length, lkey, rkey, mr.region.clone()))
        });
        let live = found.flatten().filter(|(.., region)| region.lock().is_some());
        let (length, lkey, rkey, region) = live.ok_or(libc::ENOENT)?;
        let (context, addr) = (ours.context, std::ptr::null_mut());
        let abi = ibv_mr { context, pd, addr, length, handle: 0, lkey, rkey };
        let device = ours.domain.device().clone();
        Ok(MRS.insert(abi, |_| Mr { region, device, imported: true }))
    })
}

/// Ends an imported name. The region itself stays. Nothing happens if the name is not imported.
///
/// # Safety
/// `mr` is null or readable.
pub unsafe extern "C" fn ibv_unimport_mr(mr: *mut ibv_mr) {
    effect_always(|| {
        // SAFETY: by the contract of this verb.
        let Ok(mut taken) = (unsafe { MRS.take(mr) }) else { return };
        if let Some(ours) = taken.inner.take_if(|ours| !ours.imported) {
            taken.put_back(ours);
        }
    })
}

/// Notes which windows are bound to a region that the program wants to end or change.
#[cold]
fn bound(region: &MemoryRegion, verb: &'static str, rule: &'static str) -> c_int {
    Wrong::bound(&region.bound_windows(), rule).told(None, verb, 0)
}

/// Ends a region under all its names. False if it has already ended. `EBUSY` while a window is bound.
fn deregister(region: &SharedRegion) -> Result<bool, c_int> {
    let mut shared = region.lock();
    let Some(region) = shared.take() else { return Ok(false) };
    region.deregister().map(|()| true).map_err(|(region, _)| {
        *shared = Some(region);
        libc::EBUSY
    })
}

/// Tells `transom check` that a region is about to end.
fn tell_end(ours: &Mr) {
    let Some(checker) = check::on() else { return };
    let key = ours.region.lock().as_ref().map(|region| region.key().0);
    key.into_iter().for_each(|key| checker.region_ends(&ours.device, key));
}

/// Ends a registration. `EBUSY` while a window is bound, `ENOENT` if there is no such region (rules DR-01 to DR-05).
///
/// # Safety
/// `mr` is null or readable.
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    errno_always("ibv_dereg_mr", || {
        // SAFETY: by the contract of this verb.
        let region = unsafe { MRS.with(mr, |object| object.inner.region.clone()) }?;
        if let Some(region) = &*region.lock() {
            region.check_unused().map_err(|_| {
                if let Some(checker) = check::on() {
                    checker.busy(Thing::Region, mr.addr());
                }
                bound(region, "ibv_dereg_mr", "DR-03")
            })?;
        }
        // SAFETY: by the contract of this verb.
        let mut taken = unsafe { MRS.take(mr) }?;
        let ours = taken.inner.take().ok_or(libc::ENOENT)?;
        tell_end(&ours);
        match deregister(&ours.region) {
            Ok(true) => Ok(()),
            refused => {
                taken.put_back(ours);
                Err(refused.err().unwrap_or(libc::ENOENT))
            }
        }
    })
}

/// Changes a registration. Returns zero, or a code of `enum ibv_rereg_mr_err_code` (rules RR-01 to RR-12).
///
/// # Safety
/// `mr` and `pd` are null or readable.
pub unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let mut code = IBV_REREG_MR_ERR_CMD;
    let changed = errno_of("ibv_rereg_mr", || {
        profile::needs(Feature::Reregistration)?;
        let flags = flags as c_uint;
        let moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION != 0;
        // SAFETY: by the contract of this verb.
        let special = unsafe { look_up(mr) }.is_some_and(|(special, _)| special);
        // Special regions cannot be changed (rule MR-36).
        let wrong = special
            || flags & !IBV_REREG_MR_FLAGS_SUPPORTED != 0
            || (moves && (address.is_null() || length == 0))
            || (access != 0 && flags & IBV_REREG_MR_CHANGE_ACCESS == 0);
        if wrong {
            code = IBV_REREG_MR_ERR_INPUT;
            return Err(libc::EINVAL);
        }
        // SAFETY: by the contract of this verb.
        let Ok(region) = (unsafe { MRS.with(mr, |object| object.inner.region.clone()) }) else {
            // It is no region, or not any more (rule RR-01).
            code = IBV_REREG_MR_ERR_INPUT;
            return Err(libc::EINVAL);
        };
        // Locked until the C struct is written, so that it agrees with the registration.
        let mut region = region.lock();
        let region = region.as_mut().ok_or(libc::ENOENT)?;
        let mut registration = region.registration();
        if moves {
            // The same limit as at registration (rule MR-27).
            if length as u64 > Limits::here().region_bytes {
                return Err(libc::EINVAL);
            }
            registration.address = address as u64;
            registration.length = length as u64;
            registration.iova = address as u64;
        }
        if flags & IBV_REREG_MR_CHANGE_ACCESS != 0 {
            let access = parse_access(access as c_uint);
            registration.access = access.map_err(|wrong| wrong.told(None, "ibv_rereg_mr", 0))?;
        }
        let new_pd = match flags & IBV_REREG_MR_CHANGE_PD {
            0 => None,
            // SAFETY: by the contract of this verb.
            _ => Some(unsafe { pd::find(pd) }?),
        };
        rehearse::may_register()?;
        let domain = new_pd.as_ref().map(|pd| &pd.domain);
        // SAFETY: by the contract of this verb.
        let (device, context) =
            unsafe { MRS.with(mr, |it| (it.inner.device.clone(), (*mr).context)) }?;
        // SAFETY: live, as found above, and a context outlives what is made in it.
        let go_together = new_pd.as_ref().is_none_or(|new| unsafe {
            Context::of(context).is_none_or(|ours| ours.goes_with(new.context))
        });
        if !go_together {
            return Err(Wrong::OTHER_CONTEXT.told(None, "ibv_rereg_mr", 0));
        }
        let checker = check::on();
        let key = region.key().0;
        let under_way = checker.filter(|_| moves).map(|checker| checker.work_naming(&device, key));
        let changed = region.change(domain, registration);
        // It stays as it was if that is refused.
        if let (Some(checker), Ok(())) = (checker, &changed) {
            under_way.iter().for_each(|it| checker.region_ended(&device, key, it));
            checker.registered(&device, region, mr.addr(), context.addr());
        }
        changed.map_err(|error| match error {
            RegisterError::Busy if region.check_unused().is_err() => {
                bound(region, "ibv_rereg_mr", "RR-12")
            }
            error => self::wrong(error, &registration).told(None, "ibv_rereg_mr", 0),
        })?;
        // SAFETY: by the contract of this verb. The struct is live while the table is locked.
        unsafe {
            MRS.with(mr, |object| {
                if new_pd.is_some() {
                    (*object.abi).pd = pd;
                }
                (*object.abi).addr = registration.address as *mut c_void;
                (*object.abi).length = registration.length as usize;
            })
        }
    });
    if changed == 0 { 0 } else { code }
}

/// Ends the registrations of a context, which is being closed. If a window of another context is bound to a region, the
/// region stays until that window is gone, as for `ibv_dereg_mr`.
pub(crate) fn free_all(context: *mut ibv_context) {
    for mut taken in MRS.take_all(context) {
        if let Some(ours) = taken.inner.take_if(|ours| !ours.imported)
            && deregister(&ours.region).is_err()
        {
            taken.put_back(ours);
        }
    }
}

//! `ibv_alloc_td(3)`.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::Arc;

use transom_abi::{ibv_context, ibv_td, ibv_td_init_attr};
use transom_host::objects::ThreadDomain;
use transom_system::fork::HeldOverForks;
use transom_system::lock::SleepingMutex;
use transom_system::registry::{Holder, Holders};

use crate::context::Context;
use crate::entry::{errno_always, pointer_of};
use crate::wrong::Wrong;

/// Thread domains by address, because their C struct has no handle.
static TDS: SleepingMutex<BTreeMap<usize, Td>> = SleepingMutex::new(BTreeMap::new());

/// The lock of all of them.
pub(crate) fn lock() -> &'static dyn HeldOverForks {
    &TDS
}

/// A thread domain, and the C struct that the program holds.
struct Td {
    domain: Arc<ThreadDomain>,
    abi: Box<ibv_td>,
}

// SAFETY: the context pointer in the C struct is only passed back to C.
unsafe impl Send for Td {}

/// The thread domain that a pointer names, if it belongs to this context.
pub(crate) fn find(
    td: *const ibv_td,
    context: *mut ibv_context,
) -> Result<Arc<ThreadDomain>, c_int> {
    let tds = TDS.lock();
    let found = tds.get(&td.addr()).filter(|found| found.abi.context == context);
    found.map(|found| found.domain.clone()).ok_or(libc::ENOENT)
}

/// Allocates a thread domain. rdma-core defines no attributes yet.
///
/// # Safety
/// `context` is open; `init` is null or readable.
pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    init: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    pointer_of("ibv_alloc_td", || {
        // SAFETY: by the contract of this verb.
        let (ours, init) = unsafe { (Context::to_make_in(context)?, init.as_ref()) };
        let Some(ibv_td_init_attr { comp_mask: 0 }) = init else { return Err(libc::EINVAL) };
        ours.adopt();
        let mut abi = Box::new(ibv_td { context });
        let pointer = &raw mut *abi;
        TDS.lock().insert(pointer.addr(), Td { domain: Arc::default(), abi });
        Ok(pointer)
    })
}

/// Frees a thread domain. `EBUSY` while a parent domain uses it.
///
/// # Safety
/// The context of `td` is open if it is a thread domain.
pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    errno_always("ibv_dealloc_td", || {
        if td.is_null() {
            return Err(libc::EINVAL);
        }
        let mut tds = TDS.lock();
        let Some(found) = tds.get(&td.addr()) else { return Err(libc::ENOENT) };
        let context = found.abi.context;
        if found.domain.close().is_err() {
            // SAFETY: a context outlives its thread domains.
            let ours = unsafe { Context::of(context) };
            let mut holders = Holders::default();
            holders.add(Holder::ParentDomain, 0);
            let device = ours.map(|ours| &**ours.device());
            return Err(Wrong::held(holders, "PD-10").told(device, "ibv_dealloc_td", 0));
        }
        tds.remove(&td.addr());
        drop(tds);
        // SAFETY: a context outlives its thread domains.
        unsafe { Context::release(context) };
        Ok(())
    })
}

/// Frees the thread domains of a context, which is being closed.
pub(crate) fn free_all(context: *mut ibv_context) {
    let unused = |td: &Td| td.abi.context == context && td.domain.close().is_ok();
    let freed = TDS.lock().extract_if(.., |_, td| unused(td)).count();
    for _ in 0..freed {
        // SAFETY: this call counts off each thread domain once.
        unsafe { Context::release(context) };
    }
}

//! A queue pair as C holds it: `ibv_destroy_qp(3)`, and the counts of its events.

mod attributes;

use std::ffi::c_int;
use std::sync::Arc;

use parking_lot::Mutex;
use transom_abi::*;
use transom_check::ledger::{Event, Owner, Thing};
use transom_device::qp::Service;
use transom_host::Adapter;
use transom_host::objects::QueuePair;
use transom_system::fork::HeldOverForks;

pub use self::attributes::{ibv_modify_qp, ibv_query_qp, ibv_query_qp_data_in_order};
use crate::batch::Batch;
use crate::check;
use crate::context::Context;
use crate::entry::{check_device, errno_always};
use crate::event_count::{EventCount, Wait};
use crate::object::{Handled, InContext, Table, trusted};
use crate::wrong::Wrong;

/// A queue pair, with the values that C may query.
pub(crate) struct Qp {
    pub(crate) pair: Arc<QueuePair>,
    /// Its type, as it was created.
    pub(crate) kind: ibv_qp_type,
    /// The batch that `ibv_wr_start` and its family build, if the queue pair was created for them.
    pub(crate) batch: Option<Mutex<Batch>>,
    cap: ibv_qp_cap,
    told: Arc<Mutex<Told>>,
    events: Arc<EventCount>,
}

impl Qp {
    pub(crate) fn new(
        pair: Arc<QueuePair>,
        kind: ibv_qp_type,
        batch: Option<Batch>,
        cap: ibv_qp_cap,
    ) -> Self {
        let batch = batch.map(Mutex::new);
        Self { pair, kind, batch, cap, told: Arc::default(), events: Arc::default() }
    }
}

/// Values that the program has set and that are kept only for queries. A thread that changes the queue pair, or tells C
/// its state, holds the lock, so that all of it agrees.
#[derive(Default)]
struct Told {
    address: ibv_ah_attr,
}

/// Every queue pair has room for the extended form. Its first field is the plain form.
static QPS: Table<ibv_qp_ex_flush, Qp> = Table::new();

/// The lock of all of them.
pub(crate) fn lock() -> &'static dyn HeldOverForks {
    &QPS
}

impl InContext for ibv_qp_ex_flush {
    unsafe fn context(abi: *const Self) -> *mut ibv_context {
        // SAFETY: by the contract of this function.
        unsafe { (*abi).base.qp_base.context }
    }
}

impl Handled for ibv_qp_ex_flush {
    const THING: Thing = Thing::QueuePair;

    fn number(&self) -> u32 {
        self.base.qp_base.qp_num
    }

    unsafe fn handle(abi: *const Self) -> u32 {
        // SAFETY: by the contract of this function.
        unsafe { (*abi).base.qp_base.handle }
    }

    fn set_handle(&mut self, handle: u32) {
        self.base.qp_base.handle = handle;
    }
}

/// Reserves a handle for a queue pair that is about to be made. Its events carry it.
pub(crate) fn reserve() -> u32 {
    QPS.reserve()
}

/// Adds a queue pair under its handle. Returns the pointer for C.
pub(crate) fn enter(handle: u32, abi: ibv_qp_ex_flush, qp: Qp) -> *mut ibv_qp {
    QPS.insert_reserved(handle, abi, qp).cast()
}

/// Our part, directly from a live pointer. Posts trust the pointer, as C allows. `EIO` if its device has failed.
///
/// # Safety
/// `qp` is null or live.
#[inline]
pub(crate) unsafe fn usable<'a>(qp: *mut ibv_qp) -> Result<&'a Qp, c_int> {
    // SAFETY: by the contract of this function.
    let ours = unsafe { ours(qp) }.ok_or(libc::EINVAL)?;
    check_device(|| ours.pair.device())?;
    Ok(ours)
}

/// The same, whether or not its device has failed.
///
/// # Safety
/// As [`usable`].
#[inline]
pub(crate) unsafe fn ours<'a>(qp: *mut ibv_qp) -> Option<&'a Qp> {
    // SAFETY: by the contract of this function.
    unsafe { trusted::<ibv_qp_ex_flush, Qp>(qp.cast()) }
}

/// The device's queue pair, in the same way.
///
/// # Safety
/// As [`usable`].
#[inline]
pub(crate) unsafe fn of<'a>(qp: *mut ibv_qp) -> Option<&'a QueuePair> {
    // SAFETY: by the contract of this function.
    Some(&unsafe { ours(qp) }?.pair)
}

/// Checks that a pointer names a queue pair that is not destroyed. `ENOENT` otherwise.
///
/// # Safety
/// `qp` is null or readable.
pub(crate) unsafe fn check_live(qp: *mut ibv_qp) -> Result<(), c_int> {
    // SAFETY: by the contract of this function.
    unsafe { QPS.with(qp.cast(), |_| ()) }
}

/// The device's queue pair that a pointer names.
///
/// # Safety
/// `qp` is null or readable.
pub(crate) unsafe fn find(qp: *mut ibv_qp) -> Result<Arc<QueuePair>, c_int> {
    // SAFETY: by the contract of this function.
    unsafe { QPS.with(qp.cast(), |object| object.inner.pair.clone()) }
}

/// A UD queue pair and its device, for multicast. `EINVAL` for any other type.
///
/// # Safety
/// `qp` is null or readable.
pub(crate) unsafe fn datagram_pair(
    qp: *mut ibv_qp,
) -> Result<(Arc<Adapter>, Arc<QueuePair>), c_int> {
    // SAFETY: by the contract of this function.
    let pair = unsafe { find(qp) }?;
    if pair.config().service != Service::Ud {
        return Err(libc::EINVAL);
    }
    Ok((pair.adapter().clone(), pair))
}

/// Ends a queue pair, after its delivered events are acknowledged (rules CR-09, CR-18, T2-05, T2-06).
///
/// # Safety
/// `qp` is null or readable.
pub unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    errno_always("ibv_destroy_qp", || {
        loop {
            // If something holds the queue pair, refuse at once. Wait only for events.
            // SAFETY: by the contract of this verb.
            unsafe { QPS.check_unused(qp.cast(), |qp| qp.pair.check_unused(), busy) }?;
            // SAFETY: as above.
            let events = unsafe { QPS.with(qp.cast(), |object| object.inner.events.clone()) }?;
            events.settle(&Wait { verb: "ibv_destroy_qp", owner: owner(qp) });
            let may_end = |qp: &Qp| qp.events.is_settled() && qp.pair.check_unused().is_ok();
            // SAFETY: as above.
            let taken = unsafe { QPS.take_if(qp.cast(), may_end) }?;
            // An event may have been delivered just now. The thread that acknowledges it must find the queue pair.
            let Some(mut taken) = taken else { continue };
            let handle = taken.handle();
            let ours = taken.inner.take().ok_or(libc::ENOENT)?;
            if let Some(checker) = check::on() {
                checker.pair_ends(qp.addr(), &ours.pair);
                // SAFETY: a context outlives its queue pairs.
                let context = unsafe { Context::of((*qp).context) };
                let unread = context.map(|it| it.fatal_events(Some((Thing::QueuePair, handle))));
                checker.events_unread(
                    Some(Thing::QueuePair),
                    qp.addr(),
                    &unread.unwrap_or_default(),
                );
            }
            if ours.pair.destroy().is_err() {
                taken.put_back(ours);
                return Err(libc::EBUSY);
            }
            // SAFETY: the struct stays readable, and a context outlives its queue pairs.
            unsafe { Context::release((*qp).context) };
            return Ok(());
        }
    })
}

/// Notes what holds a queue pair that the program wants to destroy.
#[cold]
fn busy(qp: &Qp) -> c_int {
    let (pair, groups) = (&qp.pair, qp.kind == IBV_QPT_UD);
    let rule = if groups { "CR-10" } else { "T2-06" };
    let wrong = Wrong::held(pair.holders(), rule);
    wrong.told(Some(pair.device()), "ibv_destroy_qp", pair.number().bits())
}

/// The owner of a queue pair's asynchronous events, for `transom check`.
pub(crate) fn owner(qp: *const ibv_qp) -> Owner {
    Owner { event: Event::Asynchronous, thing: Thing::QueuePair, address: qp.addr() }
}

/// Counts an asynchronous event as delivered. Returns the pointer for C.
pub(crate) fn deliver_event(handle: u32) -> Option<*mut ibv_qp> {
    QPS.by_handle(handle, |object| {
        object.inner.events.delivered();
        object.abi.cast()
    })
}

/// Counts an asynchronous event as acknowledged.
///
/// # Safety
/// `qp` is null or live.
pub(crate) unsafe fn acknowledge_event(qp: *mut ibv_qp) {
    // SAFETY: by the contract of this function.
    if let Some(ours) = unsafe { ours(qp) } {
        ours.events.acknowledged(1);
    }
}

/// Ends the queue pairs of a context, which is being closed.
pub(crate) fn free_all(context: *mut ibv_context) {
    for mut taken in QPS.take_all(context) {
        let Some(ours) = taken.inner.take() else { continue };
        ours.pair.leave_groups();
        if ours.pair.destroy().is_err() {
            taken.put_back(ours);
            continue;
        }
        // SAFETY: this call counts off this queue pair.
        unsafe { Context::release(context) };
    }
}

//! `ibv_create_comp_cntr(3)`, `ibv_qp_attach_comp_cntr(3)`: completion counters.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

use transom_abi::*;
use transom_device::execution::Counted;
use transom_host::Limits;
use transom_host::objects::{AttachError, CompletionCounter, CounterUnit};
use transom_rehearse::Feature;
use transom_system::fork::HeldOverForks;
use transom_system::registry::{Holder, Holders};

use crate::context::Context;
use crate::entry::{errno_always, errno_of, pointer_of};
use crate::object::Table;
use crate::profile;
use crate::qp;
use crate::sanitized;
use crate::wrong::Wrong;

static COUNTERS: Table<ibv_comp_cntr, Arc<CompletionCounter>> = Table::new();

/// The lock of all of them.
pub(crate) fn lock() -> &'static dyn HeldOverForks {
    &COUNTERS
}

/// The limits of counters (rule CC-01). It fills the fields of the caller's struct, and a newer caller's unknown fields
/// with zeros.
///
/// # Safety
/// `context` is null or open; `caps` is null or writable for `size` bytes.
pub unsafe extern "C" fn _ibv_query_comp_cntr_caps(
    context: *mut ibv_context,
    caps: *mut ibv_comp_cntr_caps,
    size: usize,
) -> c_int {
    errno_of("_ibv_query_comp_cntr_caps", || {
        profile::needs(Feature::CompletionCounters)?;
        let known = size_of::<ibv_comp_cntr_caps>();
        if context.is_null() || caps.is_null() || size < known {
            return Err(libc::EINVAL);
        }
        let full = ibv_comp_cntr_caps {
            max_value: u64::MAX,
            max_counters: Limits::DEVICE.completion_counters,
            supported_qp_attach_ops: Counted::all().bits(),
        };
        // SAFETY: `size` bytes are writable, by the contract of this verb.
        unsafe {
            caps.write_unaligned(full);
            caps.cast::<u8>().add(known).write_bytes(0, size - known);
        }
        sanitized::has_filled_bytes(caps.cast(), size);
        Ok(())
    })
}

/// Makes a counter at zero (rules CC-02, CC-03).
///
/// # Safety
/// `context` is null or open; `attr` is null or readable.
pub unsafe extern "C" fn ibv_create_comp_cntr(
    context: *mut ibv_context,
    attr: *mut ibv_comp_cntr_init_attr,
) -> *mut ibv_comp_cntr {
    pointer_of("ibv_create_comp_cntr", || {
        profile::needs(Feature::CompletionCounters)?;
        // SAFETY: by the contract of this verb.
        let (ours, attr) = unsafe { (Context::to_make_in(context)?, attr.as_ref()) };
        let attr = attr.ok_or(libc::EINVAL)?;
        if attr.comp_mask != 0 || attr.flags != 0 {
            return Err(libc::EINVAL);
        }
        let unit = match attr.type_ {
            IBV_COMP_CNTR_TYPE_WRS => CounterUnit::Operations,
            IBV_COMP_CNTR_TYPE_BYTES => CounterUnit::Bytes,
            _ => return Err(libc::ENOTSUP),
        };
        let Some(counter) = CompletionCounter::new(ours.device(), unit) else {
            return Err(libc::ENOMEM);
        };
        ours.adopt();
        Ok(COUNTERS.insert(ibv_comp_cntr { context, handle: 0 }, |_| counter))
    })
}

/// Ends a counter. `EBUSY` while a queue pair counts with it (rule CC-09).
///
/// # Safety
/// `counter` is null or readable.
pub unsafe extern "C" fn ibv_destroy_comp_cntr(counter: *mut ibv_comp_cntr) -> c_int {
    errno_always("ibv_destroy_comp_cntr", || {
        let busy = |_: &Arc<CompletionCounter>| {
            let mut holders = Holders::default();
            holders.add(Holder::QueuePair, 0);
            Wrong::held(holders, "CC-09").told(None, "ibv_destroy_comp_cntr", 0)
        };
        // SAFETY: by the contract of this verb.
        unsafe { COUNTERS.check_unused(counter, |counter| counter.check_unused(), busy) }?;
        // SAFETY: as above.
        let mut taken = unsafe { COUNTERS.take(counter) }?;
        let ours = taken.inner.take().ok_or(libc::ENOENT)?;
        if ours.close().is_err() {
            taken.put_back(ours);
            return Err(libc::EBUSY);
        }
        // SAFETY: the struct stays readable, and a context outlives its objects.
        unsafe { Context::release((*counter).context) };
        Ok(())
    })
}

/// The counter that a pointer names.
///
/// # Safety
/// `counter` is null or readable.
unsafe fn find(counter: *const ibv_comp_cntr) -> Result<Arc<CompletionCounter>, c_int> {
    // SAFETY: by the contract of this function.
    unsafe { COUNTERS.with(counter, |object| object.inner.clone()) }
}

/// Runs `with` on one value of a counter.
///
/// # Safety
/// `counter` is null or readable.
unsafe fn on_value(
    verb: &'static str,
    counter: *const ibv_comp_cntr,
    value: impl FnOnce(&CompletionCounter) -> &AtomicU64,
    with: impl FnOnce(&AtomicU64),
) -> c_int {
    // SAFETY: by the contract of this function.
    errno_of(verb, || unsafe { find(counter) }.map(|counter| with(value(&counter))))
}

/// Sets the count of successful operations (rule CC-04).
///
/// # Safety
/// `counter` is null or readable.
pub unsafe extern "C" fn ibv_set_comp_cntr(counter: *mut ibv_comp_cntr, value: u64) -> c_int {
    // SAFETY: by the contract of this verb.
    unsafe {
        on_value("ibv_set_comp_cntr", counter, CompletionCounter::completions, |count| {
            count.store(value, Release)
        })
    }
}

/// Sets the count of failed operations (rule CC-04).
///
/// # Safety
/// `counter` is null or readable.
pub unsafe extern "C" fn ibv_set_err_comp_cntr(counter: *mut ibv_comp_cntr, value: u64) -> c_int {
    // SAFETY: by the contract of this verb.
    unsafe {
        on_value("ibv_set_err_comp_cntr", counter, CompletionCounter::errors, |count| {
            count.store(value, Release)
        })
    }
}

/// Adds to the count of successful operations (rule CC-04).
///
/// # Safety
/// `counter` is null or readable.
pub unsafe extern "C" fn ibv_inc_comp_cntr(counter: *mut ibv_comp_cntr, amount: u64) -> c_int {
    let add = |count: &AtomicU64| {
        count.fetch_add(amount, AcqRel);
    };
    // SAFETY: by the contract of this verb.
    unsafe { on_value("ibv_inc_comp_cntr", counter, CompletionCounter::completions, add) }
}

/// Adds to the count of failed operations (rule CC-04).
///
/// # Safety
/// `counter` is null or readable.
pub unsafe extern "C" fn ibv_inc_err_comp_cntr(counter: *mut ibv_comp_cntr, amount: u64) -> c_int {
    let add = |count: &AtomicU64| {
        count.fetch_add(amount, AcqRel);
    };
    // SAFETY: by the contract of this verb.
    unsafe { on_value("ibv_inc_err_comp_cntr", counter, CompletionCounter::errors, add) }
}

/// Reads the count of successful operations.
///
/// # Safety
/// `counter` is null or readable, `value` null or writable.
pub unsafe extern "C" fn ibv_read_comp_cntr(counter: *mut ibv_comp_cntr, value: *mut u64) -> c_int {
    // SAFETY: by the contract of this verb.
    unsafe { read("ibv_read_comp_cntr", counter, CompletionCounter::completions, value) }
}

/// Reads the count of failed operations.
///
/// # Safety
/// `counter` is null or readable, `value` null or writable.
pub unsafe extern "C" fn ibv_read_err_comp_cntr(
    counter: *mut ibv_comp_cntr,
    value: *mut u64,
) -> c_int {
    // SAFETY: by the contract of this verb.
    unsafe { read("ibv_read_err_comp_cntr", counter, CompletionCounter::errors, value) }
}

/// # Safety
/// `counter` is null or readable, `to` null or writable.
unsafe fn read(
    verb: &'static str,
    counter: *mut ibv_comp_cntr,
    value: impl FnOnce(&CompletionCounter) -> &AtomicU64,
    to: *mut u64,
) -> c_int {
    errno_of(verb, || {
        // SAFETY: by the contract of this function.
        let to = unsafe { to.as_mut() }.ok_or(libc::EINVAL)?;
        // SAFETY: as above.
        let found = unsafe { find(counter) }?;
        // A program may wait for a value by reading it in a loop, so this must make progress.
        // SAFETY: the object was found, so its struct is readable, and a context outlives its objects.
        let context = unsafe { Context::of((*counter).context) };
        context.ok_or(libc::EINVAL)?.adapter.progress();
        *to = value(&found).load(Acquire);
        sanitized::has_filled(to);
        Ok(())
    })
}

/// Makes a counter count operations of a queue pair (rules CC-05 to CC-09).
///
/// # Safety
/// `qp` and `counter` are null or readable, `attr` too.
pub unsafe extern "C" fn ibv_qp_attach_comp_cntr(
    qp: *mut ibv_qp,
    counter: *mut ibv_comp_cntr,
    attr: *mut ibv_qp_attach_comp_cntr_attr,
) -> c_int {
    errno_of("ibv_qp_attach_comp_cntr", || {
        // SAFETY: by the contract of this verb.
        let attr = unsafe { attr.as_ref() }.filter(|attr| attr.comp_mask == 0);
        let attr = attr.ok_or(libc::EINVAL)?;
        let counter_abi = counter;
        // SAFETY: as above.
        let (pair, counter) = unsafe { (qp::find(qp)?, find(counter)?) };
        // SAFETY: live, as just found, and a context outlives its objects.
        let go_together = unsafe {
            Context::of((*qp).context).is_none_or(|ours| ours.goes_with((*counter_abi).context))
        };
        if !go_together {
            return Err(Wrong::OTHER_CONTEXT.told(None, "ibv_qp_attach_comp_cntr", 0));
        }
        let operations = Counted::from_bits(attr.op_mask).ok_or(libc::ENOTSUP)?;
        pair.attach_counter(&counter, operations).map_err(|error| match error {
            AttachError::Invalid => libc::EINVAL,
            AttachError::Unsupported => libc::ENOTSUP,
            AttachError::Taken => libc::EBUSY,
            AttachError::Gone => libc::ENOENT,
        })
    })
}

/// Ends the counters of a context, which is being closed. A counter that a queue pair of another context uses stays.
pub(crate) fn free_all(context: *mut ibv_context) {
    for mut taken in COUNTERS.take_all(context) {
        let Some(ours) = taken.inner.take() else { continue };
        if ours.close().is_err() {
            taken.put_back(ours);
            continue;
        }
        // SAFETY: this call counts off this counter.
        unsafe { Context::release(context) };
    }
}

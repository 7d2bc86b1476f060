//! The reasons for refused calls of librdmacm, for `transom explain`.
//!
//! A refused command leaves its sentence in the thread, and librdmacm fetches it there ([`transom_rdma_cm_why`]). Only
//! librdmacm knows which of its functions the program has called. It sends the sentence back with the function's name
//! ([`transom_rdma_cm_refused`]), and this module records it beside the refusals of verbs.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::sync::{Arc, Once};

use transom_host::Adapter;
use transom_system::lock::SleepingMutex;
use transom_system::registry::{CallFault, CallRefusal, Name};
use transom_system::say_to_a_reader;

use super::refusal::Refusal;
use crate::adapters;
use crate::entry::effect_always;

thread_local! {
    /// The reason why the last command of this thread was refused.
    static WHY: Cell<Name<{ CallRefusal::SAID }>> = const { Cell::new(Name::EMPTY) };
}

/// Keeps the reason why a command is refused. Returns its errno.
pub(super) fn keep(refusal: &Refusal) -> c_int {
    WHY.set(Name::new(refusal.said()));
    refusal.errno()
}

/// Writes the reason why the last command of this thread was refused, without a zero at the end. Returns its length in
/// bytes.
///
/// # Safety
/// `to` has `room` bytes.
pub unsafe extern "C" fn transom_rdma_cm_why(to: *mut c_char, room: usize) -> usize {
    let why = WHY.get();
    let bytes = why.as_bytes();
    let length = bytes.len().min(room);
    // SAFETY: by the contract of this function.
    unsafe { to.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), length) };
    length
}

/// Records the errno of a function of librdmacm and the reason, or, without an errno, what the function waits for. If
/// the program has no device yet, this opens one for the record. The program is about to open it anyway, and without a
/// device `transom explain` could not find the reason.
///
/// # Safety
/// Both are strings.
pub unsafe extern "C" fn transom_rdma_cm_refused(
    function: *const c_char,
    errno: c_int,
    said: *const c_char,
) {
    effect_always(|| {
        // SAFETY: by the contract of this function.
        let (function, said) = unsafe { (CStr::from_ptr(function), CStr::from_ptr(said)) };
        // If the device cannot be opened, the failed open has reported that.
        let Some(adapter) = adapters::opened().or_else(opened_for_good) else { return };
        let fault = if errno == 0 { CallFault::Waits } else { CallFault::Told };
        let (function, said) = (function.to_string_lossy(), said.to_string_lossy());
        if fault == CallFault::Waits {
            static SAID: Once = Once::new();
            SAID.call_once(|| say_to_a_reader(format_args!("{function} waits for {said}")));
        }
        adapter.device().process().note_refused_call(&CallRefusal {
            verb: Name::new(&function),
            errno,
            fault,
            said: Name::new(&said),
            ..CallRefusal::default()
        });
        adapter.close();
    });
}

/// That device.
pub(super) static OPENED: SleepingMutex<Option<Arc<Adapter>>> = SleepingMutex::new(None);

/// Opens a device that stays open, as librdmacm's devices do. `transom explain` looks for refusals in the device's slot
/// in the registry. A new device for each refusal would take the slots of others.
fn opened_for_good() -> Option<Arc<Adapter>> {
    let adapter = adapters::open(0).ok()?;
    // In a forked child, the old value is a copy of its parent's device. Leave that untouched.
    std::mem::forget(OPENED.lock().replace(adapter.clone()));
    Some(adapter)
}

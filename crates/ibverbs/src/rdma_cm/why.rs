//! Why calls of librdmacm's are refused, for `transom explain`.
//!
//! A command that is refused leaves its sentence with the thread, and librdmacm asks for it there
//! ([`transom_rdma_cm_why`]): which of its functions a program has called, only librdmacm knows. That comes back
//! with the function's name ([`transom_rdma_cm_refused`]), and is kept where refusals of verbs are.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::sync::{Arc, Once};

use parking_lot::Mutex;
use transom_host::Adapter;

use transom_system::registry::{CallFault, CallRefusal, Name};
use transom_system::say_to_whoever_reads;

use super::command::Refusal;
use crate::adapters;
use crate::entry::effect_always;

thread_local! {
    /// Why the last command of this thread's was refused.
    static WHY: Cell<Name<{ CallRefusal::SAID }>> = const { Cell::new(Name::EMPTY) };
}

/// Keeps why a command is refused; its errno.
pub(super) fn keep(refusal: &Refusal) -> c_int {
    WHY.set(Name::new(refusal.said()));
    refusal.errno()
}

/// Writes why the last command of this thread's was refused, without a zero behind it: how many bytes that is.
///
/// # Safety
/// There is so much room.
pub unsafe extern "C" fn transom_rdma_cm_why(to: *mut c_char, room: usize) -> usize {
    let why = WHY.get();
    let bytes = why.as_bytes();
    let length = bytes.len().min(room);
    // SAFETY: by the contract of this function.
    unsafe { to.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), length) };
    length
}

/// Keeps what a function of librdmacm answered, and why; or what it waits for if it has no errno. A program that has
/// no device yet opens one for that, which it is about to do or could not be asked why.
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
        // What cannot be opened has been said where it was asked for.
        let Some(adapter) = adapters::opened().or_else(opened_for_good) else { return };
        let fault = if errno == 0 { CallFault::Waits } else { CallFault::Told };
        let (function, said) = (function.to_string_lossy(), said.to_string_lossy());
        if fault == CallFault::Waits {
            static SAID: Once = Once::new();
            SAID.call_once(|| say_to_whoever_reads(format_args!("{function} waits for {said}")));
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

/// A device that stays open, as librdmacm's devices do: its slot in the registry is where what was refused is looked
/// for, and a device for each refusal would take that of others.
fn opened_for_good() -> Option<Arc<Adapter>> {
    static OPENED: Mutex<Option<Arc<Adapter>>> = Mutex::new(None);
    let adapter = adapters::open().ok()?;
    // A forked child's copy of its parent's is left as it is.
    std::mem::forget(OPENED.lock().replace(adapter.clone()));
    Some(adapter)
}

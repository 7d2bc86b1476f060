//! The functions with which librdmacm tells `transom check` and sanitizers of ids and events. It finds them at run
//! time. First it asks whether there is anybody to tell ([`transom_rdma_cm_watched`]). If not, it calls none of the
//! others.
//!
//! The addresses are the program's. Only those of an event that the program is about to get, and of its id, are followed.

use std::ffi::{CStr, c_char, c_int, c_void};

use transom_abi::{
    RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_UNREACHABLE, rdma_cm_event,
    rdma_cm_id,
};
use transom_check::ledger::{ConnectionEvent, Event, Owner, Thing};
use transom_system::callers::is_ours;
use transom_system::sanitizers;

use crate::check::{self, on};
use crate::entry::effect_always;

/// Nobody is to be told.
const BY_NOBODY: c_int = 0;
/// Somebody is.
const WATCHED: c_int = 1;
/// Somebody is, and librdmacm must keep the memory of ended ids and events, so that the check recognizes them. A
/// sanitizer itself recognizes freed memory, and names the call that freed it.
const KEPT: c_int = 2;

/// Says who is to be told in this process. The library that contains `code` is no part of the program.
pub extern "C" fn transom_rdma_cm_watched(code: *const c_void) -> c_int {
    let mut answer = BY_NOBODY;
    effect_always(|| {
        sanitizers::begin();
        check::begin();
        is_ours(code);
        answer = match (on().is_some(), sanitizers::see_what_is_freed()) {
            (false, false) => BY_NOBODY,
            (_, true) => WATCHED,
            (true, false) => KEPT,
        };
    });
    answer
}

/// An id is made.
pub extern "C" fn transom_rdma_cm_id_made(id: *const c_void) {
    effect_always(|| {
        on().into_iter().for_each(|checker| checker.made(Thing::Id, id.addr(), 0, 0));
    });
}

/// An id has ended.
pub extern "C" fn transom_rdma_cm_id_ended(id: *const c_void) {
    effect_always(|| {
        on().into_iter().for_each(|checker| checker.ended(Thing::Id, id.addr()));
    });
}

/// The program gets an event of an id, and perhaps of a group too. `length` is its size in bytes.
pub extern "C" fn transom_rdma_cm_event_got(
    event: *const c_void,
    length: usize,
    id: *const c_void,
    group: *const c_void,
) {
    let (given, asked) = (event, id);
    let (address, id, group) = (event.addr(), id.addr(), group.addr());
    let event = ConnectionEvent { address, length, id, group };
    effect_always(|| {
        let Some(checker) = on() else { return };
        checker.connection_event_got(event);
        // SAFETY: librdmacm gives the program an event of its own with an id that lives, or of a request with the listener.
        if let Some((pair, name)) = unsafe { unconnected(given.cast(), asked.cast()) } {
            checker.pair_unconnected(pair, name);
        }
    });
}

/// If an event says that its id is not connected: the address of the id's queue pair, and the event's name.
///
/// # Safety
/// Both are readable.
unsafe fn unconnected(
    event: *const rdma_cm_event,
    id: *const rdma_cm_id,
) -> Option<(usize, &'static str)> {
    // SAFETY: by the contract of this function.
    let name = match unsafe { (*event).event } {
        RDMA_CM_EVENT_CONNECT_ERROR => "RDMA_CM_EVENT_CONNECT_ERROR",
        RDMA_CM_EVENT_UNREACHABLE => "RDMA_CM_EVENT_UNREACHABLE",
        RDMA_CM_EVENT_REJECTED => "RDMA_CM_EVENT_REJECTED",
        _ => return None,
    };
    // SAFETY: as above.
    let pair = unsafe { (*id).qp };
    (!pair.is_null()).then(|| (pair.addr(), name))
}

/// The program acknowledges an event.
pub extern "C" fn transom_rdma_cm_event_acked(event: *const c_void) {
    effect_always(|| {
        on().into_iter().for_each(|checker| checker.connection_event_acknowledged(event.addr()));
    });
}

/// The memory of an event or an id that has ended is about to be freed.
pub extern "C" fn transom_rdma_cm_event_freed(ended: *const c_void) {
    effect_always(|| {
        on().into_iter().for_each(|checker| checker.connection_memory_freed(ended.addr()));
    });
}

/// A function of librdmacm is about to use these bytes for the program. Returns 1 if they belong to something that has
/// ended.
pub extern "C" fn transom_rdma_cm_used(address: *const c_void, length: usize) -> c_int {
    let mut has_ended = false;
    effect_always(|| {
        sanitizers::are_used(address.addr() as u64, length as u64);
        has_ended = on().is_some_and(|checker| checker.has_ended(address.addr()));
    });
    has_ended.into()
}

/// A function got a pointer into something that has ended.
///
/// # Safety
/// The function's name is a string.
pub unsafe extern "C" fn transom_rdma_cm_given(function: *const c_char, address: *const c_void) {
    effect_always(|| {
        let Some(checker) = on() else { return };
        // SAFETY: by the contract of this function.
        let function = unsafe { CStr::from_ptr(function) }.to_string_lossy();
        checker.given_to_connections(&function, address.addr());
    });
}

/// A function waits until events of an id or a group are acknowledged. `is_late` says that it has waited for long;
/// otherwise it begins to wait. Returns 1 if the check reports it.
///
/// # Safety
/// The function's name is a string.
pub unsafe extern "C" fn transom_rdma_cm_waits(
    function: *const c_char,
    owner: *const c_void,
    is_group: c_int,
    is_late: c_int,
) -> c_int {
    let thing = if is_group != 0 { Thing::Group } else { Thing::Id };
    let owner = Owner { event: Event::Connection, thing, address: owner.addr() };
    let mut is_told = false;
    effect_always(|| {
        let Some(checker) = on() else { return };
        // SAFETY: by the contract of this function.
        let function = unsafe { CStr::from_ptr(function) }.to_string_lossy();
        is_told = checker.waits(&function, owner, is_late != 0);
    });
    is_told.into()
}

//! Tells `transom check` and sanitizers of ids and events.
//!
//! In a process without either, each call only looks at one pointer.

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

use transom_abi::rdma_cm_id;

use crate::file::{CheckCalls, FileCalls};
use crate::last::Last;
use crate::wrong::Wrong;

/// The functions to tell.
struct Told {
    calls: CheckCalls,
    /// Keeps ended ids and events for a while, so that a later use of one is recognized.
    keeps: bool,
}

static TOLD: OnceLock<Told> = OnceLock::new();

thread_local! {
    /// This thread does this library's own work.
    static OWN_WORK: Cell<bool> = const { Cell::new(false) };
}

/// The functions to tell, while this thread does the program's work.
fn told() -> Option<&'static Told> {
    TOLD.get().filter(|_| !OWN_WORK.get())
}

/// As long as this lives, this thread does this library's own work, such as that of a socket. The objects that it makes
/// are not the program's, so nobody is told of them.
pub(crate) struct OwnWork {
    before: bool,
}

impl OwnWork {
    pub(crate) fn begin() -> Self {
        Self { before: Self::is_so(true) }
    }

    /// Says whether this thread now does the library's own work. Returns whether it did before.
    fn is_so(own: bool) -> bool {
        if let Some(told) = TOLD.get() {
            (told.calls.own_work)(own.into());
        }
        OWN_WORK.replace(own)
    }
}

impl Drop for OwnWork {
    fn drop(&mut self) {
        Self::is_so(self.before);
    }
}

/// A channel is opened, so there may be ids and events from now on.
pub(crate) fn begin(calls: &FileCalls) {
    let Some(calls) = calls.check.filter(|_| TOLD.get().is_none()) else { return };
    let answer = (calls.watched)((begin as fn(&FileCalls)) as *const c_void);
    if answer > 0 {
        TOLD.get_or_init(|| Told { calls, keeps: answer > 1 });
    }
}

/// The owner of the events that a call waits for.
#[derive(Clone, Copy)]
pub(crate) enum Owner {
    Id(*mut rdma_cm_id),
    /// A group, by the address that identifies it.
    Group(*const c_void),
}

/// An id is made.
pub(crate) fn id_made(id: *mut rdma_cm_id) {
    if let Some(told) = told() {
        (told.calls.id_made)(id.cast());
    }
}

/// An id has ended.
pub(crate) fn id_ended(id: *mut rdma_cm_id) {
    if let Some(told) = told() {
        (told.calls.id_ended)(id.cast());
    }
}

/// The program gets an event of an id, and perhaps of a group. `length` is the size of its memory in bytes.
pub(crate) fn event_got(
    event: *const c_void,
    length: usize,
    id: *mut rdma_cm_id,
    group: Option<*const c_void>,
) {
    if let Some(told) = told() {
        (told.calls.event_got)(event, length, id.cast(), group.unwrap_or(std::ptr::null()));
    }
}

/// A function of librdmacm is about to use this for the program. If it belongs to something that has ended, this fails
/// with `said`. The function reports that by [`given`].
pub(crate) fn used<T>(what: *const T, said: &'static str) -> Result<(), Wrong> {
    bytes_used(what.cast(), size_of::<T>(), said)
}

/// The same for these bytes.
pub(crate) fn bytes_used(
    from: *const c_void,
    length: usize,
    said: &'static str,
) -> Result<(), Wrong> {
    match told().filter(|_| !from.is_null()).map(|told| (told.calls.used)(from, length)) {
        Some(1) => Err(Wrong::of_ended(from.addr(), said)),
        _ => Ok(()),
    }
}

/// A function got a pointer to something that has ended.
pub(crate) fn given(function: &'static CStr, address: usize) {
    if let Some(told) = told() {
        // SAFETY: a string that stays.
        unsafe { (told.calls.given)(function.as_ptr(), std::ptr::without_provenance(address)) };
    }
}

/// A function waits until the program acknowledges events. `is_late` says that it has waited for long; otherwise it
/// begins to wait. Returns whether the check reports that it waits for ever.
pub(crate) fn waits(function: &'static CStr, owner: Owner, is_late: bool) -> bool {
    let Some(told) = told() else { return false };
    let (owner, is_group) = match owner {
        Owner::Id(id) => (id.cast_const().cast(), false),
        Owner::Group(group) => (group, true),
    };
    // SAFETY: a static string.
    unsafe { (told.calls.waits)(function.as_ptr(), owner, is_group.into(), is_late.into()) == 1 }
}

/// An event or an id that has ended and is kept.
struct Kept {
    address: usize,
    _memory: Box<dyn Send>,
}

impl Kept {
    fn of(memory: Box<impl Send + 'static>) -> Self {
        let at = &raw const *memory;
        Self { address: at.expose_provenance(), _memory: memory }
    }
}

/// The program has acknowledged an event.
pub(crate) fn free_event(event: Box<impl Send + 'static>) {
    if let Some(told) = told() {
        let at = &raw const *event;
        (told.calls.event_acked)(at.cast());
        free(told, Kept::of(event));
    }
}

/// An id has ended, and nothing uses it any more.
pub(crate) fn free_id(id: Box<impl Send + 'static>) {
    if let Some(told) = told() {
        free(told, Kept::of(id));
    }
}

/// Frees it. Or keeps it for a while, and frees the one that was kept longest.
fn free(told: &Told, ended: Kept) {
    static KEPT: Last<Kept, 1024> = Last::new();
    let ended = Box::new(ended);
    let freed = if told.keeps { KEPT.keep(ended) } else { Some(ended) };
    // From then on another thing may have the address.
    if let Some(freed) = &freed {
        (told.calls.event_freed)(std::ptr::without_provenance(freed.address));
    }
    drop(freed);
}

#[cfg(test)]
mod tests {
    use std::ffi::{c_char, c_int};

    use parking_lot::Mutex;

    use super::*;

    static FREED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

    /// Calls that keep what is freed.
    fn calls() -> CheckCalls {
        extern "C" fn watched(_: *const c_void) -> c_int {
            2
        }
        extern "C" fn ignored(_: *const c_void) {}
        extern "C" fn got(_: *const c_void, _: usize, _: *const c_void, _: *const c_void) {}
        extern "C" fn freed(what: *const c_void) {
            FREED.lock().push(what.addr());
        }
        extern "C" fn used(_: *const c_void, _: usize) -> c_int {
            0
        }
        extern "C" fn given(_: *const c_char, _: *const c_void) {}
        extern "C" fn waits(_: *const c_char, _: *const c_void, _: c_int, _: c_int) -> c_int {
            0
        }
        extern "C" fn own_work(_: c_int) {}
        CheckCalls {
            watched,
            id_made: ignored,
            id_ended: ignored,
            event_got: got,
            event_acked: ignored,
            event_freed: freed,
            used,
            given,
            waits,
            own_work,
        }
    }

    /// Rules: CHK-05, CHK-33
    #[test]
    fn whoever_knows_ended_ids_and_events_is_told_when_another_may_have_the_address() {
        let told = Told { calls: calls(), keeps: true };
        let all: Vec<_> = (0..1026_u64).map(|it| Kept::of(Box::new(it))).collect();
        let addresses: Vec<_> = all.iter().map(|it| it.address).collect();
        all.into_iter().for_each(|it| free(&told, it));
        assert_eq!(*FREED.lock(), addresses[..2]);
    }
}

//! What `transom check` and sanitizers are told of ids and events, in a process that has them.
//!
//! In any other process there is nobody to tell, and one pointer is looked at.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

use parking_lot::Mutex;
use transom_abi::rdma_cm_id;

use crate::file::{CheckCalls, FileCalls};
use crate::wrong::Wrong;

/// Whom to tell.
struct Told {
    calls: CheckCalls,
    /// What has ended is kept for a while, so that it is recognized.
    keeps: bool,
}

static TOLD: OnceLock<Told> = OnceLock::new();

thread_local! {
    /// This thread does work of this library's own.
    static OWN_WORK: Cell<bool> = const { Cell::new(false) };
}

/// Whom to tell of what the program does.
fn told() -> Option<&'static Told> {
    TOLD.get().filter(|_| !OWN_WORK.get())
}

/// As long as it lives, this thread does work of this library's own, such as that of a socket. The objects are none of
/// the program's, and nobody is told of them.
pub(crate) struct OwnWork {
    before: bool,
}

impl OwnWork {
    pub(crate) fn begin() -> Self {
        Self { before: Self::is_so(true) }
    }

    /// Says whether it is so from now on: whether it was so before.
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

/// A channel is opened: there may be ids and events from now on.
pub(crate) fn begin(calls: &FileCalls) {
    let Some(calls) = calls.check.filter(|_| TOLD.get().is_none()) else { return };
    let answer = (calls.watched)((begin as fn(&FileCalls)) as *const c_void);
    if answer > 0 {
        TOLD.get_or_init(|| Told { calls, keeps: answer > 1 });
    }
}

/// Whose events are waited for.
#[derive(Clone, Copy)]
pub(crate) enum Owner {
    Id(*mut rdma_cm_id),
    /// A group, by what stands for it.
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

/// The program gets an event of so many bytes, of an id, and perhaps of a group.
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

/// The program has this used.
pub(crate) fn used<T>(what: *const T, said: &'static str) -> Result<(), Wrong> {
    bytes_used(what.cast(), size_of::<T>(), said)
}

/// The program has so many bytes used. If they are of something that has ended, this is what is said.
pub(crate) fn bytes_used(
    from: *const c_void,
    length: usize,
    said: &'static str,
) -> Result<(), Wrong> {
    match told().filter(|_| !from.is_null()).map(|told| (told.calls.used)(from, length)) {
        Some(1) => Err(Wrong::invalid(said)),
        _ => Ok(()),
    }
}

/// A function waits for events to be acknowledged, and has done so for long or begins to. Whether it is said that it
/// waits for ever.
pub(crate) fn waits(function: &'static CStr, owner: Owner, is_late: bool) -> bool {
    let Some(told) = told() else { return false };
    let (owner, is_group) = match owner {
        Owner::Id(id) => (id.cast_const().cast(), false),
        Owner::Group(group) => (group, true),
    };
    // SAFETY: a string that stays.
    unsafe { (told.calls.waits)(function.as_ptr(), owner, is_group.into(), is_late.into()) == 1 }
}

/// What has ended and is kept: perhaps an event, where it is.
struct Kept {
    event: Option<usize>,
    _memory: Box<dyn Send>,
}

/// The program has acknowledged an event.
pub(crate) fn free_event(event: Box<impl Send + 'static>) {
    if let Some(told) = told() {
        let at = &raw const *event;
        (told.calls.event_acked)(at.cast());
        free(told, Kept { event: Some(at.expose_provenance()), _memory: event });
    }
}

/// An id has ended, and nobody uses it any more.
pub(crate) fn free_id(id: Box<impl Send + 'static>) {
    if let Some(told) = told() {
        free(told, Kept { event: None, _memory: id });
    }
}

/// Frees it, or keeps it for a while and frees what was kept for longest.
fn free(told: &Told, ended: Kept) {
    static KEPT: Mutex<VecDeque<Kept>> = Mutex::new(VecDeque::new());
    const MOST: usize = 1024;
    let mut kept = KEPT.lock();
    kept.push_back(ended);
    let freed = if !told.keeps || kept.len() > MOST { kept.pop_front() } else { None };
    drop(kept);
    if let Some(event) = freed.as_ref().and_then(|freed| freed.event) {
        (told.calls.event_freed)(std::ptr::without_provenance(event));
    }
    drop(freed);
}

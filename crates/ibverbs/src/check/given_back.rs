//! Memory that the program gives back, as `libtransom_freed.so` tells, which only `transom check` preloads.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use transom_check::ledger::{GivenHow, Leaving, UnderWay};
use transom_device::operation::Operation;
use transom_device::protection::{Attempt, Reason, Refusal};
use transom_interpose::given_back::{Given, VERSION, WATCH, Watch, Watcher};
use transom_system::watch_refusals;

use super::work::called_by_name;
use super::{claims, on_outside, site};

/// Where regions are, or have been.
static BOUNDS: [AtomicUsize; 2] = [AtomicUsize::new(usize::MAX), AtomicUsize::new(0)];

static WATCHER: Watcher =
    Watcher { version: VERSION, bounds: &BOUNDS, before, after, says: claims::says };

/// Asks to be told, if there is somebody to tell.
pub(super) fn watch() {
    watch_refusals(refused);
    // SAFETY: a name that ends in zero, of a function that is as `Watch` says, or of none.
    let watch: Option<Watch> =
        unsafe { std::mem::transmute(libc::dlsym(libc::RTLD_DEFAULT, WATCH.as_ptr())) };
    if let Some(watch) = watch {
        site::pass_over(watch as *const () as usize);
        // SAFETY: the watcher stays, and so does this library: its file is open in the checker.
        unsafe { watch(&WATCHER) };
    }
}

/// From now on what is given back there is told.
pub(super) fn look_at(range: &Range<u64>) {
    BOUNDS[0].fetch_min(range.start as usize, Relaxed);
    BOUNDS[1].fetch_max(range.end as usize, Relaxed);
}

unsafe extern "C" fn before(first: *const c_void, length: usize) -> *mut c_void {
    let (start, length) = (first.addr() as u64, length as u64);
    let range = start..start.saturating_add(length);
    let Some(checker) = on_outside() else { return null_mut() };
    let regions = checker.tell(|ledger| ledger.regions_in(&range));
    if regions.is_empty() {
        return null_mut();
    }
    // What this library gives back itself is no mistake of the program's.
    let Some(call) = site::call_of_program() else { return null_mut() };
    let is_private = is_shared(&range) || checker.maps.is_private(start, length);
    Box::into_raw(Box::new(Leaving { range, regions, is_private, call })).cast()
}

unsafe extern "C" fn after(told: *mut c_void, given: Given) {
    // SAFETY: what `before` has answered, once.
    let leaving = unsafe { Box::from_raw(told.cast::<Leaving>()) };
    let how = match given {
        Given::Not => return,
        Given::Unmapped => GivenHow::Unmapped,
        // A freed block of shared memory is told so, and so is one that is emptied.
        Given::Emptied if is_shared(&leaving.range) => GivenHow::Dropped,
        Given::Emptied => GivenHow::Emptied,
        Given::Freed if is_mapped(&leaving.range) => GivenHow::Freed,
        Given::Freed => GivenHow::FreedAndUnmapped,
    };
    let Some(checker) = on_outside() else { return };
    let pairs = checker.tell(|ledger| ledger.pairs_in(&leaving));
    let under_way: Vec<UnderWay> = checker.under_way(pairs);
    checker.tell(|ledger| ledger.given_back(&leaving, how, &under_way));
    if how != GivenHow::Freed && leaving.is_private {
        checker.watch_writes();
    }
}

fn is_shared(range: &Range<u64>) -> bool {
    transom_system::memory::is_shared(range.start, range.end - range.start)
}

/// An access was refused, perhaps because its memory is not mapped any more.
fn refused(refusal: &Refusal) {
    let Attempt { operation, key, address, length, .. } = refusal.attempt;
    let Some(checker) = on_outside().filter(|_| refusal.reason == Reason::MemoryGone) else {
        return;
    };
    let what = match operation {
        Operation::LocalRead => "A request",
        Operation::LocalWrite => "A receive or READ",
        _ => &format!("A peer's {}", called_by_name(operation)),
    };
    checker.tell(|ledger| ledger.not_there(what, key.0, address, length));
}

/// Whether any whole page of a range is mapped, or there is none in it.
fn is_mapped(range: &Range<u64>) -> bool {
    // SAFETY: it takes a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    let start = range.start.next_multiple_of(page);
    if start + page > range.end {
        return true;
    }
    let mut is_resident = 0_u8;
    // SAFETY: the address of a page, which need not be mapped, and a place for one answer.
    let answer = unsafe {
        libc::mincore(start as usize as *mut c_void, page as usize, (&raw mut is_resident).cast())
    };
    answer == 0
}

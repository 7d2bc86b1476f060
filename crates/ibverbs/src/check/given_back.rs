//! Memory that the program gives back. `libtransom_freed.so` tells of it, and only `transom check` preloads that.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use transom_check::ledger::{GivenHow, Leaving, UnderWay};
use transom_device::operation::Operation;
use transom_device::protection::{Attempt, Reason, Refusal};
use transom_interpose::given_back::{Given, VERSION, WATCH, Watch, Watcher};
use transom_system::callers::pass_over;
use transom_system::watch_refusals;

use super::names::called_by_name;
use super::{Checker, claims, on_outside};
use crate::site;

/// The bounds of all regions so far.
static BOUNDS: [AtomicUsize; 2] = [AtomicUsize::new(usize::MAX), AtomicUsize::new(0)];

static WATCHER: Watcher =
    Watcher { version: VERSION, bounds: &BOUNDS, before, after, says: claims::says };

/// Asks `libtransom_freed.so` to tell, if it is in this process.
pub(super) fn watch() {
    watch_refusals(refused);
    // SAFETY: the name ends in zero. Its function, if there is one, has the type `Watch`.
    let watch: Option<Watch> =
        unsafe { std::mem::transmute(libc::dlsym(libc::RTLD_DEFAULT, WATCH.as_ptr())) };
    if let Some(watch) = watch {
        pass_over(watch as *const () as usize);
        // SAFETY: the watcher stays, and so does this library: its file is open in the checker.
        unsafe { watch(&WATCHER) };
    }
}

/// From now on the library tells of memory that is given back in this range.
pub(super) fn look_at(range: &Range<u64>) {
    BOUNDS[0].fetch_min(range.start as usize, Relaxed);
    BOUNDS[1].fetch_max(range.end as usize, Relaxed);
}

unsafe extern "C" fn before(first: *const c_void, length: usize) -> *mut c_void {
    let (start, length) = (first.addr() as u64, length as u64);
    let range = start..start.saturating_add(length);
    let Some(checker) = on_outside() else { return null_mut() };
    let leaving = checker.attempt(|| {
        let regions = checker.tell(|ledger| ledger.regions_in(&range));
        if regions.is_empty() {
            return None;
        }
        // Memory that this library gives back itself is no mistake of the program.
        let call = site::call_of_program()?;
        let is_private = is_shared(&range) || checker.maps.is_private(start, length);
        Some(Box::new(Leaving { range, regions, is_private, call }))
    });
    leaving.map_or(null_mut(), |leaving| Box::into_raw(leaving).cast())
}

unsafe extern "C" fn after(told: *mut c_void, given: Given) {
    // SAFETY: what `before` has answered, once.
    let leaving = unsafe { Box::from_raw(told.cast::<Leaving>()) };
    if let Some(checker) = on_outside() {
        checker.attempt(|| checker.given_back(&leaving, given));
    }
}

impl Checker {
    fn given_back(&self, leaving: &Leaving, given: Given) {
        let how = match given {
            Given::Not => return,
            Given::Unmapped => GivenHow::Unmapped,
            // A freed block of shared memory comes as `Emptied` too.
            Given::Emptied if is_shared(&leaving.range) => GivenHow::Dropped,
            Given::Emptied => GivenHow::Emptied,
            Given::Freed if is_mapped(&leaving.range) => GivenHow::Freed,
            Given::Freed => GivenHow::FreedAndUnmapped,
        };
        let pairs = self.tell(|ledger| ledger.pairs_in(leaving));
        let under_way: Vec<UnderWay> = self.under_way(pairs);
        self.tell(|ledger| ledger.given_back(leaving, how, &under_way));
        if how != GivenHow::Freed && leaving.is_private {
            self.watch_writes();
        }
    }
}

fn is_shared(range: &Range<u64>) -> bool {
    transom_system::memory::is_shared(range.start, range.end - range.start)
}

/// An access was refused, perhaps because its memory is no longer mapped.
fn refused(refusal: &Refusal) {
    let Attempt { operation, key, address, length, qp, .. } = refusal.attempt;
    let Some(checker) = on_outside().filter(|_| refusal.reason == Reason::MemoryGone) else {
        return;
    };
    let what = match operation {
        Operation::LocalRead => "A request",
        Operation::LocalWrite => "A receive or READ",
        _ => &format!("A peer's {}", called_by_name(operation)),
    };
    checker.tell(|ledger| ledger.not_there(what, qp, key.0, address, length));
}

/// Whether the first whole page of a range is mapped. True if the range contains no whole page.
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

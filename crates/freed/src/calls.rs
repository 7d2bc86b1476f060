//! The functions that give memory back. Each has the name and the arguments of the C library's function.

use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};

use libc::{ENOSYS, size_t};
use transom_interpose::given_back::{Given, VERSION, Watcher};
use transom_thread::{errno, set_errno};

use crate::next;

/// The checker to tell.
static WATCHER: AtomicPtr<Watcher> = AtomicPtr::new(null_mut());
/// The checker also hears of blocks of the heap.
static TELLS_BLOCKS: AtomicBool = AtomicBool::new(false);

/// A checker asks to be told.
///
/// # Safety
///
/// The checker's functions can be called until the process ends.
#[unsafe(no_mangle)]
unsafe extern "C" fn transom_freed_watch(watcher: &'static Watcher) -> bool {
    let pointer = std::ptr::from_ref(watcher).cast_mut();
    let is_first = watcher.version == VERSION
        && WATCHER.compare_exchange(null_mut(), pointer, AcqRel, Relaxed).is_ok();
    if is_first {
        TELLS_BLOCKS.store(next::is_of_the_c_library(), Release);
    }
    is_first
}

/// The checker to tell, if one has asked.
#[inline]
pub(crate) fn watcher() -> Option<&'static Watcher> {
    // SAFETY: a checker that has asked stays until the process ends.
    unsafe { WATCHER.load(Acquire).as_ref() }
}

/// Memory of a region that a call is about to give back.
struct Leaving {
    watcher: &'static Watcher,
    told: NonNull<c_void>,
}

impl Leaving {
    /// None if no region has it. `length` returns the number of bytes, and is only called if the memory may have a
    /// region.
    #[inline]
    fn of(first: *const c_void, length: impl FnOnce() -> usize) -> Option<Self> {
        let watcher = watcher()?;
        let [start, end] = watcher.bounds;
        if first.addr() >= end.load(Relaxed) {
            return None;
        }
        let length = length();
        if first.addr().saturating_add(length) <= start.load(Relaxed) || length == 0 {
            return None;
        }
        let before = errno();
        // SAFETY: the checker's function takes any range.
        let told = unsafe { (watcher.before)(first, length) };
        set_errno(before);
        NonNull::new(told).map(|told| Self { watcher, told })
    }

    /// The call is over.
    fn end(self, given: Given) {
        let before = errno();
        // SAFETY: `before` returned this pointer, and it is given back once.
        unsafe { (self.watcher.after)(self.told.as_ptr(), given) };
        set_errno(before);
    }
}

/// `munmap(2)`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(first: *mut c_void, length: size_t) -> c_int {
    let Some(next) = next::munmap() else { return without() };
    let leaving = Leaving::of(first, || length);
    // SAFETY: by the contract of the C library's function.
    let answer = unsafe { next(first, length) };
    if let Some(leaving) = leaving {
        leaving.end(if answer == 0 { Given::Unmapped } else { Given::Not });
    }
    answer
}

/// `madvise(2)`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn madvise(first: *mut c_void, length: size_t, advice: c_int) -> c_int {
    let Some(next) = next::madvise() else { return without() };
    let empties = advice == libc::MADV_DONTNEED || advice == libc::MADV_REMOVE;
    let leaving = empties.then(|| Leaving::of(first, || length)).flatten();
    // SAFETY: by the contract of the C library's function.
    let answer = unsafe { next(first, length, advice) };
    if let Some(leaving) = leaving {
        leaving.end(if answer == 0 { Given::Emptied } else { Given::Not });
    }
    answer
}

/// The block that is about to be freed, if the checker wants to hear of it.
#[inline]
fn block_leaves(block: *mut c_void) -> Option<Leaving> {
    if block.is_null() || !TELLS_BLOCKS.load(Acquire) {
        return None;
    }
    // SAFETY: the program is about to free this block of the C library.
    let length = || next::malloc_usable_size().map_or(0, |usable| unsafe { usable(block) });
    Leaving::of(block, length)
}

/// `free(3)`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn free(block: *mut c_void) {
    let Some(next) = next::free() else { return };
    let leaving = block_leaves(block);
    // SAFETY: by the contract of the C library's function.
    unsafe { next(block) };
    if let Some(leaving) = leaving {
        leaving.end(Given::Freed);
    }
}

/// `realloc(3)`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(block: *mut c_void, size: size_t) -> *mut c_void {
    let Some(next) = next::realloc() else {
        set_errno(libc::ENOMEM);
        return null_mut();
    };
    let leaving = block_leaves(block);
    let old = block.addr();
    // SAFETY: by the contract of the C library's function.
    let other = unsafe { next(block, size) };
    if let Some(leaving) = leaving {
        let has_moved = other.addr() != old && (!other.is_null() || size == 0);
        leaving.end(if has_moved { Given::Freed } else { Given::Not });
    }
    other
}

/// The result of a function that the C library does not have.
fn without() -> c_int {
    set_errno(ENOSYS);
    -1
}

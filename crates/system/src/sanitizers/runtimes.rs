//! The sanitizers in this process, and their functions.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::transmute_copy;
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering::*};

use super::Access;
use crate::valgrind;

/// The sanitizers of this process. Null if there are none.
static RUNTIMES: AtomicPtr<Runtimes> = AtomicPtr::new(null_mut());

/// The sanitizers of this process, if there are any.
#[inline]
pub(super) fn runtimes() -> Option<&'static Runtimes> {
    // SAFETY: null, or a box that was leaked.
    unsafe { RUNTIMES.load(Acquire).as_ref() }
}

/// Looks for sanitizers, once.
pub fn begin() {
    static BEGIN: Once = Once::new();
    BEGIN.call_once(|| {
        if let Some(found) = Runtimes::find() {
            RUNTIMES.store(Box::into_raw(Box::new(found)), Release);
        }
    });
}

/// The functions that were found.
pub(super) struct Runtimes {
    address: Option<AddressSanitizer>,
    tags: Option<HwAddressSanitizer>,
    pub(super) thread: Option<ThreadSanitizer>,
    memory: Option<MemorySanitizer>,
    memcheck: bool,
    symbolize: Option<Symbolize>,
}

type Range = unsafe extern "C" fn(*const c_void, usize);
type RangeAt = unsafe extern "C" fn(*const c_void, usize, *const c_void);
type Symbolize = unsafe extern "C" fn(*const c_void, *const c_char, *mut c_char, usize);
type Plain = unsafe extern "C" fn();
type At = unsafe extern "C" fn(*const c_void);

struct AddressSanitizer {
    region_is_poisoned: unsafe extern "C" fn(*const c_void, usize) -> *const c_void,
    report_error: unsafe extern "C" fn(
        *const c_void,
        *const c_void,
        *const c_void,
        *const c_void,
        c_int,
        usize,
    ),
    shadow_mapping: Option<unsafe extern "C" fn(*mut usize, *mut usize)>,
}

struct HwAddressSanitizer {
    test_shadow: unsafe extern "C" fn(*const c_void, usize) -> isize,
    load: Range,
    store: Range,
}

/// ThreadSanitizer. It takes each of its fibers for a thread.
pub(super) struct ThreadSanitizer {
    pub(super) current_fiber: unsafe extern "C" fn() -> *mut c_void,
    pub(super) create_fiber: unsafe extern "C" fn(c_uint) -> *mut c_void,
    pub(super) destroy_fiber: unsafe extern "C" fn(*mut c_void),
    pub(super) switch_to_fiber: unsafe extern "C" fn(*mut c_void, c_uint),
    pub(super) set_fiber_name: unsafe extern "C" fn(*mut c_void, *const c_char),
    pub(super) acquire: At,
    pub(super) release: At,
    pub(super) read_range: RangeAt,
    pub(super) write_range: RangeAt,
    pub(super) atomic_load: unsafe extern "C" fn(*const u64, c_int) -> u64,
    pub(super) atomic_add: unsafe extern "C" fn(*mut u64, u64, c_int) -> u64,
    pub(super) func_entry: At,
    pub(super) func_exit: Plain,
    ignore: Ignore,
}

/// How ThreadSanitizer is told to ignore a thread for a while. Clang's exports only an older way to programs.
enum Ignore {
    Thread { begin: Plain, end: Plain },
    Annotation { begin: Annotation, end: Annotation },
}

/// It takes a file and line, for its report of a beginning without an end.
type Annotation = unsafe extern "C" fn(*const c_char, c_int);

struct MemorySanitizer {
    test_shadow: unsafe extern "C" fn(*const c_void, usize) -> isize,
    check_mem_is_initialized: Range,
    unpoison: Range,
    poison: Range,
    disable_checks: Plain,
    enable_checks: Plain,
}

/// A function of a sanitizer, by its name.
///
/// # Safety
///
/// `F` is a function pointer of the function's type.
unsafe fn function<F: Copy>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the name ends in zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: as the caller says, and of the same size.
    (!found.is_null()).then(|| unsafe { transmute_copy(&found) })
}

impl Runtimes {
    fn find() -> Option<Self> {
        // SAFETY: each function has the type that the headers in `sanitizer/` declare.
        let found = unsafe {
            Self {
                address: AddressSanitizer::find(),
                tags: HwAddressSanitizer::find(),
                thread: ThreadSanitizer::find(),
                memory: MemorySanitizer::find(),
                memcheck: valgrind::is_under_memcheck(),
                symbolize: function(c"__sanitizer_symbolize_pc"),
            }
        };
        let Self { address, tags, thread, memory, memcheck, .. } = &found;
        let any = address.is_some() || tags.is_some() || thread.is_some() || memory.is_some();
        (any || *memcheck).then_some(found)
    }

    /// Whether a sanitizer knows which memory was freed, and where.
    pub(super) const fn see_what_is_freed(&self) -> bool {
        self.address.is_some() || self.tags.is_some() || self.memcheck
    }

    /// The offset of AddressSanitizer's notes, if it is the only one and has them as others expect.
    pub(super) fn notes_for_others(&self) -> Option<u64> {
        const SCALE: usize = 3;
        let Self {
            address: Some(asan),
            tags: None,
            thread: None,
            memory: None,
            memcheck: false,
            ..
        } = self
        else {
            return None;
        };
        let (mut scale, mut offset) = (0, 0);
        // SAFETY: it writes two numbers.
        unsafe { asan.shadow_mapping?(&mut scale, &mut offset) };
        (scale == SCALE).then_some(offset as u64)
    }

    /// Whether one of them looks at what Transom's own code does unless it is told not to.
    pub(super) const fn look_inside(&self) -> bool {
        self.thread.is_some() || self.memory.is_some() || self.memcheck
    }

    /// The first byte of a range that is not the program's to use, if there is one.
    pub(super) fn first_poisoned(&self, address: u64, length: u64) -> Option<u64> {
        let (first, size) = (address as *const c_void, length as usize);
        if let Some(asan) = &self.address {
            // SAFETY: it only reads its own shadow memory, for any range.
            let found = unsafe { (asan.region_is_poisoned)(first, size) };
            return (!found.is_null()).then_some(found as u64);
        }
        if let Some(hwasan) = &self.tags {
            // SAFETY: as above.
            let offset = unsafe { (hwasan.test_shadow)(first, size) };
            return u64::try_from(offset).ok().map(|offset| address + offset);
        }
        (self.memcheck && valgrind::has_unaddressable(address, length)).then_some(address)
    }

    /// Makes the sanitizer report that. Most then end the process.
    pub(super) fn report_poisoned(&self, first: u64, address: u64, length: u64, access: Access) {
        if let Some(asan) = &self.address {
            let (pc, stack) = (here(), &raw const first as *const c_void);
            let (at, size) = (first as *const c_void, (address + length - first) as usize);
            // SAFETY: it prints its arguments, and the unwinder reads the stack.
            unsafe {
                (asan.report_error)(
                    pc,
                    stack,
                    stack,
                    at,
                    c_int::from(access == Access::Write),
                    size,
                );
            }
        } else if let Some(hwasan) = &self.tags {
            let check = match access {
                Access::Read => hwasan.load,
                Access::Write => hwasan.store,
            };
            // SAFETY: as in `first_poisoned`.
            unsafe { check(address as *const c_void, length as usize) };
        }
        if self.memcheck {
            valgrind::pause_reports(false);
            valgrind::has_unaddressable(address, length);
            valgrind::pause_reports(true);
        }
    }

    /// Whether the program has not written all of a range.
    pub(super) fn has_undefined(&self, address: u64, length: u64) -> bool {
        match &self.memory {
            // SAFETY: it only reads its own shadow memory.
            Some(msan) => unsafe {
                (msan.test_shadow)(address as *const c_void, length as usize) >= 0
            },
            None => self.memcheck && valgrind::has_undefined(address, length),
        }
    }

    /// Makes the sanitizer report that.
    pub(super) fn report_undefined(&self, address: u64, length: u64) {
        if let Some(msan) = &self.memory {
            // SAFETY: as in `has_undefined`; this thread is within Transom.
            unsafe { (msan.check_mem_is_initialized)(address as *const c_void, length as usize) };
        }
        if self.memcheck {
            valgrind::pause_reports(false);
            valgrind::has_undefined(address, length);
            valgrind::pause_reports(true);
        }
    }

    /// Marks memory as written.
    pub(super) fn define(&self, address: u64, length: u64) {
        if let Some(msan) = &self.memory {
            // SAFETY: it changes its own notes only.
            unsafe { (msan.unpoison)(address as *const c_void, length as usize) };
        }
        if self.memcheck {
            valgrind::define(address, length);
        }
    }

    /// Marks memory as not written, so the program must not use its content.
    pub(super) fn undefine(&self, address: u64, length: u64) {
        if let Some(msan) = &self.memory {
            // SAFETY: it changes its own notes only.
            unsafe { (msan.poison)(address as *const c_void, length as usize) };
        }
        if self.memcheck {
            valgrind::undefine(address, length);
        }
    }

    /// From now on the accesses of this thread are not the program's.
    pub(super) fn begin_inside(&self) {
        // SAFETY: each counts, and `end_inside` counts back.
        unsafe {
            self.thread.iter().for_each(|tsan| tsan.ignore.begin());
            self.memory.iter().for_each(|msan| (msan.disable_checks)());
        }
        if self.memcheck {
            valgrind::pause_reports(true);
        }
    }

    /// Ends what [`Runtimes::begin_inside`] has begun.
    pub(super) fn end_inside(&self) {
        // SAFETY: it counts back as often as `begin_inside` has counted.
        unsafe {
            self.thread.iter().for_each(|tsan| tsan.ignore.end());
            self.memory.iter().for_each(|msan| (msan.enable_checks)());
        }
        if self.memcheck {
            valgrind::pause_reports(false);
        }
    }

    /// The places of an address of code, each as `function file line`, the innermost inlined function first. Empty if
    /// they are unknown.
    pub(super) fn places(&self, pc: usize) -> Vec<String> {
        const ROOM: usize = 1024;
        let Some(symbolize) = self.symbolize else { return Vec::new() };
        let mut text = [0_u8; ROOM];
        // SAFETY: it writes strings that end in zero, and an empty one behind them, into a buffer of this size.
        unsafe {
            let format = c"%f %s %l";
            symbolize(pc as *const c_void, format.as_ptr(), text.as_mut_ptr().cast(), ROOM);
        }
        let places = text.split(|byte| *byte == 0).take_while(|place| !place.is_empty());
        places.map(|place| String::from_utf8_lossy(place).into_owned()).collect()
    }
}

impl AddressSanitizer {
    unsafe fn find() -> Option<Self> {
        // SAFETY: as the caller says.
        unsafe {
            Some(Self {
                region_is_poisoned: function(c"__asan_region_is_poisoned")?,
                report_error: function(c"__asan_report_error")?,
                shadow_mapping: function(c"__asan_get_shadow_mapping"),
            })
        }
    }
}

impl HwAddressSanitizer {
    unsafe fn find() -> Option<Self> {
        // SAFETY: as the caller says.
        unsafe {
            Some(Self {
                test_shadow: function(c"__hwasan_test_shadow")?,
                load: function(c"__hwasan_loadN")?,
                store: function(c"__hwasan_storeN")?,
            })
        }
    }
}

impl ThreadSanitizer {
    unsafe fn find() -> Option<Self> {
        // SAFETY: as the caller says.
        unsafe {
            Some(Self {
                current_fiber: function(c"__tsan_get_current_fiber")?,
                create_fiber: function(c"__tsan_create_fiber")?,
                destroy_fiber: function(c"__tsan_destroy_fiber")?,
                switch_to_fiber: function(c"__tsan_switch_to_fiber")?,
                set_fiber_name: function(c"__tsan_set_fiber_name")?,
                acquire: function(c"__tsan_acquire")?,
                release: function(c"__tsan_release")?,
                read_range: function(c"__tsan_read_range_pc")?,
                write_range: function(c"__tsan_write_range_pc")?,
                atomic_load: function(c"__tsan_atomic64_load")?,
                atomic_add: function(c"__tsan_atomic64_fetch_add")?,
                func_entry: function(c"__tsan_func_entry")?,
                func_exit: function(c"__tsan_func_exit")?,
                ignore: Ignore::find()?,
            })
        }
    }
}

impl Ignore {
    unsafe fn find() -> Option<Self> {
        // SAFETY: as the caller says.
        unsafe {
            let thread = function(c"__tsan_ignore_thread_begin");
            if let (Some(begin), Some(end)) = (thread, function(c"__tsan_ignore_thread_end")) {
                return Some(Self::Thread { begin, end });
            }
            Some(Self::Annotation {
                begin: function(c"AnnotateIgnoreReadsBegin")?,
                end: function(c"AnnotateIgnoreReadsEnd")?,
            })
        }
    }

    /// It ignores this thread until [`Ignore::end`].
    ///
    /// # Safety
    ///
    /// Each call needs a call of [`Ignore::end`] afterwards.
    unsafe fn begin(&self) {
        // SAFETY: as the caller says; it keeps the pointer to a literal.
        unsafe {
            match self {
                Self::Thread { begin, .. } => begin(),
                Self::Annotation { begin, .. } => begin(c"transom".as_ptr(), 0),
            }
        }
    }

    /// # Safety
    ///
    /// A call of [`Ignore::begin`] came before, which no other call has ended.
    unsafe fn end(&self) {
        // SAFETY: as above.
        unsafe {
            match self {
                Self::Thread { end, .. } => end(),
                Self::Annotation { end, .. } => end(c"transom".as_ptr(), 0),
            }
        }
    }
}

impl MemorySanitizer {
    unsafe fn find() -> Option<Self> {
        // SAFETY: as the caller says.
        unsafe {
            Some(Self {
                test_shadow: function(c"__msan_test_shadow")?,
                check_mem_is_initialized: function(c"__msan_check_mem_is_initialized")?,
                unpoison: function(c"__msan_unpoison")?,
                poison: function(c"__msan_poison")?,
                disable_checks: function(c"__msan_scoped_disable_interceptor_checks")?,
                enable_checks: function(c"__msan_scoped_enable_interceptor_checks")?,
            })
        }
    }
}

/// An address of this code, at which the stack of a report begins.
#[inline(always)]
fn here() -> *const c_void {
    Runtimes::report_poisoned as *const c_void
}

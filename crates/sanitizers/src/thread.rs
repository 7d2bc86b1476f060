//! ThreadSanitizer, which knows what orders the accesses of threads.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::{At, Plain, Range, function};

/// What of it librdmacm and the device need.
pub struct ThreadSanitizer {
    acquire: At,
    release: At,
    read_range: Range,
    write_range: Range,
    ignore: Ignore,
}

/// How it is told to ignore a thread for a while. Clang's exports only an older way to programs.
enum Ignore {
    Thread { begin: Plain, end: Plain },
    Annotation { begin: Annotation, end: Annotation },
}

/// It takes a file and line, for its report of a beginning without an end.
type Annotation = unsafe extern "C" fn(*const c_char, c_int);

impl ThreadSanitizer {
    /// That of this process.
    pub fn find() -> Option<Self> {
        // SAFETY: nobody else has functions of these names, and these are the types of ThreadSanitizer's.
        unsafe {
            Some(Self {
                acquire: function(c"__tsan_acquire")?,
                release: function(c"__tsan_release")?,
                read_range: function(c"__tsan_read_range")?,
                write_range: function(c"__tsan_write_range")?,
                ignore: Ignore::find()?,
            })
        }
    }

    /// What this thread has done so far comes before an [`acquire`](Self::acquire) of the address.
    pub fn release(&self, address: u64) {
        // SAFETY: it keeps a note of the address.
        unsafe { (self.release)(address as *const c_void) };
    }

    /// What was done before a [`release`](Self::release) of the address comes before what this thread does.
    pub fn acquire(&self, address: u64) {
        // SAFETY: as above.
        unsafe { (self.acquire)(address as *const c_void) };
    }

    /// Notes an access of this thread.
    pub fn touch(&self, address: u64, length: u64, writes: bool) {
        let range = if writes { self.write_range } else { self.read_range };
        // SAFETY: it changes its own notes only.
        unsafe { range(address as *const c_void, length as usize) };
    }

    /// What this thread does is not looked at, until [`resume`](Self::resume). They may nest.
    pub fn pause(&self) {
        // SAFETY: it counts. The annotation keeps the pointer to a literal.
        unsafe {
            match self.ignore {
                Ignore::Thread { begin, .. } => begin(),
                Ignore::Annotation { begin, .. } => begin(c"transom".as_ptr(), 0),
            }
        }
    }

    /// Ends a [`pause`](Self::pause).
    pub fn resume(&self) {
        // SAFETY: it counts back.
        unsafe {
            match self.ignore {
                Ignore::Thread { end, .. } => end(),
                Ignore::Annotation { end, .. } => end(c"transom".as_ptr(), 0),
            }
        }
    }
}

impl Ignore {
    /// # Safety
    ///
    /// Nobody else has functions of these names.
    unsafe fn find() -> Option<Self> {
        // SAFETY: as the caller says, and these are the types of ThreadSanitizer's.
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
}

type RangeAt = unsafe extern "C" fn(*const c_void, usize, *const c_void);

/// ThreadSanitizer with its fibers, each of which it takes for a thread. Older ones have none.
pub struct Fibers {
    /// The rest of it.
    pub thread: ThreadSanitizer,
    /// The fiber that this thread is on.
    pub current_fiber: unsafe extern "C" fn() -> *mut c_void,
    /// Makes a fiber. Takes no flags.
    pub create_fiber: unsafe extern "C" fn(c_uint) -> *mut c_void,
    /// Ends a fiber that no thread is on.
    pub destroy_fiber: unsafe extern "C" fn(*mut c_void),
    /// This thread goes to a fiber. With the flag 1 that orders nothing.
    pub switch_to_fiber: unsafe extern "C" fn(*mut c_void, c_uint),
    /// Copies the name.
    pub set_fiber_name: unsafe extern "C" fn(*mut c_void, *const c_char),
    /// Notes a read by the code at an address.
    pub read_range: RangeAt,
    /// Notes a write by the code at an address.
    pub write_range: RangeAt,
    /// Reads a word, in a memory order.
    pub atomic_load: unsafe extern "C" fn(*const u64, c_int) -> u64,
    /// Adds to a word, in a memory order.
    pub atomic_add: unsafe extern "C" fn(*mut u64, u64, c_int) -> u64,
    /// This fiber is in a function that was called there.
    pub func_entry: At,
    /// It has left it.
    pub func_exit: Plain,
}

impl Fibers {
    /// Those of this process.
    pub fn find() -> Option<Self> {
        // SAFETY: nobody else has functions of these names, and `sanitizer/tsan_interface.h` and the compiler declare
        // their types.
        unsafe {
            Some(Self {
                thread: ThreadSanitizer::find()?,
                current_fiber: function(c"__tsan_get_current_fiber")?,
                create_fiber: function(c"__tsan_create_fiber")?,
                destroy_fiber: function(c"__tsan_destroy_fiber")?,
                switch_to_fiber: function(c"__tsan_switch_to_fiber")?,
                set_fiber_name: function(c"__tsan_set_fiber_name")?,
                read_range: function(c"__tsan_read_range_pc")?,
                write_range: function(c"__tsan_write_range_pc")?,
                atomic_load: function(c"__tsan_atomic64_load")?,
                atomic_add: function(c"__tsan_atomic64_fetch_add")?,
                func_entry: function(c"__tsan_func_entry")?,
                func_exit: function(c"__tsan_func_exit")?,
            })
        }
    }
}

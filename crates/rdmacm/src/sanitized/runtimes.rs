//! The functions of MemorySanitizer and ThreadSanitizer in this process.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute_copy;
use std::sync::OnceLock;

type Range = unsafe extern "C" fn(*const c_void, usize);
type At = unsafe extern "C" fn(*const c_void);
type Plain = unsafe extern "C" fn();

/// The functions that were found.
pub(super) struct Runtimes {
    memory: Option<MemorySanitizer>,
    thread: Option<ThreadSanitizer>,
}

struct MemorySanitizer {
    unpoison: Range,
    check_mem_is_initialized: Range,
    disable_checks: Plain,
    enable_checks: Plain,
}

struct ThreadSanitizer {
    acquire: At,
    release: At,
    read_range: Range,
    write_range: Range,
    ignore: Ignore,
}

/// How ThreadSanitizer is told to ignore a thread for a while. Clang's exports only an older way to programs.
enum Ignore {
    Thread { begin: Plain, end: Plain },
    Annotation { begin: Annotation, end: Annotation },
}

/// It takes a file and line, for its report of a beginning without an end.
type Annotation = unsafe extern "C" fn(*const c_char, c_int);

/// Those of this process, if it was compiled with one of them.
#[inline]
pub(super) fn of_this_process() -> Option<&'static Runtimes> {
    static FOUND: OnceLock<Option<Runtimes>> = OnceLock::new();
    FOUND.get_or_init(Runtimes::find).as_ref()
}

/// A function of the process, by its name.
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

impl MemorySanitizer {
    /// # Safety
    /// The functions of these names have the types that `sanitizer/msan_interface.h` declares.
    unsafe fn find() -> Option<Self> {
        // SAFETY: as the caller says.
        unsafe {
            Some(Self {
                unpoison: function(c"__msan_unpoison")?,
                check_mem_is_initialized: function(c"__msan_check_mem_is_initialized")?,
                disable_checks: function(c"__msan_scoped_disable_interceptor_checks")?,
                enable_checks: function(c"__msan_scoped_enable_interceptor_checks")?,
            })
        }
    }
}

impl ThreadSanitizer {
    /// # Safety
    /// The functions of these names have the types that ThreadSanitizer's have.
    unsafe fn find() -> Option<Self> {
        // SAFETY: as the caller says.
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
}

impl Ignore {
    /// # Safety
    /// As of [`ThreadSanitizer::find`].
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
}

impl Runtimes {
    fn find() -> Option<Self> {
        // SAFETY: nobody else has functions of these names.
        let found =
            unsafe { Self { memory: MemorySanitizer::find(), thread: ThreadSanitizer::find() } };
        (found.memory.is_some() || found.thread.is_some()).then_some(found)
    }

    /// From now on the accesses of this thread are not the program's.
    pub(super) fn begin_inside(&self) {
        // SAFETY: each counts, and `end_inside` counts back. The annotation keeps the pointer to a literal.
        unsafe {
            self.memory.iter().for_each(|msan| (msan.disable_checks)());
            match self.thread.as_ref().map(|tsan| &tsan.ignore) {
                Some(Ignore::Thread { begin, .. }) => begin(),
                Some(Ignore::Annotation { begin, .. }) => begin(c"librdmacm".as_ptr(), 0),
                None => {}
            }
        }
    }

    /// Ends what [`Runtimes::begin_inside`] has begun.
    pub(super) fn end_inside(&self) {
        // SAFETY: as above.
        unsafe {
            self.memory.iter().for_each(|msan| (msan.enable_checks)());
            match self.thread.as_ref().map(|tsan| &tsan.ignore) {
                Some(Ignore::Thread { end, .. }) => end(),
                Some(Ignore::Annotation { end, .. }) => end(c"librdmacm".as_ptr(), 0),
                None => {}
            }
        }
    }

    /// Marks memory as written.
    pub(super) fn define(&self, first: *const c_void, length: usize) {
        if let Some(msan) = &self.memory {
            // SAFETY: it changes its own notes only.
            unsafe { (msan.unpoison)(first, length) };
        }
    }

    /// Reports what of this memory the program has not written.
    pub(super) fn check(&self, first: *const c_void, length: usize) {
        if let Some(msan) = &self.memory {
            // SAFETY: it reads its own notes only.
            unsafe { (msan.check_mem_is_initialized)(first, length) };
        }
    }

    /// Notes an access of this thread.
    pub(super) fn touch(&self, first: *const c_void, length: usize, writes: bool) {
        let Some(tsan) = &self.thread else { return };
        let range = if writes { tsan.write_range } else { tsan.read_range };
        // SAFETY: it changes its own notes only.
        unsafe { range(first, length) };
    }

    /// What this thread has done so far comes before an [`acquire`](Self::acquire) of the address.
    pub(super) fn release(&self, address: *const c_void) {
        if let Some(tsan) = &self.thread {
            // SAFETY: it keeps a note of the address.
            unsafe { (tsan.release)(address) };
        }
    }

    /// What was done before a [`release`](Self::release) of the address comes before what this thread does.
    pub(super) fn acquire(&self, address: *const c_void) {
        if let Some(tsan) = &self.thread {
            // SAFETY: as above.
            unsafe { (tsan.acquire)(address) };
        }
    }
}

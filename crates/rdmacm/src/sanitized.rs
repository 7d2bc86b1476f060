//! What this library tells MemorySanitizer.
//!
//! This library is not compiled with it. So MemorySanitizer takes what this library writes for the program as not
//! written. And it takes what this library passes to the C library as the program's, and would report it. In a process
//! without it, each call here only looks at one word.

use std::ffi::{CStr, c_void};
use std::mem::transmute_copy;
use std::sync::OnceLock;

type Range = unsafe extern "C" fn(*const c_void, usize);
type Plain = unsafe extern "C" fn();

/// Its functions.
struct MemorySanitizer {
    unpoison: Range,
    check_mem_is_initialized: Range,
    disable_checks: Plain,
    enable_checks: Plain,
}

impl MemorySanitizer {
    /// Those of this process, if it was compiled with it.
    #[inline]
    fn of_this_process() -> Option<&'static Self> {
        static FOUND: OnceLock<Option<MemorySanitizer>> = OnceLock::new();
        FOUND.get_or_init(Self::find).as_ref()
    }

    fn find() -> Option<Self> {
        // SAFETY: each function has the type that `sanitizer/msan_interface.h` declares.
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

/// As long as this lives, this thread's calls of the C library are this library's own.
pub(crate) struct Inside(&'static MemorySanitizer);

/// This thread enters this library. `None` if there is no MemorySanitizer.
#[inline]
pub(crate) fn inside() -> Option<Inside> {
    MemorySanitizer::of_this_process().map(|msan| {
        // SAFETY: it counts, and the end of `Inside` counts back.
        unsafe { (msan.disable_checks)() };
        Inside(msan)
    })
}

impl Drop for Inside {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { (self.0.enable_checks)() };
    }
}

/// This library has written a value that the program reads.
#[inline]
pub(crate) fn written<T>(value: *const T) {
    bytes_written(value.cast(), size_of::<T>());
}

/// The same of these bytes.
#[inline]
pub(crate) fn bytes_written(from: *const u8, length: usize) {
    if let Some(msan) = MemorySanitizer::of_this_process().filter(|_| !from.is_null()) {
        // SAFETY: it changes its own notes only.
        unsafe { (msan.unpoison)(from.cast(), length) };
    }
}

/// The program sends these bytes to a peer. Those that it has not written are reported.
#[inline]
pub(crate) fn bytes_sent(from: *const u8, length: usize) {
    if let Some(msan) = MemorySanitizer::of_this_process() {
        // SAFETY: it reads its own notes only.
        unsafe { (msan.check_mem_is_initialized)(from.cast(), length) };
    }
}

/// Writes a value to where the program wants it.
///
/// # Safety
///
/// `to` is writable.
pub(crate) unsafe fn give<T>(to: *mut T, value: T) {
    // SAFETY: by the contract of this function.
    unsafe { *to = value };
    written(to);
}

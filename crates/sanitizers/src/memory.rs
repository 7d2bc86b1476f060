//! MemorySanitizer, which knows what memory the program has written.

use std::ffi::c_void;

use crate::{Plain, Range, function};

/// Its functions.
pub struct MemorySanitizer {
    test_shadow: unsafe extern "C" fn(*const c_void, usize) -> isize,
    check_mem_is_initialized: Range,
    unpoison: Range,
    poison: Range,
    disable_checks: Plain,
    enable_checks: Plain,
}

impl MemorySanitizer {
    /// That of this process.
    pub fn find() -> Option<Self> {
        // SAFETY: nobody else has functions of these names, and `sanitizer/msan_interface.h` declares their types.
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

    /// Marks memory as written.
    pub fn define(&self, address: u64, length: u64) {
        // SAFETY: it changes its own notes only.
        unsafe { (self.unpoison)(address as *const c_void, length as usize) };
    }

    /// Marks memory as not written.
    pub fn undefine(&self, address: u64, length: u64) {
        // SAFETY: as above.
        unsafe { (self.poison)(address as *const c_void, length as usize) };
    }

    /// Whether the program has not written all of a range.
    pub fn has_undefined(&self, address: u64, length: u64) -> bool {
        // SAFETY: it reads its own notes only.
        unsafe { (self.test_shadow)(address as *const c_void, length as usize) >= 0 }
    }

    /// Reports what of a range the program has not written.
    pub fn check(&self, address: u64, length: u64) {
        // SAFETY: as above.
        unsafe { (self.check_mem_is_initialized)(address as *const c_void, length as usize) };
    }

    /// What this thread passes to the C library is not looked at, until [`resume`](Self::resume). They may nest.
    pub fn pause(&self) {
        // SAFETY: it counts.
        unsafe { (self.disable_checks)() };
    }

    /// Ends a [`pause`](Self::pause).
    pub fn resume(&self) {
        // SAFETY: it counts back.
        unsafe { (self.enable_checks)() };
    }
}

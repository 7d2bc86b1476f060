//! AddressSanitizer and the hardware-assisted one, which know what memory is the program's.

use std::ffi::{c_int, c_void};

use crate::{Range, function};

/// The functions of AddressSanitizer.
pub struct AddressSanitizer {
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

impl AddressSanitizer {
    /// That of this process.
    pub fn find() -> Option<Self> {
        // SAFETY: nobody else has functions of these names, and `sanitizer/asan_interface.h` declares their types.
        unsafe {
            Some(Self {
                region_is_poisoned: function(c"__asan_region_is_poisoned")?,
                report_error: function(c"__asan_report_error")?,
                shadow_mapping: function(c"__asan_get_shadow_mapping"),
            })
        }
    }

    /// The first byte of a range that is not the program's to use, if there is one.
    pub fn first_poisoned(&self, address: u64, length: u64) -> Option<u64> {
        // SAFETY: it only reads its own notes, for any range.
        let found = unsafe { (self.region_is_poisoned)(address as *const c_void, length as usize) };
        (!found.is_null()).then_some(found as u64)
    }

    /// Reports an access of so many bytes. It then ends the process, mostly. It shows the callers of this function,
    /// which it finds by its address: so this is a function of its own.
    #[inline(never)]
    pub fn report(&self, address: u64, length: u64, writes: bool) {
        let (pc, stack) = (Self::report as *const c_void, &raw const address as *const c_void);
        let (at, size) = (address as *const c_void, length as usize);
        // SAFETY: it prints its arguments, and the unwinder reads the stack.
        unsafe { (self.report_error)(pc, stack, stack, at, c_int::from(writes), size) };
    }

    /// The scale and the offset of its notes of memory, if it tells.
    pub fn shadow_mapping(&self) -> Option<(usize, u64)> {
        let (mut scale, mut offset) = (0, 0);
        // SAFETY: it writes two numbers.
        unsafe { self.shadow_mapping?(&mut scale, &mut offset) };
        Some((scale, offset as u64))
    }
}

/// The functions of the hardware-assisted one, which tells blocks apart by tags.
pub struct HwAddressSanitizer {
    test_shadow: unsafe extern "C" fn(*const c_void, usize) -> isize,
    load: Range,
    store: Range,
}

impl HwAddressSanitizer {
    /// That of this process.
    pub fn find() -> Option<Self> {
        // SAFETY: nobody else has functions of these names, and `sanitizer/hwasan_interface.h` and the compiler declare
        // their types.
        unsafe {
            Some(Self {
                test_shadow: function(c"__hwasan_test_shadow")?,
                load: function(c"__hwasan_loadN")?,
                store: function(c"__hwasan_storeN")?,
            })
        }
    }

    /// The first byte of a range that is not the program's to use, if there is one.
    pub fn first_poisoned(&self, address: u64, length: u64) -> Option<u64> {
        // SAFETY: it only reads its own notes.
        let offset = unsafe { (self.test_shadow)(address as *const c_void, length as usize) };
        u64::try_from(offset).ok().map(|offset| address + offset)
    }

    /// Looks at an access, and reports it if not all is the program's.
    pub fn check(&self, address: u64, length: u64, writes: bool) {
        let check = if writes { self.store } else { self.load };
        // SAFETY: as above.
        unsafe { check(address as *const c_void, length as usize) };
    }
}

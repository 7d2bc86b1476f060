//! The functions of the sanitizers that a program may have been compiled with.
//!
//! They are found by their names in the process, so nothing here is compiled with a sanitizer. Each `find` answers
//! `None` in a process without the sanitizer. Addresses are plain numbers, because nothing here reads or writes what
//! lies there: a sanitizer changes its own notes of it.

#![deny(clippy::print_stderr, clippy::print_stdout)]

mod address;
mod memory;
mod symbolizer;
mod thread;

use std::ffi::{CStr, c_void};
use std::mem::transmute_copy;

pub use address::{AddressSanitizer, HwAddressSanitizer};
pub use memory::MemorySanitizer;
pub use symbolizer::Symbolizer;
pub use thread::{Fibers, ThreadSanitizer};

type Plain = unsafe extern "C" fn();
type At = unsafe extern "C" fn(*const c_void);
type Range = unsafe extern "C" fn(*const c_void, usize);

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

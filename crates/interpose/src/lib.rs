//! The function that a program would have called without the preloaded library that has one of the same
//! name. It allocates nothing and takes no lock, for such functions are called from anywhere.
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod shared_memory;

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The next function of a name, looked up once.
#[derive(Debug)]
pub struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    /// Looked up when it is first needed.
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(null_mut()) }
    }

    /// Its address, if it has been looked up.
    #[inline]
    pub fn known(&self) -> Option<*mut c_void> {
        let known = self.address.load(Ordering::Relaxed);
        (!known.is_null()).then_some(known)
    }

    /// Its address; null with `ENOSYS` if this C library has no such function.
    pub fn find(&self) -> *mut c_void {
        if let Some(known) = self.known() {
            return known;
        }
        // SAFETY: the name ends in zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            transom_thread::set_errno(libc::ENOSYS);
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// What a function answers when it fails.
pub trait Failed {
    /// With errno set.
    const FAILED: Self;
}

impl Failed for c_int {
    const FAILED: Self = -1;
}

impl Failed for isize {
    const FAILED: Self = -1;
}

impl<T> Failed for *mut T {
    const FAILED: Self = null_mut();
}

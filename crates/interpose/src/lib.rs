//! The function that a program would have called without the preloaded library that has one of the same
//! name. It allocates nothing and takes no lock, for such functions are called from anywhere.
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod shared_memory;

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The next function of a name, looked up once.
#[derive(Debug)]
pub struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
    /// The thread that looks it up, if one does.
    finder: AtomicUsize,
}

impl Next {
    /// Looked up when it is first needed.
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(null_mut()), finder: AtomicUsize::new(0) }
    }

    /// Its address, if it has been looked up.
    #[inline]
    fn known(&self) -> Option<*mut c_void> {
        let known = self.address.load(Ordering::Relaxed);
        (!known.is_null()).then_some(known)
    }

    /// Its address; null with `ENOSYS` if this C library has no such function.
    ///
    /// The C library may call the function that is being looked up: it frees what it had to say of an earlier lookup.
    /// That call finds null too.
    pub fn find(&self) -> *mut c_void {
        if let Some(known) = self.known() {
            return known;
        }
        // SAFETY: it only says where something is.
        let this_thread = unsafe { libc::pthread_self() } as usize;
        if self.finder.swap(this_thread, Ordering::Relaxed) == this_thread {
            return null_mut();
        }
        // SAFETY: the name ends in zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.finder.store(0, Ordering::Relaxed);
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

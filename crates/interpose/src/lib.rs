//! Finds the function that a program would have called if no preloaded library had one of the same name. Such functions
//! are called from anywhere, so this allocates nothing and takes no lock.
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod given_back;
pub mod shared_memory;

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The next function of a name. It is looked up once.
#[derive(Debug)]
pub struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
    /// The thread that is looking it up, if any.
    finder: AtomicUsize,
}

impl Next {
    /// A function that is looked up at its first use.
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(null_mut()), finder: AtomicUsize::new(0) }
    }

    /// Its address, if it has been looked up.
    #[inline]
    fn known(&self) -> Option<*mut c_void> {
        let known = self.address.load(Ordering::Relaxed);
        (!known.is_null()).then_some(known)
    }

    /// Its address. Null with `ENOSYS` if this C library has no such function.
    ///
    /// The C library may call the function during its own look-up: it frees the error text of an earlier look-up. That
    /// call gets null too.
    pub fn find(&self) -> *mut c_void {
        if let Some(known) = self.known() {
            return known;
        }
        // SAFETY: it has no conditions.
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

/// Declares functions for a preloaded library: each returns the next function of its name, or `None` if there is none.
/// `find_all` looks them all up.
#[macro_export]
macro_rules! next {
    ($($name:ident = $text:literal: fn($($argument:ident: $type:ty),*) $(-> $answer:ty)? ;)+) => {
        /// Looks them all up.
        pub(crate) fn find_all() {
            $(let _ = $name();)+
        }

        $(
            /// The next function of this name; `None` if there is none.
            #[inline]
            pub(crate) fn $name() -> Option<unsafe extern "C" fn($($type),*) $(-> $answer)?> {
                static NEXT: $crate::Next = $crate::Next::new($text);
                // SAFETY: this is the function of this name, in the C library or in another library before it. Null is
                // `None`.
                unsafe { std::mem::transmute(NEXT.find()) }
            }
        )+
    };
}

/// The result of a function that fails.
pub trait Failed {
    /// The caller sets errno beside it.
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

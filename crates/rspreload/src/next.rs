//! The C library's functions of the same names.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The next function of a name, looked up once.
pub(crate) struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(null_mut()) }
    }

    /// Its address; null with `ENOSYS` if this C library has none.
    pub(crate) fn find(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name ends in zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            set_errno(libc::ENOSYS);
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the address of this thread's own errno.
    unsafe { *libc::__errno_location() = errno };
}

pub(crate) fn errno() -> c_int {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

/// Declares functions of the C library, as they are without this library.
macro_rules! next {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            /// # Safety
            /// As the C library's.
            pub(crate) unsafe fn $name($($argument: $type),*) -> $result {
                static NEXT: $crate::next::Next = $crate::next::Next::new(
                    match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("a name has no zero inside"),
                    },
                );
                let next = NEXT.find();
                if next.is_null() {
                    return -1;
                }
                // SAFETY: the function of this name has this type.
                unsafe {
                    let next: unsafe extern "C-unwind" fn($($type),*) -> $result =
                        std::mem::transmute(next);
                    next($($argument),*)
                }
            }
        )*
    };
}
pub(crate) use next;

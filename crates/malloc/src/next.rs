//! The functions that programs would call without this library.
//!
//! They are looked up at their first use, which may be before the constructor here has run. The C library's `dlsym` may
//! itself allocate or free memory. During a look-up such a call finds no next function: it gets no memory, and frees
//! nothing.

use std::ffi::{c_int, c_void};

use libc::size_t;

transom_interpose::next! {
    malloc = c"malloc": fn(size: size_t) -> *mut c_void;
    free = c"free": fn(block: *mut c_void);
    realloc = c"realloc": fn(block: *mut c_void, size: size_t) -> *mut c_void;
    posix_memalign = c"posix_memalign":
        fn(block: *mut *mut c_void, align: size_t, size: size_t) -> c_int;
    aligned_alloc = c"aligned_alloc": fn(align: size_t, size: size_t) -> *mut c_void;
    memalign = c"memalign": fn(align: size_t, size: size_t) -> *mut c_void;
    valloc = c"valloc": fn(size: size_t) -> *mut c_void;
    pvalloc = c"pvalloc": fn(size: size_t) -> *mut c_void;
    malloc_usable_size = c"malloc_usable_size": fn(block: *mut c_void) -> size_t;
    madvise = c"madvise": fn(first: *mut c_void, length: size_t, advice: c_int) -> c_int;
    mprotect = c"mprotect": fn(first: *mut c_void, length: size_t, rights: c_int) -> c_int;
    pkey_mprotect = c"pkey_mprotect":
        fn(first: *mut c_void, length: size_t, rights: c_int, key: c_int) -> c_int;
    register_atfork = c"__register_atfork": fn(
        before: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
        library: *mut c_void
    ) -> c_int;
}
